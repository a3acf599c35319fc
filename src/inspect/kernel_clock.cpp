#include "inspect/kernel_clock.hpp"

#include "base/assert.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>

namespace vigil::inline VIGIL_ABI::detail {

bool is_slow_clock(std::string_view name) noexcept {
  // The kernel lets programs read these by themselves, through the vDSO.
  constexpr std::string_view fast[] = {
      "tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter", "timebase"};
  return std::find(std::begin(fast), std::end(fast), name) == std::end(fast);
}

kernel_clock present_clock() {
  kernel_clock k;
  std::ifstream in("/sys/devices/system/clocksource/clocksource0/current_clocksource");
  in >> k.name;
  k.is_slow = !k.name.empty() && is_slow_clock(k.name);
  return k;
}

void warn_of_slow_clock() {
  static std::atomic<bool> was_said{false};
  const kernel_clock k = present_clock();
  if (!k.is_slow || was_said.exchange(true)) return;
  warn(
      "the kernel's clock source is %s: each look at the clock is a system call, so timers and "
      "deadlines cost many times what they cost with tsc, kvm-clock or arch_sys_counter (see "
      "/sys/devices/system/clocksource/clocksource0/available_clocksource)",
      k.name.c_str());
}

}  // namespace vigil::inline VIGIL_ABI::detail
