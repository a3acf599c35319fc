#include "soak/slope.hpp"

#include <cmath>
#include <cstddef>

namespace vigil::soak {

slope slope_of(const std::vector<sample>& samples) {
  const auto n = static_cast<double>(samples.size());
  if (samples.size() < 3) return {};
  double x = 0;
  double y = 0;
  for (const sample& s : samples) {
    x += s.hours / n;
    y += s.value / n;
  }
  double xx = 0;
  double xy = 0;
  for (const sample& s : samples) {
    xx += (s.hours - x) * (s.hours - x);
    xy += (s.hours - x) * (s.value - y);
  }
  if (xx <= 0) return {0, 0, y};
  const double rise = xy / xx;
  double rest = 0;
  for (const sample& s : samples) {
    const double off = s.value - y - rise * (s.hours - x);
    rest += off * off;
  }
  return {rise, std::sqrt(rest / (n - 2) / xx), y};
}

verdict judge(const slope& s, double bound) noexcept {
  if (s.per_hour + 3 * s.error <= bound) return verdict::flat;
  if (s.per_hour - 3 * s.error > bound) return verdict::grows;
  return verdict::undecided;
}

}  // namespace vigil::soak
