// A pool that runs empty: one kind of request takes a connection and does not always give
// it back. On virtual time, so that it is the same each time.
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

using connections = vigil::channel<int>;

//! [make]
connections make_pool(int size) {
  auto pool = vigil::make_channel<int>(8, vigil::named("pool"));
  for (int i = 0; i < size; ++i)
    pool.send(i);
  return pool;
}

//! [make]

void look_up(const connections& pool) {
  const int connection = *pool.recv();
  vigil::sleep_for(10ms);  // stands for a query
  pool.send(connection);
}

//! [audit]
void audit(const connections& pool, int account) {
  const int connection = *pool.recv();
  vigil::sleep_for(20ms);
  if (account % 25 == 0) return;  // nothing to be audited
  pool.send(connection);
}

//! [audit]

int main() {
  vigil::inspect::install();
  vigil::testing::run_virtual([] {
    const connections pool = make_pool(3);
    for (int i = 1; i <= 90; ++i) {
      vigil::go(vigil::fiber_options{.name = "look_up"}, look_up, pool);
      if (i % 5 == 0) vigil::go(vigil::fiber_options{.name = "audit"}, audit, pool, i);
      vigil::sleep_for(1s);
    }
    std::printf("%llu fibers alive\n",
                static_cast<unsigned long long>(vigil::stats().fibers_alive));
    vigil::inspect::dump(stderr);
    pool.close();
  });
}
