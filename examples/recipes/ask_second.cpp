// Asks a second server if the first is slow, and takes whichever answer comes first.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

std::string ask(const std::string& city, vigil::clock::duration takes, const vigil::context& ctx) {
  vigil::sleep_for(takes, ctx);
  return city;
}

template <class F>
std::string hedged(F first, F second) {
  vigil::group_of<std::string> asked;
  asked.go(first);
  if (auto answer = asked.next_for(50ms)) return *answer;
  asked.go(second);
  return asked.next().value();
}  // the group stops the slower one

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {20ms, 60ms, 500ms}) {
      const auto start = vigil::clock::now();
      const auto of = [](const char* city, auto d) {
        return [=](const vigil::context& ctx) { return ask(city, d, ctx); };
      };
      const std::string answer = hedged(of("Oslo", takes), of("Rome", 30ms));
      const auto took = vigil::clock::now() - start;
      std::printf("%s, after %d ms\n", answer.c_str(), int(took / 1ms));
    }
  });
}

//! [recipe]
