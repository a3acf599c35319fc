// A program for callgrind to look at (tools/count_instructions.py): what the places that
// could record cost while nothing is recorded.
//
//   recorder_program WORK N   N rounds of the work, on one worker
#include "recorded_work.hpp"

#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

struct work {
  std::string_view name;
  void (*f)(int);
};

constexpr work all[] = {{"yield", &bench::yields},
                        {"question", &bench::questions},
                        {"start", &bench::starts},
                        {"timer", &bench::timers},
                        {"region", &bench::regions}};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 0;
  for (const work& w : all) {
    if (rounds < 1 || w.name != argv[1]) continue;
    vigil::options settings;
    settings.workers = 1;
    settings.stuck_limit = std::chrono::seconds(0);
    vigil::run(settings, [&w, rounds] { w.f(rounds); });
    return 0;
  }
  std::fprintf(stderr, "usage: recorder_program yield|question|start|timer|region N\n");
  return 2;
}
