// The traces that inspect::record_on has written, and their files.
#include "inspect/inspect_helpers.hpp"
#include "inspect/trace_file.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"
#include "support/send_to_process.hpp"
#include "support/temporary_folder.hpp"
#include "support/text_of.hpp"

#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The files that record_on() writes in a test.
class trace_files {
 public:
  ~trace_files() { vigil::inspect::record_on({}); }

  std::string path(const std::string& name = "t-") const { return folder_.file(name); }

  std::size_t count() const {
    const std::filesystem::directory_iterator all(folder_.path());
    return static_cast<std::size_t>(std::distance(begin(all), end(all)));
  }

  std::string bytes(int number) const {
    return bytes_of(path() + std::to_string(number) + ".pftrace");
  }

  // Another thread writes it: as long as that takes.
  void wait_for(const std::string& name) const {
    while (!std::filesystem::exists(path(name)))
      vigil::sleep_for(1ms);
  }

 private:
  temporary_folder folder_;
};

// On virtual time, with a recorder.
template <class F>
void in_recorded_run(F body) {
  vigil::testing::virtual_options o;
  o.runtime.recorder_events = 16 * 1024;
  in_virtual(o, body);
}

void miss_a_deadline() {
  auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 1ms);
  static_cast<void>(ctx.done().recv());
}

// How long a file of this process may become.
void limit_files(rlim_t bytes) {
  rlimit limit = {};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

// How an error message ends.
std::string because(std::errc reason) {
  return ": " + std::make_error_code(reason).message();
}

}  // namespace

