// A late answer and its trace: one request holds the worker for too long, so the other's
// timeout fires late, and the flight recorder has what came before.
#include <vigil/inspect.hpp>
#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>

#include <unistd.h>

using namespace std::chrono_literals;

//! [region]
void parse(std::chrono::milliseconds takes) {
  const vigil::trace::region region("parse");
  // A long computation.
  const auto until = std::chrono::steady_clock::now() + takes;
  while (std::chrono::steady_clock::now() < until) {
  }
}

//! [region]

int main() {
  const std::string path = std::filesystem::temp_directory_path() /
                           ("vigil-example-" + std::to_string(::getpid()) + "-");
  //! [triggers]
  vigil::inspect::record_on({
      .timer_late = 10ms,
      .path = path,
      .files = 1,
  });
  //! [triggers]
  vigil::options o;
  o.workers = 1;
  //! [on]
  o.recorder_events = 16'384;
  //! [on]
  vigil::run(o, [&] {
    auto small = vigil::spawn({.name = "small"}, [] { vigil::sleep_for(5ms); });
    auto large = vigil::spawn({.name = "large"}, [] { parse(50ms); });
    large.join();
    small.join();
    // It is written by a thread of its own.
    while (!std::filesystem::exists(path + "1.pftrace"))
      vigil::sleep_for(1ms);
  });
  vigil::inspect::record_on({});
  std::filesystem::remove(path + "1.pftrace");
  std::puts("a timer was late, and there is a trace of it");

  vigil::run(o, [] {
    vigil::spawn([] { parse(1ms); }).join();
    //! [request]
    std::FILE* const out = std::tmpfile();
    vigil::blocking([out] { vigil::inspect::write_trace(out, 5s); });
    std::fclose(out);
    //! [request]
  });
}
