// options::stuck_limit: it is said once that no worker gets on although somebody
// waits for one, and since when a fiber has run stands in the dump.
#include "base/clock_source.hpp"
#include "sched/report/stuck_watch.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::nanos;
using vigil::detail::run_bounds;
using vigil::detail::stuck_count;
using vigil::detail::stuck_rest;

namespace {

constexpr nanos second = 1'000'000'000;
constexpr const char* report = "no worker has switched to another fiber for ";

// Short enough for a test, and no statement about a healthy program.
vigil::options watched(std::size_t workers, std::chrono::nanoseconds limit = 40ms) {
  vigil::options o;
  o.workers = workers;
  o.stuck_limit = limit;
  return o;
}

std::size_t count_of(const std::string& text, const char* part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++n;
  return n;
}

// Passes on what this process writes to its standard error, up to the text and a
// whole line after it; then calls f.
template <class F>
class after_report {
 public:
  after_report(std::string text, F f) : text_(std::move(text)), f_(std::move(f)) {
    if (kept_ < 0 || ::pipe(ends_) != 0 || ::dup2(ends_[1], 2) < 0) std::abort();
    reader_ = std::thread([this] { read(); });
  }

  ~after_report() {
    ::dup2(kept_, 2);
    ::close(ends_[1]);
    reader_.join();
  }

 private:
  void read() {
    std::string seen;
    bool called = false;
    char some[256];
    for (ssize_t n; (n = ::read(ends_[0], some, sizeof some)) > 0;) {
      if (::write(kept_, some, static_cast<std::size_t>(n)) != n) std::abort();
      seen.append(some, static_cast<std::size_t>(n));
      const auto at = seen.find(text_);
      if (called || at == std::string::npos) continue;
      if (seen.find('\n', at) == std::string::npos) continue;
      called = true;
      f_();
    }
  }

  const std::string text_;
  F f_;
  int kept_ = ::dup(2);
  int ends_[2] = {-1, -1};
  std::thread reader_;
};

[[noreturn]] void leave() {
  std::fflush(nullptr);
  ::_exit(0);
}

std::size_t threads() {
  std::size_t n = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  while (const dirent* const entry = ::readdir(tasks))
    if (entry->d_name[0] != '.') ++n;
  ::closedir(tasks);
  return n;
}

std::string dumped() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const f = ::open_memstream(&text, &size);
  vigil::debug::dump(f);
  std::fclose(f);
  std::string result(text, size);
  std::free(text);
  return result;
}

}  // namespace

