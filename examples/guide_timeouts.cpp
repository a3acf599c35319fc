// The code of docs/guide/timeout-lists.md, on virtual time. Each function is one passage
// there.
//
// Run:    build/release/examples/guide_timeouts
// Prints: what each passage does.
#include <vigil/testing.hpp>
#include <vigil/timeout_list.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <memory>
#include <vector>

using namespace std::chrono_literals;

namespace {

//! [connection]
struct connection {
  int number = 0;
  bool open = true;

  void close() {
    open = false;
    std::printf("connection %d is closed\n", number);
  }
};

using client = vigil::expiring<connection>;  // with its entry: 40 bytes, no allocation

//! [connection]

void first() {
  //! [first]
  vigil::timeout_list idle(30s, [](vigil::timeout_list::entry& e) { client::of(e)->close(); });

  client a{1};
  client b{2};
  idle.add(a.entry());  // counts from now
  idle.add(b.entry());
  vigil::sleep_for(20s);
  a.entry().touch();      // data came: a counts from now
  vigil::sleep_for(15s);  // b is closed 30 s after it was added
  std::printf("%zu left\n", idle.size());
  //! [first]
}

void reader() {
  vigil::timeout_list idle(30s, [](vigil::timeout_list::entry&) {});
  client c{3};
  idle.add(c.entry());
  //! [false]
  const auto now = vigil::clock::now();  // once for many events
  if (!c.entry().touch(now)) return;     // its expiry has begun: leave it alone
  //! [false]
  std::puts("in time");
}

void owned() {
  //! [owner]
  std::vector<std::unique_ptr<client>> table;
  vigil::timeout_list idle(30s, [&table](vigil::timeout_list::entry& e) {
    const client& c = client::of(e);
    std::erase_if(table, [&c](const auto& each) { return each.get() == &c; });
  });
  for (int i = 0; i < 3; ++i) {
    table.push_back(std::make_unique<client>());
    idle.add(table.back()->entry());
  }
  vigil::sleep_for(1min);
  std::printf("%zu in the table\n", table.size());
  //! [owner]
}

void durations() {
  //! [durations]
  vigil::timeout_lists timeouts([](vigil::timeout_list::entry& e) { client::of(e)->close(); });
  client a{4};
  client b{5};
  timeouts.add(a.entry(), 5s);
  timeouts.add(b.entry(), 1min);
  timeouts.add(a.entry(), 2min);  // moves it: an entry is in one list
  vigil::sleep_for(1min);
  vigil::testing::settle();
  std::printf("%zu left\n", timeouts.size());
  //! [durations]
}

void shutdown() {
  vigil::timeout_list idle(30s, [](vigil::timeout_list::entry& e) { client::of(e)->close(); });
  client a{6};
  client b{7};
  idle.add(a.entry());
  vigil::sleep_for(1s);
  idle.add(b.entry());
  //! [now]
  const std::size_t closed = idle.expire_now();  // all that are idle, the oldest first
  std::printf("%zu closed at the end\n", closed);
  //! [now]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    first();
    reader();
    owned();
    durations();
    shutdown();
  });
}
