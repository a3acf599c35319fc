// Serves each customer's orders in turn, and those of different customers side by side.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <vector>

using namespace std::chrono_literals;

struct order {
  unsigned customer;
  const char* what;
};

void serve(const order& o) {
  vigil::sleep_for(10ms * (o.customer + 1));
  std::printf("customer %u: %s\n", o.customer, o.what);
}

int main() {
  return vigil::testing::run_virtual([] {
    std::vector<vigil::channel<order>> lanes(3);
    vigil::group workers;
    for (auto& lane : lanes) {
      lane = vigil::make_channel<order>(8);
      workers.go([lane] {
        for (const order& o : lane)
          serve(o);
      });
    }
    workers.go([&lanes](const vigil::context& ctx) {
      for (const order& o : {order{2, "open"}, {2, "pay"}, {0, "open"}, {4, "open"}, {0, "pay"}})
        lanes[o.customer % lanes.size()].send(o, ctx);  // ends if a worker has failed
      for (const auto& lane : lanes)
        lane.close();
    });
    workers.wait();  // throws what the worker has thrown
  });
}

//! [recipe]