TEST_SUITE("stuck") {
  // --- the count, on a clock of its own: a limit of 10 s, looks each half second

  TEST_CASE("the count is complete when somebody has waited the limit through and none switched") {
    stuck_count c(10 * second, second / 2);
    nanos now = 1000 * second;
    for (int i = 0; i < 20; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, 7, true));
    CHECK(c.look(now, 7, true));
    // Once.
    for (int i = 0; i < 100; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, 7, true));
  }

  TEST_CASE("a switch, or a moment in which nobody waits, begins the count anew") {
    stuck_count c(10 * second, second / 2);
    nanos now = 1000 * second;
    std::uint64_t switches = 0;
    for (int round = 0; round < 20; ++round) {
      ++switches;
      for (int i = 0; i < 20; ++i, now += second / 2)
        REQUIRE_FALSE(c.look(now, switches, true));
    }
    for (int i = 0; i < 200; ++i, now += second / 2)
      REQUIRE_FALSE(c.look(now, switches, i % 20 != 0));
  }

  TEST_CASE("a process that stood still for an hour, or for a second at each step, is not stuck") {
    stuck_count c(10 * second, second / 2);
    nanos now = 1000 * second;
    for (int i = 0; i < 19; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, 7, true));
    now += 3600 * second;
    // From here on the whole limit has to pass again.
    for (int i = 0; i < 20; ++i, now += second / 2)
      CHECK_FALSE(c.look(now, 7, true));
    CHECK(c.look(now, 7, true));
    stuck_count steps(10 * second, second / 2);
    for (int i = 0; i < 1000; ++i, now += second + 1)
      REQUIRE_FALSE(steps.look(now, 7, true));
  }

  TEST_CASE("whoever looks goes after some ticks of rest, and stays while somebody waits") {
    stuck_rest rest;
    std::uint64_t switches = 1;
    for (int lap = 0; lap < 3; ++lap) {
      CHECK(!rest.look(++switches, true, false));  // it has woken since the last look
      for (int i = 1; i < stuck_rest::ticks_kept; ++i)
        CHECK(!rest.look(switches, true, false));
    }
    // All sleep, in handlers: a fiber waits for one of them, or a worker is awake.
    for (int i = 0; i < 2 * stuck_rest::ticks_kept; ++i) {
      CHECK(!rest.look(switches, true, true));
      CHECK(!rest.look(switches, false, false));
    }
    for (int i = 1; i < stuck_rest::ticks_kept; ++i)
      CHECK(!rest.look(switches, true, false));
    CHECK(rest.look(switches, true, false));
  }

  TEST_CASE("since when a worker has run a fiber lies between two looks at its count") {
    run_bounds b;
    run_bounds::span ran;
    b.begin(5, 100 * second);
    REQUIRE(b.look(5, 103 * second, ran));  // still what it was doing at the beginning
    CHECK(ran.at_least == 3 * second);
    REQUIRE(b.look(9, 104 * second, ran));
    CHECK(ran.at_least == 0);
    CHECK(ran.at_most == second);
    REQUIRE(b.look(9, 110 * second, ran));
    CHECK(ran.at_least == 6 * second);
    CHECK(ran.at_most == 7 * second);
  }

  // --- who waits

  TEST_CASE("a timer that was stopped is not due, one that is pending is, wherever it stands") {
    in_runtime({.workers = {1}}, [](vigil::runtime& rt) {
      auto& sched = vigil::detail::runtime_access::core_of(rt).sched;
      CHECK_FALSE(sched.work.waits_for_a_worker());
      std::vector<vigil::timer> stopped;
      for (int i = 0; i < 1000; ++i)  // some in the heap, some in the intake
        stopped.push_back(vigil::after_func(1us, [] {}));
      for (auto& t : stopped)
        t.stop();
      const nanos later = vigil::detail::monotonic_now() + 3600 * second;
      CHECK_FALSE(sched.timers().anything_due(later));
      CHECK_FALSE(sched.work.waits_for_a_worker());
      for (int i = 0; i < 600; ++i)
        stopped[static_cast<std::size_t>(i)].reset(2h);
      CHECK_FALSE(sched.timers().anything_due(later));
      for (const std::size_t which : {999u, 0u, 500u}) {
        stopped[which].reset(30min);
        CHECK(sched.timers().anything_due(later));
        for (int i = 0; i < 300; ++i)  // pushes it out of the intake
          vigil::after_func(3h, [] {}).stop();
        CHECK(sched.timers().anything_due(later));
        stopped[which].stop();
        CHECK_FALSE(sched.timers().anything_due(later));
      }
      CHECK_FALSE(sched.work.waits_for_a_worker());
      for (auto& t : stopped)
        t.stop();
    });
  }

  TEST_CASE("a fiber that is ready waits, one that runs does not") {
    in_runtime({.workers = {1}}, [](vigil::runtime& rt) {
      auto& sched = vigil::detail::runtime_access::core_of(rt).sched;
      CHECK_FALSE(sched.work.waits_for_a_worker());
      auto f = vigil::spawn([&] { CHECK_FALSE(sched.work.waits_for_a_worker()); });
      CHECK(sched.work.waits_for_a_worker());
      f.join();
      auto t = vigil::after_func(1ns, [] {});
      const auto from = vigil::clock::now();
      while (since(from) < 1us) {
      }
      CHECK(sched.work.waits_for_a_worker());
      while (vigil::stats().timers_fired == 0)
        vigil::sleep_for(1us);
    });
  }

  // --- whole programs that are stuck; each ends when the report has come

  TEST_CASE("child: a static whose initialiser waits" * doctest::skip()) {
    const after_report here("(second)", [] { leave(); });
    vigil::run(watched(1), [] {
      const auto use = [] {
        static const int value = [] {
          vigil::sleep_for(1ms);
          return 1;
        }();
        return value;
      };
      auto first = vigil::spawn({.name = "first"}, use);
      auto second_one = vigil::spawn({.name = "second"}, use);
      first.join();
      second_one.join();
    });
  }

  TEST_CASE("a static whose initialiser waits hangs the worker: said, with the fiber that runs") {
    const child_result child = run_child("child: a static whose initialiser waits");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, report) == 1);
    CHECK(child.says("(second) [running, for "));
    CHECK(child.says("stuck_test.cpp:"));
    CHECK_FALSE(child.says("(first)"));
    CHECK_FALSE(child.says("(main)"));
  }

  TEST_CASE("child: call_once on two workers" * doctest::skip()) {
    const after_report here("(third)", [] { leave(); });
    vigil::run(watched(2), [] {
      static std::once_flag once;
      static std::atomic<int> others{0};
      static std::atomic<bool> waits{false};
      auto first = vigil::spawn({.name = "first"}, [] {
        std::call_once(once, [] {
          waits = true;
          static_cast<void>(vigil::make_channel<int>().recv_for(1ms));
          while (others < 2)
            vigil::sleep_for(1ms);
        });
      });
      while (!waits)
        vigil::sleep_for(1ms);
      const auto use = [] {
        ++others;
        std::call_once(once, [] {});
      };
      auto second_one = vigil::spawn({.name = "second"}, use);
      auto third = vigil::spawn({.name = "third"}, use);
      first.join();
      second_one.join();
      third.join();
    });
  }

  TEST_CASE("std::call_once across a wait hangs both workers: said, with both fibers") {
    const child_result child = run_child("child: call_once on two workers");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, report) == 1);
    CHECK(child.says("(second) [running, for "));
    CHECK(child.says("(third) [running, for "));
    CHECK_FALSE(child.says("(first)"));
  }

  TEST_CASE("child: computes while main is ready" * doctest::skip()) {
    std::atomic<bool> stuck{true};
    const after_report here("(cruncher)", [&] { stuck = false; });
    vigil::run(watched(1, 20ms), [&] {
      // Twice: it is said once in a run.
      for (int i = 0; i < 2; ++i) {
        auto f = vigil::spawn({.name = "cruncher"}, [&, i] {
          const auto from = std::chrono::steady_clock::now();
          while (i == 0 ? stuck.load() : std::chrono::steady_clock::now() - from < 100ms) {
          }
        });
        vigil::sleep_for(1ms);
        f.join();
      }
    });
    std::puts("over");
  }

  TEST_CASE("a fiber that computes while a timer is due is named, once in a run") {
    const child_result child = run_child("child: computes while main is ready");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, report) == 1);
    CHECK(count_of(child.output, "(cruncher) [running, for ") == 1);
    CHECK(child.says("over"));
  }

  TEST_CASE("child: stuck after all have slept" * doctest::skip()) {
    std::atomic<bool> stuck{true};
    const after_report here("(late)", [&] { stuck = false; });
    vigil::runtime rt(watched(2, 20ms));
    std::atomic<bool> is_up{false};
    auto over = vigil::make_channel<int>();
    std::thread outside([&] {
      while (!is_up)
        std::this_thread::yield();
      while (threads() != 4)  // this one, the two workers and the reader
        std::this_thread::sleep_for(1ms);
      for (int i = 0; i < 3; ++i) {  // the third one waits for a worker
        rt.go([&] {
          vigil::this_fiber::set_name("late");
          while (stuck) {
          }
        });
      }
      while (stuck)
        std::this_thread::sleep_for(1ms);
      over.send(1);
    });
    const auto guard = rt.make_work_guard();
    rt.run([&] {
      is_up = true;
      over.recv();
    });
    outside.join();
  }

  // --- programs that are not stuck

  TEST_CASE("child: one computes and the others go on" * doctest::skip()) {
    vigil::run(watched(2, 2s), [] {
      std::atomic<bool> on{true};
      auto busy = vigil::spawn([&] {
        while (on) {
        }
      });
      // Not the main fiber, which is pinned.
      auto other = vigil::spawn([&] {
        const auto from = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - from < 2500ms)
          vigil::sleep_for(1ms);
        on = false;
      });
      busy.join();
      other.join();
    });
    std::puts("over");
  }

  TEST_CASE("with one worker that computes and another that goes on nothing is said") {
    const child_result child = run_child("child: one computes and the others go on");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(report));
  }

  TEST_CASE("child: nobody waits for the one that computes" * doctest::skip()) {
    // No fiber is ready, no timer is due but one that was stopped: however long.
    vigil::run(watched(1, 1ms), [] {
      auto t = vigil::after_func(1ms, [] {});
      t.stop();
      const auto later = vigil::after_func(1h, [] {});
      const auto from = std::chrono::steady_clock::now();
      while (std::chrono::steady_clock::now() - from < 200ms) {
      }
    });
    vigil::run(watched(1, 1ms),
               [] { vigil::blocking([] { std::this_thread::sleep_for(100ms); }); });
    std::puts("over");
  }

  TEST_CASE("a computation that nobody waits for is not stuck, nor is a function in blocking") {
    const child_result child = run_child("child: nobody waits for the one that computes");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(report));
  }

  TEST_CASE("child: stuck with the option off" * doctest::skip()) {
    for (const auto limit : {0ns, -1ns}) {
      vigil::run(watched(1, limit), [] {
        CHECK(threads() == 1);
        auto ready = vigil::spawn([] {});
        const auto from = std::chrono::steady_clock::now();
        while (std::chrono::steady_clock::now() - from < 50ms) {
        }
        ready.join();
      });
    }
    // Virtual time has no thread either.
    vigil::testing::virtual_options how;
    how.runtime.stuck_limit = 1ms;
    vigil::testing::run_virtual(how, [] { CHECK(threads() == 1); });
    std::puts("over");
  }

  TEST_CASE("zero or less turns it off: there is no thread, and nothing is said") {
    const child_result child = run_child("child: stuck with the option off");
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(report));
#ifndef VIGIL_TEST_UNDER_SANITIZER  // which has threads of its own
    CHECK(child.succeeded());
