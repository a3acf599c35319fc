#include "inspect/kernel_clock.hpp"

#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"

#include <algorithm>
#include <fstream>

namespace VIGIL_DETAIL {
namespace {

constexpr const char* kernels_file =
    "/sys/devices/system/clocksource/clocksource0/current_clocksource";

constinit atomic<const char*> clock_source_file{kernels_file};

}  // namespace

void set_clock_source_file(const char* path) noexcept {
  clock_source_file.store(path != nullptr ? path : kernels_file);
}

bool is_slow_clock(std::string_view name) noexcept {
  // The kernel lets programs read these by themselves, through the vDSO.
  constexpr std::string_view fast[] = {
      "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"};
  return std::find(std::begin(fast), std::end(fast), name) == std::end(fast);
}

kernel_clock present_clock() {
  kernel_clock k;
  std::ifstream in(clock_source_file.load());
  in >> k.name;
  k.is_slow = !k.name.empty() && is_slow_clock(k.name);
  return k;
}

void warn_of_slow_clock() {
  static atomic<bool> was_said{false};
  const kernel_clock k = present_clock();
  if (!k.is_slow || was_said.exchange(true)) return;
  warn(
      "the kernel's clock source is %s: each look at the clock is a system call, so timers and "
      "deadlines cost many times what they cost with tsc, kvm-clock or arch_sys_counter (see "
      "/sys/devices/system/clocksource/clocksource0/available_clocksource)",
      k.name.c_str());
}

}  // namespace VIGIL_DETAIL
