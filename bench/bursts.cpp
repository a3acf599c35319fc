// Fibers that are alive together, again and again: whether a burst that comes again finds
// its stacks warm, and what is left of them after ten idle seconds.
#include "gate.hpp"
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <string>

#include <sys/resource.h>

namespace bench {
namespace {

using namespace std::chrono_literals;

long page_faults() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  return used.ru_minflt;
}

void bursts_of(report& out, std::size_t n, std::size_t workers) {
  vigil::run(with_workers(workers), [&] {
    const std::size_t at_first = memory_held();
    const std::string name =
        std::to_string(n) + " fibers alive together, workers: " + std::to_string(workers);
    for (const char* which : {"first time", "second time", "third time", "fourth time"}) {
      const long faults = page_faults();
      const nanos begun = cpu_time();
      wait_at_gate(n);
      const auto each = static_cast<double>(n);
      const auto used = static_cast<double>(cpu_time() - begun);
      out.add(name + ", " + which + ": page faults for each",
              static_cast<double>(page_faults() - faults) / each,
              "");
      out.add(name + ", " + which + ": CPU for each", used / each / 1e3, "us");
    }
    const auto growth = [&] {
      return (static_cast<double>(memory_held()) - static_cast<double>(at_first)) / 1e6;
    };
    out.add(name + ": memory more than at first", growth(), "MB");
    vigil::sleep_for(10s);
    out.add(name + ": the same, ten idle seconds later", growth(), "MB");
  });
}

}  // namespace

void bursts(report& out) {
  for (const std::size_t n : {std::size_t{10'000}, std::size_t{100'000}}) {
    bursts_of(out, n, 1);
    bursts_of(out, n, 2);
  }
}

}  // namespace bench
