// vigil-lock-check: which locks of the operating system a fiber holds while it waits.
#include "lock_check/lock_check_helpers.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace lock_check_tests;

// Read by ThreadSanitizer. Some programs here unlock a mutex that another has locked, on
// purpose; and it does not know pthread_mutex_clocklock, with which std::timed_mutex
// locks.
extern "C" const char* __tsan_default_options() {  // NOLINT(bugprone-reserved-identifier)
  return "report_mutex_bugs=0";
}

TEST_SUITE("locks that fibers hold") {
  TEST_CASE("child: other kinds of locks" * doctest::skip()) {
    run_checked([] {
      std::timed_mutex timed;
      REQUIRE(timed.try_lock_for(1h));
      waits_for_the_post();
      timed.unlock();
      REQUIRE(timed.try_lock_until(std::chrono::system_clock::now() + 1h));
      waits_for_the_post();
      timed.unlock();

      std::shared_mutex shared;
      shared.lock();
      waits_for_the_post();
      shared.unlock();
      shared.lock_shared();
      waits_for_the_post();
      shared.unlock_shared();
      REQUIRE(shared.try_lock());
      waits_for_the_post();
      shared.unlock();
      REQUIRE(shared.try_lock_shared());
      waits_for_the_post();
      shared.unlock_shared();

      std::shared_timed_mutex both;
      REQUIRE(both.try_lock_for(1h));
      waits_for_the_post();
      both.unlock();
      REQUIRE(both.try_lock_shared_for(1h));
      waits_for_the_post();
      both.unlock_shared();

      std::mutex m;
      REQUIRE(m.try_lock());
      waits_for_the_post();
      m.unlock();
      waits_for_the_post();
    });
  }

  TEST_CASE("all kinds of locks are known, by what locks and by what unlocks them") {
    const child_result child = reported("child: other kinds of locks", 9);
    CHECK(count_of(child.output, "holds a mutex that") == 3);
    CHECK(count_of(child.output, "holds a shared mutex that") == 6);
    CHECK_FALSE(child.says("more locks"));
  }

  TEST_CASE("child: a recursive mutex" * doctest::skip()) {
    run_checked([] {
      std::recursive_mutex m;
      m.lock();
      m.lock();
      m.unlock();
      waits_for_the_post();  // still locked
      m.unlock();
      waits_for_the_bank();
    });
  }

  TEST_CASE("a recursive mutex is held until its last unlock") {
    const child_result child = reported("child: a recursive mutex", 1);
    CHECK(count_of(child.output, "waits_for_the_post") == 1);
    CHECK_FALSE(child.says("and more locks"));
  }

  // --- a fiber that goes on on another thread

  TEST_CASE("child: a fiber that moves" * doctest::skip()) {
    vigil::lock_check::install();
    vigil::run({.workers = 2}, [] {
      std::mutex m;
      auto back = vigil::make_channel<int>();
      std::atomic<int> thread_before{0};
      std::atomic<int> rounds_done{0};
      std::atomic<bool> has_moved{false};
      auto moves = vigil::spawn({.name = "mover"}, [&] {
        locks_the_ledger(m);
        while (!has_moved) {
          thread_before = ::gettid();
          back.recv();
          has_moved = ::gettid() != thread_before;
          ++rounds_done;
        }
        waits_for_the_post();  // with the lock, on another thread
        m.unlock();
        waits_for_the_bank();
      });
      // The fiber that readies the mover keeps its own worker until the mover has run: so
      // the mover runs on the other one, and has moved if it was on this one before.
      auto keeps = vigil::spawn([&] {
        while (!has_moved) {
          const int before = rounds_done;
          back.send(1);
          while (rounds_done == before) {
          }
        }
      });
      moves.join();
      keeps.join();
      std::puts("moved");
    });
  }

  TEST_CASE("a record goes with its fiber to another thread") {
    const child_result child = run_child("child: a fiber that moves");
    CHECK(child.says("moved\n"));
    CHECK(child.says("(channel receive)"));
    CHECK(count_of(child.output, "waits_for_the_post") == 1);
    CHECK(count_of(child.output, "waits_for_the_bank") == 0);
  }

  // --- conditions

  TEST_CASE("child: a condition and then a wait" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      std::condition_variable c;
      bool is_true = false;
      std::unique_lock hold(m);
      std::thread other([&] {
        const std::lock_guard also(m);  // only while the fiber waits for the condition
        is_true = true;
        c.notify_one();
      });
      c.wait(hold, [&] { return is_true; });
      waits_for_the_post();
      hold.unlock();
      waits_for_the_bank();
      other.join();
    });
  }

  TEST_CASE("a lock that a condition has given back is held again") {
    const child_result child = reported("child: a condition and then a wait", 1);
    CHECK(count_of(child.output, "waits_for_the_post") == 1);
  }

  TEST_CASE("child: a condition with a time limit and then a wait" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      std::condition_variable c;
      std::unique_lock hold(m);
      CHECK(c.wait_for(hold, 1ms) == std::cv_status::timeout);
      CHECK(c.wait_until(hold, std::chrono::system_clock::now() + 1ms) == std::cv_status::timeout);
      waits_for_the_post();
      hold.unlock();
      waits_for_the_bank();
    });
  }

  TEST_CASE("a lock is held again after a condition that was not met in time") {
    reported("child: a condition with a time limit and then a wait", 1);
  }

  // --- no false alarm

  TEST_CASE("child: unlocked before each wait" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      std::shared_mutex s;
      for (int i = 0; i < 10; ++i) {
        {
          const std::scoped_lock both(m, s);
          ++steps;
        }
        vigil::sleep_for(1ms);
        vigil::this_fiber::yield();
      }
      auto c = vigil::make_channel<int>(1);
      m.lock();
      c.send(1);  // there is room: it does not wait
      m.unlock();
    });
  }

  TEST_CASE("what is unlocked before the wait, or across a call that need not wait, is fine") {
    const child_result child = quiet("child: unlocked before each wait");
    CHECK_FALSE(child.says("is about to yield"));
  }

  TEST_CASE("child: locks of threads" * doctest::skip()) {
    std::mutex of_main;
    std::mutex of_thread;
    std::shared_mutex shared;
    vigil::lock_check::install();
    const std::lock_guard before_the_run(of_main);
    std::atomic<bool> is_locked{false};
    std::atomic<bool> ends{false};
    std::thread t([&] {
      const std::lock_guard hold(of_thread);
      const std::shared_lock also(shared);
      is_locked = true;
      ends.wait(false);
    });
    vigil::run({.workers = 2}, [&] {
      while (!is_locked)
        vigil::sleep_for(1ms);
      CHECK_FALSE(of_thread.try_lock());
      CHECK_FALSE(shared.try_lock());
      vigil::sleep_for(1ms);
      shared.lock_shared();
      shared.unlock_shared();  // the thread still has it
      vigil::sleep_for(1ms);
      vigil::blocking([&] {
        std::mutex of_side_pool;
        const std::lock_guard hold(of_side_pool);
      });
    });
    ends = true;
    ends.notify_one();
    t.join();
  }

  TEST_CASE("locks of threads, and locks that could not be had, are none of a fiber's") {
    quiet("child: locks of threads");
  }

  TEST_CASE("child: a thread unlocks its own share" * doctest::skip()) {
    run_checked([] {
      std::shared_mutex m;
      m.lock_shared();
      std::thread([&] { const std::shared_lock hold(m); }).join();
      waits_for_the_post();
      m.unlock_shared();
    });
  }

  TEST_CASE("a thread that unlocks its share of a lock leaves the fiber's") {
    reported("child: a thread unlocks its own share", 1);
  }

  TEST_CASE("child: unlocked by another" * doctest::skip()) {
    run_checked([] {
      pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
      ::pthread_mutex_lock(&m);
      std::thread([&] { ::pthread_mutex_unlock(&m); }).join();
      waits_for_the_post();
    });
  }

  TEST_CASE("a mutex that a thread has unlocked is held by no fiber") {
    quiet("child: unlocked by another");
  }

  TEST_CASE("child: an unlock that fails" * doctest::skip()) {
    run_checked([] {
      pthread_mutexattr_t kind;
      ::pthread_mutexattr_init(&kind);
      ::pthread_mutexattr_settype(&kind, PTHREAD_MUTEX_ERRORCHECK);
      pthread_mutex_t m;
      ::pthread_mutex_init(&m, &kind);
      ::pthread_mutex_lock(&m);
      int result = 0;
      std::thread([&] { result = ::pthread_mutex_unlock(&m); }).join();
      CHECK(result == EPERM);
      waits_for_the_post();
      CHECK(::pthread_mutex_unlock(&m) == 0);
      waits_for_the_bank();
    });
  }

  TEST_CASE("a mutex is held after an unlock that has failed") {
    reported("child: an unlock that fails", 1);
  }

  TEST_CASE("child: a fiber that ends with a lock" * doctest::skip()) {
    run_checked([] {
      static std::mutex m;
      for (int i = 0; i < 3; ++i) {  // on the same stack
        vigil::spawn([&] {
          if (m.try_lock()) return;
          static std::mutex own;
          own.lock();
          own.unlock();
          vigil::sleep_for(1ms);
        }).join();
      }
    });
  }

  TEST_CASE("the next fiber on a stack does not have what the last one held") {
    quiet("child: a fiber that ends with a lock");
  }

  TEST_CASE("child: more locks than there is room for" * doctest::skip()) {
    run_checked([] {
      std::mutex m[40];
      for (std::mutex& each : m)
        each.lock();
      vigil::sleep_for(1ms);
      for (std::mutex& each : m)
        each.unlock();
      locks_the_ledger(m[0]);
      waits_for_the_post();
      m[0].unlock();
    });
  }

  TEST_CASE("locks beyond the room are left out, which is said once") {
    const child_result child = reported("child: more locks than there is room for", 2);
    CHECK(count_of(child.output, "has no room for one more lock") == 1);
    CHECK(count_of(child.output, "locks_the_ledger") == 1);
  }

  TEST_CASE("child: a fork" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      locks_the_ledger(m);
      const pid_t child = ::fork();
      if (child == 0) {
        m.unlock();
        m.lock();
        m.unlock();
        ::_exit(0);
      }
      m.unlock();
      int status = 1;
      REQUIRE(::waitpid(child, &status, 0) == child);
      CHECK(status == 0);
    });
  }

  TEST_CASE("a forked child may lock and unlock") {
    quiet("child: a fork");
  }

  TEST_CASE("child: what was deferred" * doctest::skip()) {
    run_checked([] {
      bool has_run = false;
      vigil::defer([&] { has_run = true; });
      vigil::this_fiber::yield();
      CHECK(has_run);
    });
  }

  TEST_CASE("a deferred function runs as without the check") {
    quiet("child: what was deferred");
  }

  // --- the environment

  TEST_CASE("child: without a call" * doctest::skip()) {
    in_virtual([] {
      std::mutex m;
      locks_the_ledger(m);
      waits_for_the_post();
      m.unlock();
    });
  }

  TEST_CASE("VIGIL_LOCK_CHECK asks for it without a call") {
    quiet("child: without a call");
    const child_result child = run_child("child: without a call", {{"VIGIL_LOCK_CHECK", "report"}});
    CHECK(child.succeeded());
    CHECK(count_of(child.output, report) == 1);
    const child_result ended = run_child("child: without a call", {{"VIGIL_LOCK_CHECK", "abort"}});
    CHECK(ended.died_by(SIGABRT));
    CHECK(count_of(ended.output, report) == 1);
    const child_result wrong = run_child("child: without a call", {{"VIGIL_LOCK_CHECK", "on"}});
    CHECK(wrong.died_by(SIGABRT));
    CHECK(wrong.says("VIGIL_LOCK_CHECK is 'on'; it must be report or abort, or not be set"));
  }
}
