// three_fires: Node's example of how its timer lists work.
//
// There is a timeout of 100 ms, and after 10 ms of work another of 100 ms and one of 200
// ms. They fire at +100, +110 and +210 ms with three wake-ups: the first two are in one
// list behind one timer, which is set for the second when the first has fired.
//
// Run it:     build/release/examples/three_fires
// It prints:  the lines of three_fires.expected, on virtual time exactly; on
//             real time each a little later, and never earlier.
#include "example.hpp"

#include <vigil/timeout_list.hpp>

#include <array>
#include <chrono>

using namespace std::chrono_literals;

int main() {
  return example_main([] {
    //! [three]
    struct request {
      const char* name;
      vigil::timeout_list::entry timeout;
    };

    const auto start = vigil::clock::now();
    vigil::timeout_lists timeouts([&](vigil::timeout_list::entry& e) {
      const auto ms = (vigil::clock::now() - start) / 1ms;
      std::printf(
          "+%lld ms: %s\n", static_cast<long long>(ms), vigil::owner_of<&request::timeout>(e).name);
    });

    std::array<request, 3> all{{{"the first", {}}, {"the second", {}}, {"the third", {}}}};
    timeouts.add(all[0].timeout, 100ms);
    vigil::sleep_for(10ms);  // some work
    timeouts.add(all[1].timeout, 100ms);
    timeouts.add(all[2].timeout, 200ms);
    std::printf("%zu timeouts in %zu lists\n", timeouts.size(), timeouts.lists());
    //! [three]

    const auto before = vigil::stats().timers_fired;
    vigil::sleep_for(1s);
    const auto fired = vigil::stats().timers_fired - before - 1;  // minus this sleep's
    std::printf("%llu wake-ups\n", static_cast<unsigned long long>(fired));
  });
}
