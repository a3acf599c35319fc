// A user's program that looks inside.
#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

int main() {
  vigil::inspect::install();
  return vigil::run([] {
    vigil::inspect::dump(stderr);
    vigil::inspect::dump_json(stderr);
    std::puts("vigil-inspect says hello");
  });
}
