// The kernel's part in one sleep, and in one run of a callback: waits, wake-ups and
// context switches. tools/count_syscalls.sh counts sleeps from outside.
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <string>

namespace bench {

namespace {

using namespace std::chrono_literals;

// Runs f, in which the calling fiber's runtime does something n times; reports each cost.
template <class F>
void count_each(report& out, const std::string& what, std::size_t n, F&& f) {
  vigil::sleep_for(20ms);
  const auto before = vigil::stats();
  const std::uint64_t switches_before = context_switches();
  const nanos cpu_before = cpu_time();
  f();
  const nanos cpu = cpu_time() - cpu_before;
  const std::uint64_t switches = context_switches() - switches_before;
  const auto after = vigil::stats();
  const auto each = [n](auto amount) {
    return static_cast<double>(amount) / static_cast<double>(n);
  };
  out.add("kernel waits and wake-up calls per " + what,
          each(after.kernel_waits + after.wake_calls - before.kernel_waits - before.wake_calls),
          "");
  out.add("needless wake-ups per " + what, each(after.wakes_needless - before.wakes_needless), "");
  out.add("context switches per " + what, each(switches), "");
  out.add("CPU per " + what, each(cpu) / 1e3, "us");
}

}  // namespace

void kernel_calls(report& out) {
  const std::size_t n = out.is_asked_for() ? 1'000 : 100;
  for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
    const std::string where = workers == 1 ? ", 1 worker" : ", 2 workers";
    vigil::run(with_workers(workers), [&] {
      vigil::spawn([&] {
        count_each(out, "sleep_for(10ms)" + where, n, [n] {
          for (std::size_t i = 0; i < n; ++i)
            vigil::sleep_for(10ms);
        });
      }).join();
      vigil::timer beat = vigil::every(10ms, [] {});
      count_each(out, "run of every(10ms)" + where, n, [n] { vigil::sleep_for(10ms * n); });
      beat.stop();
    });
  }
}

}  // namespace bench
