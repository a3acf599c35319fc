// A user's program that shows a live page.
#include <vigil/inspect_page.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <filesystem>
#include <string>

#include <unistd.h>

int main() {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("vigil-page-" + std::to_string(::getpid()) + ".sock");
  const auto page = vigil::inspect::serve(path, {.announce = false});
  return vigil::run([] { std::puts("vigil-inspect-page says hello"); });
}
