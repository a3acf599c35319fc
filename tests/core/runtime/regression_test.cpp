// Faults that reviews of the protocols found, each written as the behaviour that must
// hold.
#include "core/machine/jump.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/runtime/runtime_test.hpp"
#include "support/memory.hpp"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>

#include <execinfo.h>
#include <ucontext.h>
#include <unistd.h>

using namespace vigil::testing_support;

TEST_SUITE("regression") {
  TEST_CASE("a main fiber that yields lets callbacks and other fibers run, on one worker") {
    in_runtime({.workers = {1}, .settings = {}}, [] {
      std::atomic<bool> called{false};
      std::atomic<bool> done{false};
      auto busy = vigil::spawn([&done] {
        while (!done)
          vigil::this_fiber::yield();
      });
      vigil::after_func(1us, [&called] { called = true; });
      while (!called)
        vigil::this_fiber::yield();
      done = true;
      busy.join();
    });
  }

  TEST_CASE("a fiber that yields is taken by an idle worker while its own computes") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      std::atomic<int> steps{0};
      std::atomic<bool> done{false};
      auto busy = vigil::spawn([&] {
        while (!done) {
          ++steps;
          vigil::this_fiber::yield();
        }
      });
      vigil::sleep_for(1ms);
      const int before = steps;
      // No wait here: only the other worker can make the steps.
      while (steps < before + 3) {
      }
      done = true;
      busy.join();
    });
  }

  TEST_CASE("a parent whose joined child is stopped by the shutdown ends silently") {
    in_runtime({}, [] {
      for (int i = 0; i < 8; ++i) {
        vigil::go([] { vigil::spawn([] { vigil::sleep_for(1h); }).join(); });
      }
      vigil::sleep_for(1ms);
    });
  }

  TEST_CASE("results that nobody joins are destroyed") {
    std::atomic<int> alive{0};

    struct counted {
      explicit counted(std::atomic<int>& a) : n(&a) { ++*n; }

      counted(counted&& other) noexcept : n(other.n) { ++*n; }

      ~counted() { --*n; }

      std::atomic<int>* n;
    };

    in_runtime({}, [&alive] {
      for (int i = 0; i < 20; ++i) {
        vigil::go([&alive] { return counted(alive); });
        vigil::spawn([&alive] { return counted(alive); }).detach();
        auto late = vigil::spawn([&alive] { return counted(alive); });
        vigil::sleep_for(100us);
        late.detach();
        const auto dropped = vigil::spawn([&alive] { return counted(alive); });
      }
    });
    CHECK(alive == 0);
  }

  TEST_CASE(
      "a runtime may be run again and again, and a request_stop at a run's end stops none but it") {
    vigil::runtime rt;

    struct stops_late {
      explicit stops_late(vigil::runtime* of) : of_(of) {}

      stops_late(const stops_late&) = delete;
      stops_late& operator=(const stops_late&) = delete;

      ~stops_late() { of_->request_stop(); }

     private:
      vigil::runtime* of_;
    };

    for (int i = 0; i < rounds(200); ++i) {
      CHECK(rt.run([&rt, i] {
        if (i % 2 == 0) rt.request_stop();
        // A fiber that asks again while it unwinds, or when its captures are destroyed.
        vigil::go([late = std::make_unique<stops_late>(&rt)] { vigil::sleep_for(1h); });
        return i;
      }) == i);
      int slept = 0;
      rt.run([&slept] {
        vigil::sleep_for(10us);
        slept = 1;
      });
      CHECK(slept == 1);
    }
  }

  TEST_CASE("a stop with a long grace ends as soon as nothing is alive") {
    vigil::options o;
    o.grace = 1h;
    vigil::runtime rt(o);
    rt.run([&rt] {
      rt.request_stop();
      vigil::sleep_for(1ms);
    });
    // Without the fix this takes an hour.
  }

  TEST_CASE("every waiter in stop_and_wait goes on, even after one of them was stopped") {
    for_each_seed(10, [] {
      bool leave = false;
      auto t = vigil::after_func(0s, [&leave] {
        while (!leave)
          vigil::sleep_for(1ms);
      });
      vigil::testing::settle();
      auto first = vigil::spawn([t] { t.stop_and_wait(); });
      auto second = vigil::spawn([t] { t.stop_and_wait(); });
      vigil::testing::settle();
      first.request_stop();
      leave = true;
      second.join();
      CHECK_THROWS_AS(first.join(), vigil::cancelled);
    });
  }

  TEST_CASE("on virtual time a fiber that yields gets its turn beside others that never rest") {
    for_each_seed(10, [] {
      bool turned = false;
      vigil::go([&turned] {
        vigil::this_fiber::yield();
        turned = true;
      });
      int rounds_needed = 0;
      while (!turned) {
        vigil::spawn([] {}).join();
        ++rounds_needed;
        REQUIRE(rounds_needed < 1000);
      }
    });
  }

  TEST_CASE("records made by fibers and dropped by plain threads are used again") {
    // 168 bytes a timer: without reuse this takes 30 MB.
    if (VIGIL_ASAN || VIGIL_TSAN) return;  // a sanitizer's memory grows
    std::size_t warm = 0;
    vigil::run([&warm] {
      for (int round = 0; round < 25; ++round) {
        if (round == 5) warm = resident_bytes();
        std::vector<vigil::timer> timers;
        for (int i = 0; i < 10'000; ++i) {
          timers.push_back(vigil::after_func(1h, [] {}));
          timers.back().stop();
        }
        std::thread([gone = std::move(timers)] {}).join();
      }
    });
    CHECK(resident_bytes() < warm + 10'000'000);
  }

