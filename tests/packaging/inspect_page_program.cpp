// A user's program that shows a live page.
#include <vigil/inspect_page.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

#include <unistd.h>

int main() {
  const std::string path = "/tmp/vigil-page-" + std::to_string(::getpid()) + ".sock";
  const auto page = vigil::inspect::serve(path, {.announce = false});
  return vigil::run([] { std::puts("vigil-inspect-page says hello"); });
}