#endif
  }

  TEST_CASE("child: stopped and continued" * doctest::skip()) {
    // The helper lets the process stand still for longer than the limit.
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t self = ::getpid();
    const pid_t helper = ::fork();
    if (helper == 0) {
      char c = 0;
      if (::read(ends[0], &c, 1) != 1) ::_exit(1);
      for (char state = 0; state != 'T';) {
        std::ifstream stat("/proc/" + std::to_string(self) + "/stat");
        std::string line;
        std::getline(stat, line);
        state = line[line.rfind(')') + 2];
      }
      std::this_thread::sleep_for(2500ms);
      ::kill(self, SIGCONT);
      ::_exit(0);
    }
    vigil::run(watched(1, 2s), [&] {
      auto ready = vigil::spawn([] {});
      if (::write(ends[1], "x", 1) != 1) std::abort();
      ::raise(SIGSTOP);
      ready.join();
    });
    int status = 0;
    ::waitpid(helper, &status, 0);
    if (status == 0) std::puts("over");
  }

  TEST_CASE("a process that stood still by SIGSTOP for longer than the limit is not stuck") {
    const child_result child = run_child("child: stopped and continued");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    CHECK_FALSE(child.says(report));
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // which has threads of its own
  TEST_CASE("child: the thread of an idle program" * doctest::skip()) {
    vigil::runtime rt(watched(2, 8ms));
    auto come = vigil::make_channel<int>();
    auto gone = vigil::make_channel<int>();
    std::thread outside([&] {
      for (int i = 0; i < 3; ++i) {
        // This one and the two workers are left, for good: nobody is awake.
        while (threads() != 3)
          std::this_thread::sleep_for(1ms);
        come.send(i);
        if (gone.recv() != 4) std::abort();  // and the one that looks again
      }
    });
    const auto guard = rt.make_work_guard();
    rt.run([&] {
      for (int i = 0; i < 3; ++i) {
        CHECK(come.recv() == i);
        gone.send(static_cast<int>(threads()));
      }
    });
    outside.join();
    std::puts("over");
  }

  TEST_CASE("an idle program has no thread but its workers; who wakes brings it back") {
    const child_result child = run_child("child: the thread of an idle program");
    CHECK(child.succeeded());
    CHECK(child.says("over"));
    const child_result stuck = run_child("child: stuck after all have slept");
    CHECK(stuck.succeeded());
    CHECK(count_of(stuck.output, report) == 1);
    CHECK(stuck.says("(late) [running, for "));
  }

  TEST_CASE("child: deadlock in a program that was idle" * doctest::skip()) {
    vigil::runtime rt(watched(2, 8ms));
    auto come = vigil::make_channel<int>();
    std::optional<vigil::work_guard> guard(rt.make_work_guard());
    std::thread outside([&] {
      while (threads() != 3)
        std::this_thread::sleep_for(1ms);
      come.send(1);
    });
    try {
      rt.run([&] {
        come.recv();
        outside.join();
        guard.reset();
        come.recv();
      });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
  }

  TEST_CASE("its thread does not hide a deadlock, also after it has come and gone") {
    const child_result child = run_child("child: deadlock in a program that was idle");
    CHECK(child.succeeded());
    CHECK(child.says("thrown"));
  }
#endif

  // --- the dump

  TEST_CASE("the dump says for how long a fiber has run, by two looks, with the option off") {
    for (const auto limit : {0ns, std::chrono::nanoseconds(10s)}) {
      vigil::run(watched(2, limit), [] {
        std::atomic<bool> on{true};
        std::atomic<bool> begun{false};
        auto f = vigil::spawn({.name = "busy"}, [&] {
          begun = true;
          while (on) {
          }
        });
        // Not the main fiber, which is pinned.
        auto looker = vigil::spawn([&] {
          while (!begun)
            vigil::sleep_for(100us);
          const auto of_busy = [](const std::string& text) {
            const auto at = text.find("(busy)");
            return text.substr(at, text.find('\n', at) - at);
          };
          CHECK(of_busy(dumped()).find("[running, for ") != std::string::npos);
          std::this_thread::sleep_for(30ms);
          const std::string second_look = of_busy(dumped());
          CHECK_MESSAGE(second_look.find(" to ") != std::string::npos, second_look);
          double at_least = 0;
          std::sscanf(second_look.c_str(), "(busy) [running, for %lf to", &at_least);
          CHECK(at_least >= 0.029);
          on = false;
        });
        f.join();
        looker.join();
      });
    }
  }
}
