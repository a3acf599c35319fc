// The text of a report on stuck fibers: its groups and cycles, and what may end a wait.
#include "inspect/inspect_helpers.hpp"
#include "inspect/leaks_helpers.hpp"
#include "support/note.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace vigil::testing_support {
namespace {

using namespace std::chrono_literals;

struct two_locks {
  mutex first{named("first")};
  mutex second{named("second")};
};

[[gnu::noinline]] void lock_both(mutex& a, mutex& b) {
  const std::lock_guard one(a);
  sleep_for(1ms);
  const std::lock_guard other(b);
}

std::atomic<const void*> on_a_stack{nullptr};

template <class F>
void wait_for(F is_so) {
  while (!is_so())
    sleep_for(1ms);
}

TEST_SUITE("the report on stuck fibers") {
  TEST_CASE("those that are stuck in one place are shown together") {
    in_leaky_virtual([] {
      constexpr std::size_t all = 500;
      start_and_settle([] {
        for (std::size_t i = 0; i < all; ++i)
          start("stuck", [] { channel<int>().recv(); });
      });
      const inspect::stuck_report r = find_stuck();
      NOTE(r.text);
      CHECK(r.certain.size() + r.possible.size() == all);
      // A copy of a pointer that is left in a freed block or on a thread's stack keeps
      // the fiber that it leads to from being certain.
      if (can_be_certain) CHECK(r.certain.size() >= all - 5);
      CHECK(count_of(r.text, "\nfiber ") <= 40);
      CHECK(count_of(r.text, "more with these frames\n") >= 1);
    });
  }

  TEST_CASE("a cycle of locks is named, once") {
    in_leaky_virtual([] {
      start_and_settle([] {
        const auto locks = std::make_shared<two_locks>();
        start("a", [locks] { lock_both(locks->first, locks->second); });
        start("b", [locks] { lock_both(locks->second, locks->first); });
        spawn([] {}).join();
      });
      sleep_for(1s);
      const inspect::stuck_report r = find_stuck();
      NOTE(r.text);
      if (!can_be_certain) return;
      REQUIRE(count_of(r.text, "cycle: ") == 1);
      const std::string line = r.text.substr(r.text.find("cycle: "));
      const std::string cycle = line.substr(0, line.find('\n'));
      CHECK(has(cycle, " (a) waits for mutex \"second\" made at "));
      CHECK(has(cycle, " (b), which waits for mutex \"first\" made at "));
      CHECK(cycle.ends_with(" (a)"));
    });
  }

  TEST_CASE("nobody may go on by the stack of a fiber that is stuck itself") {
    in_leaky_virtual([] {
      start_and_settle([] {
        const auto locks = std::make_shared<two_locks>();
        start("a", [locks] {
          const auto c = make_channel<int>();
          on_a_stack.store(&c);
          start("waits", [c] { c.recv(); });
          lock_both(locks->first, locks->second);
        });
        start("b", [locks] { lock_both(locks->second, locks->first); });
      });
      sleep_for(1s);
      const inspect::stuck_report r = find_stuck();
      on_a_stack.store(nullptr);
      NOTE(r.text);
      if (!can_be_certain) return;
      CHECK(names_of(r.certain) == name_set{"a", "b"});
      CHECK(names_of(r.possible) == name_set{"waits"});
      CHECK(has(r.text, "(may go on: what it waits for can be reached from memory"));
    });
  }

  TEST_CASE("with several runtimes a fiber is named by both numbers") {
    inspect::install();
    std::atomic<mutex*> lent{nullptr};
    std::atomic<bool> is_seen{false};
    std::atomic<bool> is_over{false};
    std::thread other([&] {
      run([&] {
        this_fiber::set_name("holder");
        mutex lock;
        lock.lock();
        lent.store(&lock);
        wait_for([&] { return is_seen.load(); });
        lock.unlock();
        wait_for([&] { return is_over.load(); });
      });
    });
    run([&] {
      wait_for([&] { return lent.load() != nullptr; });
      fiber<void> locks = spawn(fiber_options{.name = "locks"},
                                [&lent] { const std::lock_guard hold(*lent.load()); });
      sleep_for(20ms);
      const std::string text = find_stuck().text;
      NOTE(text);
      CHECK(has(fiber_line(text, "locks"), " (holder) of runtime "));
      if (can_be_certain) {
        CHECK(has(text, " can be reached from the stack of fiber "));
        CHECK(has(text.substr(text.find("the stack of fiber ")), " of runtime "));
      }
      is_seen.store(true);
      locks.join();
      is_over.store(true);
    });
    other.join();
  }
}

}  // namespace
}  // namespace vigil::testing_support
