// System calls, counted by strace, and instructions, counted by valgrind, of this program
// itself, which runs a part of itself under them (--traced).
#include "io.hpp"

#include <vigil/io/io_context.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

namespace bench {
namespace {

using namespace std::chrono_literals;

// --- the part that is traced

void mark() {
  ::syscall(SYS_getppid);
}

void sleep_often(std::size_t workers, std::size_t n) {
  vigil::run(with_workers(workers), [n] {
    static_cast<void>(vigil::io::io_context());
    vigil::spawn([n] {
      vigil::sleep_for(50ms);
      mark();
      for (std::size_t i = 0; i < n; ++i)
        vigil::sleep_for(10ms);
      mark();
    }).join();
  });
}

// --- the tracing part

// Returns the lines that a tool writes about `--traced arguments`; none if it cannot.
std::vector<std::string> lines_of(const std::string& tool, const std::string& arguments) {
  char path[4096] = {};
  std::string file = std::filesystem::temp_directory_path() / "vigil_bench.XXXXXX";
  const int fd = ::mkstemp(file.data());
  if (fd < 0 || ::readlink("/proc/self/exe", path, sizeof path - 1) < 0) return {};
  ::close(fd);
  const std::string command =
      tool + file + " '" + path + "' --traced " + arguments + " >/dev/null 2>&1";
  std::vector<std::string> all;
  if (std::system(command.c_str()) == 0) {
    std::ifstream text(file);
    for (std::string line; std::getline(text, line);)
      all.push_back(line);
  }
  ::unlink(file.c_str());
  return all;
}

// Returns the number of calls of all threads between the two marks.
double system_calls(const std::string& arguments) {
  int marks = 0;
  double n = 0;
  for (const std::string& line : lines_of("strace -f -o ", arguments)) {
    const auto has = [&line](const char* text) { return line.find(text) != std::string::npos; };
    if (has("getppid(")) {
      ++marks;
    } else if (marks == 1 && !has("resumed>") && !has("+++") && !has("--- SIG")) {
      ++n;
    }
  }
  return marks == 2 ? n : NAN;
}

double instructions(const std::string& arguments) {
  const std::string tool =
      "valgrind --tool=cachegrind --cache-sim=no --cachegrind-out-file=/dev/null --log-file=";
  for (std::string line : lines_of(tool, arguments)) {
    std::erase(line, ',');
    const std::size_t at = line.find("refs:");
    if (at != std::string::npos) return std::atof(line.c_str() + at + 5);
  }
  return NAN;
}

void add_count(report& out, const std::string& name, double n, const char* remark) {
  if (!std::isnan(n)) {
    out.add(name, n, "", remark);
  } else {
    std::fprintf(stderr, "%s: not counted, needs strace or valgrind\n", name.c_str());
  }
}

}  // namespace

void io_kernel(report& out) {
  for (const char* const workers : {"1", "2"}) {
    add_count(out,
              std::string("system calls per sleep_for(10ms), workers: ") + workers,
              system_calls(std::string("sleep ") + workers + " 200") / 200,
              "goal 4 at most");
  }
  // All except the one in which the thread that looks at the clock waits.
  add_count(out,
            "system calls in 10 s, 1 000 idle connections",
            system_calls("idle 1000 10") - 1,
            "goal 0");
  for (const talker& t : talkers()) {
    const std::string what = std::string("talk ") + t.key;
    add_count(out,
              std::string("system calls per round trip, ") + t.name,
              (system_calls(what + " 2500") - system_calls(what + " 500")) / 2000,
              "");
    add_count(out,
              std::string("instructions per round trip, ") + t.name,
              (instructions(what + " 2500") - instructions(what + " 500")) / 2000,
              "user mode");
  }
}

int traced(const std::vector<std::string>& arguments) {
  const std::string& what = arguments.at(0);
  const auto number = [&](std::size_t i) {
    return static_cast<std::size_t>(std::stoul(arguments.at(i)));
  };
  if (what == "sleep") {
    sleep_often(number(1), number(2));
    return 0;
  }
  if (what == "idle") {
    idle_server(number(1), std::chrono::seconds(number(2)), &mark);
    return 0;
  }
  for (const talker& t : talkers()) {
    if (what != "talk" || arguments.at(1) != t.key) continue;
    mark();
    t.talk(number(2));
    mark();
    return 0;
  }
  return 2;
}

}  // namespace bench
