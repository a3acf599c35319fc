// Short uses of names of vigil-inspect that no other example shows, as
// examples/reference.cpp has them for vigil.
//
// Run:    build/release/examples/inspect/reference_inspect
// Prints: what each piece does.
#include <vigil/inspect.hpp>
#include <vigil/leaks.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

template <class F>
std::string written(F write) {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const out = ::open_memstream(&text, &size);
  write(out);
  std::fclose(out);
  const std::string copy(text, size);
  std::free(text);
  return copy;
}

//! [dump_json]
// For a program that reads it, without the frames.
void write_fibers(std::FILE* out) {
  vigil::inspect::dump_json(out, {.frames = false});
}

//! [dump_json]

//! [dump_stuck_fibers]
// For a person: each with its wait and its frames.
void write_stuck(std::FILE* out) {
  vigil::inspect::dump_stuck_fibers(out);
}

//! [dump_stuck_fibers]

void look() {
  if (written(write_fibers).find("\"name\":\"reader\"") != std::string::npos)
    std::puts("an object has the reader");
  if (written(write_stuck).find("reader") != std::string::npos) std::puts("and so has the report");

  //! [find_stuck_fibers]
  const vigil::inspect::stuck_report found = vigil::inspect::find_stuck_fibers();
  for (const auto& fibers : {found.certain, found.possible}) {
    for (const vigil::inspect::stuck_fiber& f : fibers)
      std::printf("%s waits, perhaps for ever\n", f.name.c_str());
  }
  //! [find_stuck_fibers]

  //! [openmetrics]
  const std::string body = vigil::inspect::openmetrics();
  std::puts("HTTP/1.1 200 OK");
  std::printf("Content-Type: %s\n", vigil::inspect::openmetrics_type);
  if (body.ends_with("# EOF\n")) std::puts("and the metrics, to their end");
  //! [openmetrics]
}

}  // namespace

int main() {
  vigil::inspect::install();
  return vigil::testing::run_virtual([] {
    vigil::go({.name = "reader"}, [] { vigil::make_channel<int>().recv(); });
    vigil::testing::settle();
    look();
  });
}
