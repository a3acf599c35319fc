// Reads a file without keeping other fibers from their work, in a second at most.
//! [recipe]
#include <vigil/vigil.hpp>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <optional>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

std::optional<std::string> read_file(const std::string& path) {
  return vigil::blocking_for(1s, [path] {  // a copy: after the second it may still be needed
    std::ifstream in(path);
    if (!in) throw std::runtime_error("cannot read " + path);
    return std::string(std::istreambuf_iterator<char>(in), {});
  });
}

int main() {
  return vigil::run([] {
    for (const char* path : {"/proc/sys/kernel/ostype", "/no/such/file"}) {
      try {
        const auto text = read_file(path);
        std::printf("%s", text ? text->c_str() : "the disk is slow\n");
      } catch (const std::exception& e) {
        std::puts(e.what());
      }
    }
  });
}

//! [recipe]
