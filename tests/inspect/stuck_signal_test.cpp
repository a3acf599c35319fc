// The report of stuck fibers that somebody outside asks for.
#include "inspect/leaks_helpers.hpp"
#include "support/child.hpp"
#include "support/send_to_process.hpp"

#include <vigil/inspect.hpp>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>

#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

using namespace vigil;
using namespace vigil::testing_support;

namespace {

constexpr const char* last_line = "vigil: fibers that may never go on: ";

// Takes the place of standard error.
class read_errors {
 public:
  read_errors() : before_(::dup(2)) {
    REQUIRE(::pipe(ends_) == 0);
    ::dup2(ends_[1], 2);
  }

  ~read_errors() {
    ::dup2(before_, 2);
    for (const int fd : {before_, ends_[0], ends_[1]})
      ::close(fd);
  }

  read_errors(const read_errors&) = delete;
  read_errors& operator=(const read_errors&) = delete;

  std::string until(const char* words) {
    std::string text;
    char c = 0;
    while (text.find(words) == std::string::npos && ::read(ends_[0], &c, 1) == 1)
      text += c;
    return text;
  }

 private:
  int before_;
  int ends_[2] = {-1, -1};
};

void start_stuck() {
  start("forgotten", [] { channel<int>().recv(); });
  testing::settle();
}

}  // namespace

TEST_CASE("a signal reports the stuck fibers, each time, and the program goes on") {
  const child_result r = run_child("child: asked twice by a signal");
  NOTE(r.output);
  CHECK(r.succeeded());
  CHECK(r.says("went on"));
}

TEST_CASE("child: asked twice by a signal" * doctest::skip()) {
  read_errors errors;
  inspect::install({.stuck_signal = SIGUSR2});
  testing::run_virtual([&] {
    start_stuck();
    for (int i = 0; i < 2; ++i) {
      send_to_process(SIGUSR2);
      const std::string text = errors.until("(forgotten) [parked: channel receive");
      CHECK(text.find("vigil: fibers that can never go on: ") != std::string::npos);
    }
  });
  std::puts("went on");
}

TEST_CASE("a signal that is given up ends the program again") {
  const child_result r = run_child("child: a stuck_signal is given up");
  NOTE(r.output);
  CHECK(r.died_by(SIGUSR2));
  CHECK(r.says("given up"));
}

TEST_CASE("child: a stuck_signal is given up" * doctest::skip()) {
  inspect::install({.stuck_signal = SIGUSR2});
  inspect::install({.stuck_signal = SIGUSR2});  // refuses no handler of its own
  inspect::install();
  std::puts("given up");
  std::fflush(stdout);
  std::raise(SIGUSR2);
}

#ifndef VIGIL_TEST_UNDER_SANITIZER  // ThreadSanitizer wants no threads in a child
TEST_CASE("a child of fork() says that it reports nothing, until it calls install()") {
  const child_result r = run_child("child: it forks after install");
  NOTE(r.output);
  CHECK(r.succeeded());
  CHECK(r.says("signal 12 reports no stuck fibers in a child of fork()"));
}
#endif

TEST_CASE("child: it forks after install" * doctest::skip()) {
  inspect::install({.stuck_signal = SIGUSR2});
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::raise(SIGUSR2);
    std::string text;
    {
      read_errors errors;
      inspect::install({.stuck_signal = SIGUSR2});
      ::kill(::getpid(), SIGUSR2);
      text = errors.until(last_line);
    }
    ::_exit(text.find("vigil: fibers that can never go on: ") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("main that waits for the shutdown is not stuck") {
  inspect::install();
  runtime rt;
  std::thread asker([&rt] {
    inspect::stuck_report r = find_stuck();
    while (names_of(r.possible).count("other") + names_of(r.certain).count("other") == 0)
      r = find_stuck();
    CHECK(names_of(r.certain).count("main") == 0);
    if (VIGIL_TSAN == 0) CHECK(names_of(r.possible).count("main") == 0);  // it searches there
    rt.request_stop();
  });
  rt.run([] {
    go({.name = "other"}, [] { static_cast<void>(background().done().recv()); });
    static_cast<void>(background().done().recv());
  });
  asker.join();
}

TEST_CASE("a stuck_signal that cannot serve is refused") {
  for (const int signal : {SIGKILL, SIGSEGV, 1'000, SIGURG}) {
    CHECK_THROWS_AS(inspect::install({.stuck_signal = signal}), std::invalid_argument);
  }
  std::signal(SIGUSR2, SIG_IGN);
  CHECK_THROWS_AS(inspect::install({.stuck_signal = SIGUSR2}), std::invalid_argument);
  std::signal(SIGUSR2, SIG_DFL);
  inspect::install();
}
