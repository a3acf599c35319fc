// A program that is built with the standard library's debug mode, where containers have
// another layout, works with a vigil that is not.
#ifndef _GLIBCXX_DEBUG
#error "built without -D_GLIBCXX_DEBUG"
#endif

#include <vigil/debug.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

void check(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s\n", what);
  std::abort();
}

void use_everything() {
  std::vector<int> numbers{1, 2, 3};
  vigil::group_of<int> squares;
  for (const int n : numbers)
    squares.go([n] { return n * n; });
  check(squares.wait() == std::vector<int>{1, 4, 9}, "a group's results");

  const auto channel = vigil::make_channel<std::string>(1);
  vigil::case_list cases;
  std::string received;
  cases.add(vigil::on_recv(channel, [&](auto got) { received = *got; }));
  channel.send("text");
  vigil::select(cases);
  check(received == "text", "a list of cases");

  const auto alive = vigil::stats().fibers_alive;  // with those of the group that just end
  check(alive >= 1 && alive <= 4, "the statistics");
}

}  // namespace

int main() {
  vigil::options o{.workers = 2, .stop_on = {SIGUSR1, SIGTERM}};
  check(o.stop_on.size() == 2, "the list of signals");
  vigil::run(o, [] {
    use_everything();
    ::raise(SIGUSR1);
    vigil::sleep_for(1h);
  });
  const std::vector<int> signals{SIGUSR1};
  o.stop_on = signals;
  vigil::runtime rt(o);
  check(rt.run([] {
    vigil::sleep_for(1us);
    return 7;
  }) == 7,
        "a runtime's result");
  vigil::testing::run_virtual({.seed = 3, .runtime = o}, [] { use_everything(); });
}
