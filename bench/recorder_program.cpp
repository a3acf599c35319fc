// A program for callgrind to look at (tools/count_instructions.py): what the places that
// could record cost while nothing is recorded.
//
//   recorder_program WORK N   N rounds of the work, on one worker
#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace {

using namespace std::chrono_literals;

void yields(int n) {
  auto other = vigil::spawn([n] {
    for (int i = 0; i < n; ++i)
      vigil::this_fiber::yield();
  });
  for (int i = 0; i < n; ++i)
    vigil::this_fiber::yield();
  other.join();
}

void questions(int n) {
  auto ask = vigil::make_channel<int>();
  auto answer = vigil::make_channel<int>();
  auto other = vigil::spawn([&] {
    while (auto v = ask.recv())
      answer.send(*v);
  });
  for (int i = 0; i < n; ++i) {
    ask.send(i);
    static_cast<void>(answer.recv());
  }
  ask.close();
  other.join();
}

void starts(int n) {
  for (int i = 0; i < n; ++i)
    vigil::spawn([] {}).join();
}

void timers(int n) {
  for (int i = 0; i < n; ++i)
    vigil::after_func(1h, [] {}).stop();
}

void regions(int n) {
  for (int i = 0; i < n; ++i)
    const vigil::trace::region region("round");
}

struct work {
  std::string_view name;
  void (*f)(int);
};

constexpr work all[] = {{"yield", &yields},
                        {"question", &questions},
                        {"start", &starts},
                        {"timer", &timers},
                        {"region", &regions}};

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc == 3 ? std::atoi(argv[2]) : 0;
  for (const work& w : all) {
    if (rounds < 1 || w.name != argv[1]) continue;
    vigil::options settings;
    settings.workers = 1;
    settings.stuck_limit = 0s;
    vigil::run(settings, [&w, rounds] { w.f(rounds); });
    return 0;
  }
  std::fprintf(stderr, "usage: recorder_program yield|question|start|timer|region N\n");
  return 2;
}
