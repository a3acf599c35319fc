// The frames of fibers that run, and the signal by which their threads are asked.
#include "core/machine/sanitizer.hpp"
#include "core/machine/stack.hpp"
#include "inspect/inspect_helpers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/leaks.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <pthread.h>
#include <ucontext.h>
#include <unistd.h>

using namespace vigil::testing_support;

namespace {

// A dump in which each thread has answered in time: a busy machine may need another one.
std::string answered() {
  for (;;) {
    const std::string text = inspected();
    if (!has(text, "has not answered")) return text;
  }
}

[[gnu::noinline]] void spin_until(const std::atomic<bool>& flag) {
  while (!flag.load(std::memory_order_relaxed)) {
  }
  asm volatile("" ::: "memory");
}

// Runs a fiber that calls `work` with a function that spins, and `look` on another thread
// while it spins.
template <class Work, class Look>
void while_a_fiber_spins(const char* name, Work work, Look look) {
  std::atomic<bool> stop{false};
  std::atomic<bool> spins{false};
  vigil::options two;
  two.workers = 2;
  vigil::run(two, [&] {
    auto f = vigil::spawn(vigil::fiber_options{.name = name}, [&] {
      work([&] {
        spins.store(true);
        spin_until(stop);
      });
    });
    vigil::blocking([&] {
      while (!spins.load())
        std::this_thread::yield();
      look();
    });
    stop.store(true);
    f.join();
  });
}

// With these signals blocked on its thread.
template <class F>
void deaf_to(const sigset_t& blocked, F f) {
  sigset_t before;
  ::pthread_sigmask(SIG_SETMASK, &blocked, &before);
  f();
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);  // those that were sent come now
}

template <class F>
void deaf(F f) {
  sigset_t all;
  sigfillset(&all);
  deaf_to(all, f);
}

// Runs until a thread that was asked by SIGURG answers, or until told to stop.
[[gnu::noinline]] void hear_one(const std::atomic<bool>& stop) {
  deaf([&] {
    sigset_t waiting;
    do
      ::sigpending(&waiting);
    while (::sigismember(&waiting, SIGURG) == 0 && !stop.load());
  });
}

// As a generator does that is made by makecontext().
void on_a_stack_of_its_own(const std::function<void()>& f) {
  static thread_local const std::function<void()>* body;
  constexpr std::size_t size = std::size_t{256} << 10;
  const auto room = std::make_unique<std::byte[]>(size);
  ucontext_t back;
  ucontext_t other;
  ::getcontext(&other);
  other.uc_stack.ss_sp = room.get();
  other.uc_stack.ss_size = size;
  other.uc_link = &back;
  body = &f;
  ::makecontext(
      &other, +[] { (*body)(); }, 0);
  ::swapcontext(&back, &other);
}

// In a handler on an alternate stack of the program's.
void in_a_handler(const std::function<void()>& f) {
  static const std::function<void()>* body;
  constexpr std::size_t size = std::size_t{256} << 10;
  const auto room = std::make_unique<std::byte[]>(size);
  stack_t mine = {};
  mine.ss_sp = room.get();
  mine.ss_size = size;
  stack_t before;
  REQUIRE(::sigaltstack(&mine, &before) == 0);
  struct sigaction calls = {};
  struct sigaction handler_before;
  calls.sa_handler = [](int) { (*body)(); };
  calls.sa_flags = SA_ONSTACK;
  ::sigaction(SIGUSR1, &calls, &handler_before);
  body = &f;
  ::raise(SIGUSR1);
  ::sigaction(SIGUSR1, &handler_before, nullptr);
  ::sigaltstack(&before, nullptr);
}

// A plain call of read(2), which waits in the kernel for a byte.
class waiting_read {
 public:
  waiting_read() { REQUIRE(::pipe(ends_) == 0); }

  ~waiting_read() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  waiting_read(const waiting_read&) = delete;
  waiting_read& operator=(const waiting_read&) = delete;

  void operator()() {
    thread_.store(::gettid());
    result_ = ::read(ends_[0], &byte_, 1);
    has_ended_.store(true);
  }

  // Until the thread sleeps, which it does in its call alone, or the call has ended.
  void wait_until_it_waits() const {
    while (!has_ended_.load()) {
      std::ifstream stat("/proc/self/task/" + std::to_string(thread_.load()) + "/stat");
      std::string line;
      if (std::getline(stat, line) && has(line, ") S ")) return;
      std::this_thread::yield();
    }
  }

  void give_byte() const { REQUIRE(::write(ends_[1], "b", 1) == 1); }

