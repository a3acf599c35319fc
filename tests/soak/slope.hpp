// The slope of a series of samples: a line by least squares, with the standard error of
// its slope.
#pragma once

#include <string>
#include <vector>

namespace vigil::soak {

struct sample {
  double hours;
  double value;
};

struct slope {
  double per_hour = 0;
  double error = 0;  // one standard error
  double mean = 0;
};

// All zero for less than three samples, or if all have one time.
slope slope_of(const std::vector<sample>& samples);

enum class verdict {
  flat,       // below the bound for certain
  grows,      // above it for certain
  undecided,  // the run was too short, or the samples too rough, to tell
};

// Three standard errors are certainty enough: one run in a thousand is judged wrongly.
verdict judge(const slope& s, double bound) noexcept;

}  // namespace vigil::soak
