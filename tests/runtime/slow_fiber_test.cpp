// options::slow_fiber names the fiber that keeps a worker, once.
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"
#include "support/text_of.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

vigil::options watched() {
  vigil::options o;
  o.workers = 2;
  o.slow_fiber = 10ms;
  return o;
}

// Scans what this process writes to its standard error, and passes it on.
class error_output {
 public:
  error_output() : kept_(::dup(2)) {
    if (kept_ < 0 || ::pipe(ends_) != 0 || ::dup2(ends_[1], 2) < 0) std::abort();
  }

  // Returns once the text has been written; from then on nothing is passed on.
  void wait_for(const char* text) {
    while (seen_.find(text) == std::string::npos)
      if (!pass_on()) std::abort();
    ::dup2(kept_, 2);
    ::close(ends_[1]);
    while (pass_on()) {
    }
  }

 private:
  bool pass_on() {
    char some[256];
    const ssize_t n = ::read(ends_[0], some, sizeof some);
    if (n <= 0) return false;
    seen_.append(some, static_cast<std::size_t>(n));
    return ::write(kept_, some, static_cast<std::size_t>(n)) == n;
  }

  int kept_;
  int ends_[2];
  std::string seen_;
};

}  // namespace

TEST_SUITE("slow_fiber") {
  // All of these use real time: slow_fiber is about how long a system thread is kept. The
  // pauses block on purpose, for longer than the limit; one that lasts longer still is
  // named too.
  TEST_CASE("child: blocks its thread in four ways" * doctest::skip()) {
    vigil::run(watched(), [] {
      auto sleeps = vigil::spawn({.name = "sleeps"}, [] {
        for (int i = 0; i < 3; ++i) {
          std::this_thread::sleep_for(30ms);  // blocks on purpose, beyond the limit
          vigil::this_fiber::yield();
          vigil::sleep_for(1us);
        }
      });
      sleeps.join();
      int ends[2];
      if (::pipe(ends) != 0) return;
      std::atomic<bool> reading{false};
      std::thread writer([&] {
        reading.wait(false);
        std::this_thread::sleep_for(30ms);  // keeps the reader blocked, on purpose
        if (::write(ends[1], "x", 1) != 1) std::abort();
      });
      auto reads = vigil::spawn({.name = "reads"}, [&] {
        reading = true;
        reading.notify_one();
        char c = 0;
        if (::read(ends[0], &c, 1) != 1) std::abort();
      });
      reads.join();
      writer.join();
      std::mutex m;
      std::atomic<bool> held{false};
      std::atomic<bool> locking{false};
      std::thread holder([&] {
        const std::lock_guard guard(m);
        held = true;
        locking.wait(false);
        std::this_thread::sleep_for(30ms);
      });
      while (!held)
        vigil::sleep_for(100us);
      auto locks = vigil::spawn({.name = "locks"}, [&] {
        locking = true;
        locking.notify_one();
        const std::lock_guard guard(m);
      });
      locks.join();
      holder.join();
      auto t = vigil::every(1ms, [] { std::this_thread::sleep_for(20ms); });
      vigil::sleep_for(100ms);
      t.stop_and_wait();
    });
  }

  TEST_CASE("names a fiber that sleeps, reads or locks on its thread, and a callback, once each") {
    const child_result child = run_child("child: blocks its thread in four ways");
    CHECK(child.succeeded());
    for (const char* name : {"(sleeps)", "(reads)", "(locks)"}) {
      NOTE(std::string(name));
      CHECK(count_of(child.output, name) == 1);
    }
    // The runner of callbacks, which vigil has started, may be named too.
    CHECK(count_of(child.output, "(callbacks)") -
              count_of(child.output, "(callbacks), started at vigil,") ==
          1);
    CHECK(child.says("slow_fiber_test.cpp:"));
    CHECK(child.says("options::slow_fiber is 10.000 ms"));
  }

  TEST_CASE("child: never comes back" * doctest::skip()) {
    vigil::options o = watched();
    o.workers = 1;
    o.stop_limit = 0s;
    std::atomic<bool> begun{false};
    std::atomic<bool> stuck{true};
    error_output said;
    std::thread rescue([&] {
      begun.wait(false);
      said.wait_for("and still does");
      stuck = false;
    });
    vigil::run(o, [&] {
      begun = true;
      begun.notify_one();
      while (stuck) {
      }
    });
    rescue.join();
  }

  TEST_CASE("names a fiber that does not come back while it is still busy, once") {
    const child_result child = run_child("child: never comes back");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, "(main)") == 1);
    CHECK(child.says("and still does"));
  }

  TEST_CASE("child: waits and yields" * doctest::skip()) {
    vigil::testing::virtual_options how;
    how.runtime.slow_fiber = 1s;  // longer than this process may be kept off its processor
    vigil::testing::run_virtual(how, [] {
      vigil::sleep_for(1h);
      // Blocks on purpose, longer than slow_fiber: a function on the side pool does not
      // count.
      vigil::blocking([] { std::this_thread::sleep_for(1500ms); });
      const auto until = std::chrono::steady_clock::now() + 1500ms;
      while (std::chrono::steady_clock::now() < until)
        vigil::this_fiber::yield();
      std::puts("quiet");
    });
  }

  TEST_CASE("a fiber that waits, calls blocking, or yields is not named") {
    const child_result child = run_child("child: waits and yields");
    CHECK(child.succeeded());
    CHECK(child.says("quiet"));
    CHECK_FALSE(child.says("slow_fiber"));
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // sanitizers have threads of their own
  TEST_CASE("its thread does not hide a deadlock, and is gone after the run") {
    const child_result child = run_child("child: deadlock beside the watch");
    CHECK(child.says("thrown"));
  }
#endif

  TEST_CASE("child: deadlock beside the watch" * doctest::skip()) {
    try {
      vigil::run(watched(), [] { vigil::make_channel<int>().recv(); });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
  }
}