TEST_SUITE("record_on") {
  TEST_CASE("24 simulated hours: a trace for each of the first missed deadlines") {
    const trace_files files;
    vigil::inspect::record_on(
        {.deadline_missed = true, .path = files.path(), .files = 3, .spacing = 0s});
    in_recorded_run([&] {
      const auto start = vigil::clock::now();
      auto tick = vigil::ticker(10s);
      for (int i = 0; i < 24 * 360; ++i) {
        static_cast<void>(tick.channel().recv());
        if (i % 1'440 != 0) continue;  // each four hours
        auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 1s);
        static_cast<void>(ctx.done().recv());
      }
      CHECK(since(start) >= 24h);
      CHECK(files.count() == 3);
    });
    CHECK(files.count() == 3);
    for (int i = 1; i <= 3; ++i)
      CHECK(has(files.bytes(i), "context: deadline passed"));
  }

  TEST_CASE("a trace for a fiber that ran long, and for a signal") {
    const trace_files files;
    vigil::inspect::record_on(
        {.ran_for = 1ms, .signal = SIGUSR2, .path = files.path(), .spacing = 0s});
    vigil::options o;
    o.workers = 1;
    o.recorder_events = 16 * 1024;
    vigil::run(o, [&] {
      const auto begin = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - begin < 5ms) {
      }
      vigil::sleep_for(1ms);
      files.wait_for("t-1.pftrace");
      vigil::inspect::record_on({.signal = SIGUSR2, .path = files.path("s-")});
      send_to_process(SIGUSR2);
      files.wait_for("s-1.pftrace");
    });
  }

  TEST_CASE("a later call overwrites no file, whole or not") {
    const trace_files files;
    const auto put = [&](const char* name) { std::ofstream(files.path(name)) << "earlier"; };
    const auto read = [&](const char* name) { return bytes_of(files.path(name)); };
    put("t-1.pftrace");
    put("t-4.pftrace.part");
    std::filesystem::create_symlink("/nowhere/t", files.path("t-5.pftrace"));
    for (int call = 0; call < 2; ++call) {
      vigil::inspect::record_on(
          {.deadline_missed = true, .path = files.path(), .files = 2, .spacing = 0s});
      in_recorded_run([] {
        for (int i = 0; i < 3; ++i)
          miss_a_deadline();
      });
    }
    CHECK(read("t-1.pftrace") == "earlier");
    CHECK(read("t-4.pftrace.part") == "earlier");
    CHECK(std::filesystem::is_symlink(files.path("t-5.pftrace")));
    for (const int written : {2, 3, 6, 7})
      CHECK(has(files.bytes(written), "context: deadline passed"));
    CHECK(files.count() == 7);
  }

  TEST_CASE("each of those who write at once gets a number of its own") {
    const temporary_folder folder;
    constexpr std::size_t each = 25;
    std::vector<std::thread> writers;
    for (const char letter : {'a', 'b', 'c', 'd'}) {
      writers.emplace_back([&folder, letter] {
        for (std::size_t i = 0; i < each; ++i)
          vigil::detail::write_trace_file(folder.file("t-"), 1, std::string(100, letter));
      });
    }
    for (std::thread& w : writers)
      w.join();
    std::map<std::string, std::size_t> found;
    for (std::size_t number = 1; number <= 4 * each; ++number)
      ++found[bytes_of(folder.file("t-" + std::to_string(number) + ".pftrace"))];
    for (const char letter : {'a', 'b', 'c', 'd'})
      CHECK(found[std::string(100, letter)] == each);
  }

  TEST_CASE("of a trace that does not fit nothing stays, and the reason is told") {
    const child_result r = run_child("child: no file may grow");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(has(r.output, "t-1.pftrace.part cannot be written" + because(std::errc::file_too_large)));
  }

  TEST_CASE("child: no file may grow" * doctest::skip()) {
    const trace_files files;
    vigil::inspect::record_on({.deadline_missed = true, .path = files.path(), .spacing = 0s});
    in_recorded_run([&] {
      limit_files(512);
      miss_a_deadline();
      CHECK(files.count() == 0);
      limit_files(RLIM_INFINITY);
      miss_a_deadline();
      CHECK(files.count() == 1);
    });
  }

  TEST_CASE("a file that is not written does not count, and each trouble is told once") {
    const child_result r = run_child("child: the folder comes and goes");
    NOTE(r.output);
    CHECK(r.succeeded());
    const std::string none = because(std::errc::no_such_file_or_directory);
    CHECK(count_of(r.output, "; no trace is written: ") == 3);
    CHECK(count_of(r.output, ("t-1.pftrace.part cannot be written" + none).c_str()) == 1);
    CHECK(count_of(r.output, because(std::errc::file_too_large).c_str()) == 1);
    CHECK(count_of(r.output, none.c_str()) == 2);
    CHECK(count_of(r.output, "; the trace is in ") == 2);
  }

  TEST_CASE("child: the folder comes and goes" * doctest::skip()) {
    const trace_files files;
    const std::string folder = files.path("later");
    const auto files_in_it = [&] {
      const std::filesystem::directory_iterator all(folder);
      return std::distance(begin(all), end(all));
    };
    vigil::inspect::record_on(
        {.deadline_missed = true, .path = folder + "/t-", .files = 2, .spacing = 0s});
    in_recorded_run([&] {
      const auto miss_two = [] {
        miss_a_deadline();
        miss_a_deadline();
      };
      miss_two();
      std::filesystem::create_directory(folder);
      limit_files(512);
      miss_two();
      CHECK(files_in_it() == 0);
      limit_files(RLIM_INFINITY);
      miss_a_deadline();
      CHECK(files_in_it() == 1);
      std::filesystem::remove_all(folder);
      miss_two();
      std::filesystem::create_directory(folder);
      miss_two();
      CHECK(files_in_it() == 1);
    });
  }

  TEST_CASE("a signal that is given up during a run with stop_on ends the program again") {
    const child_result r = run_child("child: a signal is given up");
    NOTE(r.output);
    CHECK(r.died_by(SIGUSR1));
    CHECK(r.says("given up"));
  }

  TEST_CASE("child: a signal is given up" * doctest::skip()) {
    vigil::inspect::record_on({.signal = SIGUSR1});
    const auto give_up_in_a_run = [] {
      vigil::options o;
      o.stop_on = {SIGUSR1};
      vigil::run(o, [] { vigil::inspect::record_on({}); });
    };
    give_up_in_a_run();
    vigil::inspect::record_on({.signal = SIGUSR1});  // refuses no handler of its own
    give_up_in_a_run();
    std::puts("given up");
    std::fflush(stdout);
    std::raise(SIGUSR1);
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // ThreadSanitizer wants no threads in a child
  TEST_CASE("a child of fork() writes once it has called record_on") {
    const child_result r = run_child("child: it forks after record_on");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(count_of(r.output, "writes no trace in a child of fork()") == 1);
    CHECK(count_of(r.output, "the trace is in ") == 4);
  }
#endif

  TEST_CASE("child: it forks after record_on" * doctest::skip()) {
    const trace_files files;
    const auto record_to = [&](const char* name) {
      vigil::inspect::record_on(
          {.deadline_missed = true, .signal = SIGUSR2, .path = files.path(name), .spacing = 0s});
    };
    const auto write_two = [&](const std::string& name) {
      vigil::options o;
      o.recorder_events = 1'024;
      vigil::run(o, [&] {
        miss_a_deadline();
        files.wait_for(name + "1.pftrace");
        send_to_process(SIGUSR2);
        files.wait_for(name + "2.pftrace");
      });
    };
    record_to("parent-");
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      ::kill(::getpid(), SIGUSR2);
      in_recorded_run(&miss_a_deadline);
      const std::size_t too_early = files.count();
      record_to("child-");
      write_two("child-");
      vigil::inspect::record_on({});  // waits for the writer, which has yet to say so
      ::_exit(too_early == 0 ? 0 : 1);
    }
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
    write_two("parent-");
    CHECK(files.count() == 4);
  }

  TEST_CASE("what record_on refuses") {
    CHECK_THROWS_AS(vigil::inspect::record_on({.signal = SIGKILL}), std::invalid_argument);
    CHECK_THROWS_AS(vigil::inspect::record_on({.signal = SIGSEGV}), std::invalid_argument);
    CHECK_THROWS_AS(vigil::inspect::record_on({.signal = 1'000}), std::invalid_argument);
    const auto why_not = [] {
      return text_of<std::invalid_argument>([] { vigil::inspect::record_on({.signal = SIGUSR1}); });
    };
    std::signal(SIGUSR1, [](int) {});
    CHECK(has(why_not(), "the program handles signal " + std::to_string(SIGUSR1)));
    std::signal(SIGUSR1, SIG_IGN);
    CHECK(has(why_not(), "the program ignores signal " + std::to_string(SIGUSR1)));
    std::signal(SIGUSR1, SIG_DFL);
    in_virtual([] {
      const std::unique_ptr<std::FILE, int (*)(std::FILE*)> full(std::fopen("/dev/full", "wb"),
                                                                 &std::fclose);
      REQUIRE(full != nullptr);
      CHECK_THROWS_AS(vigil::inspect::write_trace(full.get()), std::system_error);
    });
  }
}
