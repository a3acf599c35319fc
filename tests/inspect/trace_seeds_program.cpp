// usage: trace_seeds_program SEED
//
// Runs the program of that seed on virtual time. Writes its trace to standard output, and
// to standard error what the seed dictates, a line for each event.
#include "inspect/seeded_model.hpp"

#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>

#include <cstdio>
#include <cstdlib>

using namespace vigil::testing_support;

int main(int count, char** words) {
  if (count != 2) return 2;
  const std::uint64_t seed = std::strtoull(words[1], nullptr, 10);
  const seeded_model model(script_of(seed), seed);
  bool as_noted = false;
  vigil::testing::virtual_options o;
  o.seed = seed;
  o.runtime.recorder_events = 16'384;
  vigil::testing::run_virtual(o, [&] {
    seeded_program program(script_of(seed));
    program.run();
    vigil::inspect::write_trace(stdout);
    as_noted = program.notes() == model.notes();
  });
  for (const std::string& line : model.events())
    std::fprintf(stderr, "%s\n", line.c_str());
  return as_noted ? 0 : 1;
}
