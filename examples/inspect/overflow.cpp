// A stack overflow: a parser that calls itself for each bracket meets too many.
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstdio>
#include <string>

//! [parser]
[[gnu::noinline]] int depth_of(const char*& at) {
  int depth = 0;
  for (; *at == '('; ++at) {
    ++at;
    depth = std::max(depth, 1 + depth_of(at));
  }
  return depth;
}

//! [parser]

int main() {
  vigil::run([] {
    for (const unsigned brackets : {3U, 1'000'000U}) {
      const std::string text = std::string(brackets, '(') + std::string(brackets, ')');
      auto parser = vigil::spawn({.name = "parser"}, [&] {
        const char* at = text.c_str();
        return depth_of(at);
      });
      std::printf("%u brackets: depth %d\n", brackets, parser.join());
      std::fflush(stdout);
    }
  });
}