#if VIGIL_OWN_JUMP && !VIGIL_ASAN && !VIGIL_TSAN
  // Each instruction traps while two fibers yield, one of them with a sticky
  // floating-point flag, so that both paths through the jump are walked. At each of its
  // instructions the stack can be unwound to the fiber's function.
  namespace stepping {
  int traps = 0;
  int shortest = 1000;
  std::uintptr_t furthest = 0;

  void trapped(int, siginfo_t*, void* context) {
    const auto at =
        static_cast<std::uintptr_t>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    const std::uintptr_t offset = at - reinterpret_cast<std::uintptr_t>(&vigil::detail::vigil_jump);
    if (offset >= 256) return;
    void* frames[64];
    ++traps;
    shortest = std::min(shortest, ::backtrace(frames, 64));
    furthest = std::max(furthest, offset);
  }

  void trap_each_instruction(bool on) {
    if (on) {
      asm volatile("pushfq; orq $0x100, (%%rsp); popfq" : : : "memory", "cc");
    } else {
      asm volatile("pushfq; andq $~0x100, (%%rsp); popfq" : : : "memory", "cc");
    }
  }
  }  // namespace stepping

  TEST_CASE("the stack can be unwound from every instruction of a jump") {
    void* warm[4];
    ::backtrace(warm, 4);  // loads what backtrace() needs

    struct sigaction before {};

    struct sigaction traps {};

    traps.sa_sigaction = &stepping::trapped;
    traps.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGTRAP, &traps, &before);
    vigil::options one;
    one.workers = 1;
    vigil::run(one, [] {
      volatile double x = 0.7;
      auto other = vigil::spawn([] {
        for (int i = 0; i < 3; ++i)
          vigil::this_fiber::yield();
      });
      auto inexact = vigil::spawn([&x] {
        stepping::trap_each_instruction(true);
        for (int i = 0; i < 3; ++i) {
          x = x / 3.1;
          vigil::this_fiber::yield();
        }
        stepping::trap_each_instruction(false);
      });
      other.join();
      inexact.join();
      stepping::trap_each_instruction(false);
    });
    ::sigaction(SIGTRAP, &before, nullptr);
    CHECK(stepping::traps > 100);
    CHECK(stepping::furthest > 0x47);  // the path taken with a flag, at the end
    CHECK(stepping::shortest >= 4);
  }
#endif
}