  // Caller: the call has ended.
  void check() const {
    CHECK(result_ == 1);
    CHECK(byte_ == 'b');
  }

 private:
  int ends_[2] = {-1, -1};
  std::atomic<int> thread_{0};
  std::atomic<bool> has_ended_{false};
  ssize_t result_ = 0;
  char byte_ = 0;
};

// Goes down to less than 1 KiB above the end of the stack: too little for the frame that
// the kernel makes for a handler.
[[gnu::noinline]] void fill_stack(const std::byte* bottom, const std::function<void()>& at_end) {
  const auto* const here = static_cast<const std::byte*>(__builtin_frame_address(0));
  if (here - bottom < 1024) {
    at_end();
  } else {
    fill_stack(bottom, at_end);
  }
  asm volatile("" ::: "memory");  // no tail call
}

}  // namespace

// ThreadSanitizer delivers signals late, so nobody is asked under it.
TEST_SUITE("running frames") {
  TEST_CASE("a running fiber is asked where it is" * doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::string text;
    while_a_fiber_spins(
        "spinner", [](auto spin) { down(5, spin); }, [&] { text = answered(); });
    NOTE(text);
    const auto functions = functions_below(text, "spinner");
    const auto count = [&](const char* name) {
      return std::count_if(
          functions.begin(), functions.end(), [&](const std::string& f) { return has(f, name); });
    };
    CHECK(count("::spin_until(") == 1);
    CHECK(count("::down(int") == 6);
    REQUIRE(!functions.empty());
    const std::string rest = text.substr(text.find("(spinner) ["));
    CHECK_FALSE(has(rest.substr(0, rest.find("\nfiber ")), "more frames above"));
  }

  TEST_CASE("a fiber that runs on a stack of the program's own says so" *
            doctest::skip(VIGIL_TSAN || VIGIL_ASAN)) {
    vigil::inspect::install();
    std::string text;
    std::string json;
    while_a_fiber_spins(
        "generator",
        [](auto spin) { on_a_stack_of_its_own(spin); },
        [&] {
          text = answered();
          do {
            json =
                written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = true}); });
          } while (has(json, "has not answered"));
        });
    NOTE(text);
    NOTE(json);
    CHECK(has(fiber_line(text, "generator"), "(generator) [running"));
    CHECK(has(text, "    (runs on another stack)\n"));
    CHECK_FALSE(has(text, "has moved on"));
    CHECK(has(json, R"("name":"generator","state":"running")"));
    CHECK(has(json, R"({"result":"runs on another stack","frames":[])"));
    CHECK_FALSE(has(json, "has moved on"));
  }

  TEST_CASE("a running fiber whose thread is in a handler on another stack says so" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::string text;
    while_a_fiber_spins(
        "handler", [](auto spin) { in_a_handler(spin); }, [&] { text = answered(); });
    NOTE(text);
    CHECK(has(fiber_line(text, "handler"), "(handler) [running"));
    CHECK(has(text, "    (runs on another stack)\n"));
  }

  TEST_CASE("a running fiber whose thread blocks the signal is given up" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::string text;
    while_a_fiber_spins(
        "deaf", [](auto spin) { deaf(spin); }, [&] { text = inspected(); });
    CHECK(has(text, "(the thread that runs it has not answered)"));
  }

  TEST_CASE("the dump is called on a fiber: the fiber itself is one that runs") {
    vigil::inspect::install();
    in_virtual([] {
      std::string text;
      down(4, [&] { text = answered(); });
      NOTE(text);
      CHECK(has(fiber_line(text, "main"), "[running"));
      // Main waits in a system call. AddressSanitizer's frames are on frame pointers, and
      // so large that they keep those of earlier calls.
      const bool can_be_followed =
          VIGIL_ASAN == 0 || !has(text, "cannot be followed out of a system call");
      if (VIGIL_TSAN == 0 && can_be_followed) CHECK(count_of(text, "::down(int") == 5);
    });
  }

  TEST_CASE("a fiber that waits for a function on a side pool shows that function's frames" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::atomic<bool> stop{false};
    std::atomic<int> thread{0};
    vigil::run([&] {
      const auto runs = vigil::spawn(vigil::fiber_options{.name = "runs"}, [&] {
        vigil::blocking([&] {
          down(3, [&] {
            thread.store(::gettid());
            spin_until(stop);
          });
        });
      });
      while (thread.load() == 0)
        vigil::sleep_for(std::chrono::milliseconds(1));
      // The function may run before its caller has parked.
      std::string text;
      do {
        text = answered();
      } while (!has(fiber_line(text, "runs"), "[parked"));
      std::string json;
      do {
        json = written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = true}); });
      } while (has(json, "has not answered"));
      stop.store(true);
      NOTE(text);
      CHECK(has(
          fiber_line(text, "runs"),
          "blocking: a function on a side pool (on thread " + std::to_string(thread.load()) + ")"));
      const auto functions = functions_below(text, "runs");
      const auto at = [&](const char* name) {
        return std::find_if(functions.begin(),
                            functions.end(),
                            [&](const std::string& f) { return has(f, name); }) -
               functions.begin();
      };
      CHECK(count_of(text, "::down(int") == 4);
      // The function from the innermost frame to the thread's first; then the fiber.
      CHECK(at("::spin_until(") < at("::down(int"));
      CHECK(has(json, "side_pool::body"));
      CHECK(has(json, "run_blocking"));
      CHECK(has(text, "    (above: the function on a side pool; below: the fiber"));
      CHECK(has(json, "\"called\":{\"result\":\"whole\""));
    });
  }

  TEST_CASE("functions on a side pool that have not begun, or have returned, have no frames") {
    vigil::inspect::install();
    std::atomic<bool> stop{false};
    std::atomic<int> begun{0};
    vigil::testing::run_virtual([&] {
      vigil::blocking_pool one({.threads = 1, .name = "one"});
      const auto call = [&](const char* name, auto f) {
        return vigil::spawn(vigil::fiber_options{.name = name},
                            [&one, f] { vigil::blocking(one, f); });
      };
      const auto wait_until_begun = [&](int n) {
        while (begun.load() != n)
          vigil::this_fiber::yield();
      };
      // On virtual time a caller goes on only when all functions have returned.
      const auto first = call("first", [&] { begun.store(1); });
      wait_until_begun(1);
      const auto second = call("second", [&] {
        begun.store(2);
        spin_until(stop);
      });
      wait_until_begun(2);
      const auto third = call("third", [] {});
      std::string text;
      do {
        vigil::this_fiber::yield();
        text = VIGIL_TSAN == 0 ? answered() : inspected();
      } while (!has(fiber_line(text, "third"), "parked"));
      stop.store(true);
      NOTE(text);
      CHECK(has(fiber_line(text, "first"), "on a side pool (has returned)"));
      CHECK(has(fiber_line(text, "second"), "on a side pool (on thread "));
      CHECK(has(fiber_line(text, "third"), "on a side pool (not begun)"));
      if (VIGIL_TSAN == 0) CHECK(count_of(text, "::spin_until(") == 1);
    });
  }

  TEST_CASE("a fiber that goes on once it was asked is shown as it was in that moment" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::atomic<bool> stop{false};
    std::string text;
    std::string json;
    vigil::options two;
    two.workers = 2;
    vigil::run(two, [&] {
      auto f = vigil::spawn(vigil::fiber_options{.name = "leaves"}, [&] {
        while (!stop.load()) {
          hear_one(stop);
          vigil::sleep_for(std::chrono::microseconds(50));
        }
      });
      vigil::blocking([&] {
        for (int i = 0; i < 1000 && !has(text, "(leaves) [running when it was read"); ++i)
          text = inspected();
        for (int i = 0; i < 1000 && !has(json, R"("state":"running when it was read")"); ++i)
          json = written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = true}); });
      });
      stop.store(true);
      f.join();
    });
    NOTE(text);
    CHECK(has(fiber_line(text, "leaves"), "(leaves) [running when it was read"));
    CHECK(has(text, "::hear_one("));
    CHECK(has(json, R"("state":"running when it was read")"));
    CHECK(has(json, R"("may_have_ended_calls":)"));
  }

  TEST_CASE("a function on a side pool that returns once it was asked has its frames" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    std::atomic<bool> stop{false};
    std::string text;
    vigil::run([&] {
      auto f = vigil::spawn(vigil::fiber_options{.name = "calls"}, [&] {
        while (!stop.load())
          vigil::blocking([&] { hear_one(stop); });
      });
      vigil::blocking([&] {
        for (int i = 0; i < 1000 && !has(text, "(calls) [parked when it was read"); ++i)
          text = inspected();
      });
      stop.store(true);
      f.join();
    });
    NOTE(text);
    CHECK(has(fiber_line(text, "calls"),
              "(calls) [parked when it was read: blocking: a function on a side pool (on thread "));
    CHECK(has(text, "::hear_one("));
  }

  TEST_CASE("threads that are asked in read(2) get their bytes, and no EINTR" *
            doctest::skip(VIGIL_TSAN)) {
    vigil::inspect::install();
    waiting_read by_fiber;
    waiting_read by_function;
    waiting_read by_thread;
    vigil::options two;
    two.workers = 2;
    vigil::run(two, [&] {
      auto fiber = vigil::spawn([&] { by_fiber(); });
      auto caller = vigil::spawn([&] { vigil::blocking([&] { by_function(); }); });
      std::thread plain([&] { by_thread(); });
      vigil::blocking([&] {
        for (int i = 0; i < 5; ++i) {
          for (const waiting_read* r : {&by_fiber, &by_function, &by_thread})
            r->wait_until_it_waits();
          inspected();                          // asks the first two
          vigil::inspect::find_stuck_fibers();  // interrupts all
        }
        for (const waiting_read* r : {&by_fiber, &by_function, &by_thread})
          r->give_byte();
      });
      fiber.join();
      caller.join();
      plain.join();
    });
    by_fiber.check();
    by_function.check();
    by_thread.check();
  }

  TEST_CASE("child: a fiber that runs at the end of its stack" * doctest::skip()) {
    vigil::inspect::install();
    std::string text;
    while_a_fiber_spins(
        "deep",
        [](auto spin) {
          vigil::detail::stack_place place;
          REQUIRE(vigil::detail::find_stack(__builtin_frame_address(0), place));
          fill_stack(place.where.bottom, spin);
        },
        [&] {
          for (int i = 0; i < 3; ++i)
            text = answered();
        });
    NOTE(text);
    CHECK(has(text, "::fill_stack("));
  }

  TEST_CASE("a running fiber is asked on the alternate stack, however full its own is" *
            doctest::skip(VIGIL_TSAN)) {
    const child_result r = run_child("child: a fiber that runs at the end of its stack");
    NOTE(r.output);
    CHECK(r.succeeded());
  }

  TEST_CASE("the signal that install() was given is the one that asks" *
            doctest::skip(VIGIL_TSAN)) {
    for (const int signal : {SIGURG, SIGWINCH, SIGUSR1, SIGUSR2, SIGRTMIN + 3}) {
      NOTE("signal: ", signal);
      vigil::inspect::install({.running_signal = signal, .addresses = false});
      sigset_t all_others;
      sigfillset(&all_others);
      sigdelset(&all_others, signal);
      std::string text;
      while_a_fiber_spins(
          "hears", [&](auto spin) { deaf_to(all_others, spin); }, [&] { text = answered(); });
      CHECK(has(text, "::spin_until("));
      sigset_t it_alone;
      sigemptyset(&it_alone);
      sigaddset(&it_alone, signal);
      while_a_fiber_spins(
          "deaf", [&](auto spin) { deaf_to(it_alone, spin); }, [&] { text = inspected(); });
      CHECK(has(text, "(the thread that runs it has not answered)"));
    }
    vigil::inspect::install();
  }

  TEST_CASE("a handler that the program has for the signal is still called for its own") {
    static std::atomic<int> heard{0};
    std::signal(SIGUSR2, [](int) { heard.fetch_add(1); });
    vigil::inspect::install({.running_signal = SIGUSR2, .addresses = false});
    std::raise(SIGUSR2);
    CHECK(heard.load() == 1);
    in_virtual([] { inspected(); });
    CHECK(heard.load() == 1);
    std::raise(SIGUSR2);
    CHECK(heard.load() == 2);
    vigil::inspect::install();
  }

  TEST_CASE("a signal of ours that comes late does not reach the program's handler" *
            doctest::skip(VIGIL_TSAN)) {
    static std::atomic<int> heard{0};
    std::signal(SIGUSR1, [](int) { heard.fetch_add(1); });
    vigil::inspect::install({.running_signal = SIGUSR1, .addresses = false});
    while_a_fiber_spins(
        "deaf", [](auto spin) { deaf(spin); }, [] { inspected(); });
    CHECK(heard.load() == 0);
    vigil::inspect::install();
  }

  TEST_CASE("install() refuses what is no signal, and what has a meaning of its own") {
    for (const int wrong : {-1, 1000, SIGKILL, SIGSTOP, SIGSEGV, SIGQUIT, SIGTERM, SIGCHLD}) {
      NOTE("wrong: ", wrong);
      CHECK_THROWS_AS(vigil::inspect::install({.running_signal = wrong, .addresses = false}),
                      std::invalid_argument);
    }
    vigil::inspect::install({.running_signal = 0, .addresses = false});
    std::string text;
    while_a_fiber_spins(
        "spinner", [](auto spin) { spin(); }, [&] { text = inspected(); });
    CHECK(has(text, "(runs: it is not asked)"));
    vigil::inspect::install();
  }
}
