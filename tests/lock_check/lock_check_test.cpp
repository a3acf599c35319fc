// vigil-lock-check: what it reports, how, and how often.
#include "lock_check/lock_check_helpers.hpp"

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>
#include <thread>

using namespace lock_check_tests;

TEST_SUITE("lock check") {
  // --- reports

  TEST_CASE("child: a mutex across a sleep" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      vigil::spawn({.name = "clerk"}, [&] {
        locks_the_ledger(m);
        waits_for_the_post();
        m.unlock();
      }).join();
    });
  }

  TEST_CASE("a mutex across a wait: the fiber, and the frames of both places") {
    const child_result child = reported("child: a mutex across a sleep", 1);
    CHECK(child.says("(clerk), started at "));
    CHECK(child.says("lock_check_test.cpp:"));
    CHECK(child.says("is about to wait (sleep) and holds a mutex that"));
    CHECK(child.says("on another thread"));
    const auto locked = child.output.find("at lock_check_tests::locks_the_ledger(std::mutex&)");
    const auto waits = child.output.find("at lock_check_tests::waits_for_the_post()");
    const auto between = child.output.find("  the fiber waits\n");
    CHECK(locked < between);
    CHECK(between < waits);
    CHECK(waits != std::string::npos);
    CHECK_FALSE(child.says("pthread_mutex_lock"));
  }

  TEST_CASE("child: each pair three times" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      for (int i = 0; i < 3; ++i) {
        locks_the_ledger(m);
        waits_for_the_post();
        waits_for_the_bank();
        m.unlock();
        locks_the_journal(m);
        waits_for_the_bank();
        m.unlock();
      }
    });
  }

  TEST_CASE("each pair of places is reported once") {
    const child_result child = reported("child: each pair three times", 3);
    CHECK(count_of(child.output, "locks_the_ledger") == 2);
    CHECK(count_of(child.output, "locks_the_journal") == 1);
    CHECK(count_of(child.output, "waits_for_the_post") == 1);
    CHECK(count_of(child.output, "waits_for_the_bank") == 2);
  }

  TEST_CASE("child: two mutexes" * doctest::skip()) {
    run_checked([] {
      std::mutex first;
      std::mutex second;
      locks_the_ledger(first);
      locks_the_journal(second);
      waits_for_the_post();
      first.unlock();
      waits_for_the_bank();
      second.unlock();
    });
  }

  TEST_CASE("two locks are one report; what has been unlocked is in none") {
    const child_result child = reported("child: two mutexes", 2);
    CHECK(count_of(child.output, "and more locks") == 1);
    CHECK(count_of(child.output, "locks_the_ledger") == 1);
    CHECK(count_of(child.output, "locks_the_journal") == 2);
  }

  TEST_CASE("child: abort" * doctest::skip()) {
    vigil::lock_check::install({.abort = true});
    in_virtual([] {
      std::mutex m;
      locks_the_ledger(m);
      waits_for_the_post();
      m.unlock();
      std::puts("went on");
    });
  }

  TEST_CASE("with `abort` the program ends after the report") {
    const child_result child = run_child("child: abort");
    CHECK(child.died_by(SIGABRT));
    CHECK(count_of(child.output, report) == 1);
    CHECK(child.says("as reported above, and abort was asked for"));
    CHECK_FALSE(child.says("went on"));
  }

  TEST_CASE("child: a yield" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      locks_the_ledger(m);
      vigil::this_fiber::yield();
      m.unlock();
      vigil::this_fiber::yield();
    });
  }

  TEST_CASE("a yield is reported as well") {
    const child_result child = reported("child: a yield", 0);
    CHECK(count_of(child.output, "is about to yield and holds a mutex") == 1);
    CHECK(count_of(child.output, "locks_the_ledger") == 1);
  }

  TEST_CASE("child: calls that are served at once" * doctest::skip()) {
    run_checked([] {
      const auto c = vigil::make_channel<int>(1);
      vigil::mutex mine;
      std::mutex m;
      locks_the_ledger(m);
      c.send(1);
      c.recv();
      vigil::select(vigil::on_recv(c), vigil::otherwise());
      mine.lock();
      mine.unlock();
      static_cast<void>(c.try_send(1));
      static_cast<void>(c.try_recv());
      static_cast<void>(mine.try_lock());
      mine.unlock();
      {
        const vigil::this_fiber::no_park stays;  // where they do not switch
        c.send(1);
        c.recv();
      }
      m.unlock();
      c.send(1);
    });
  }

  TEST_CASE("a call that may wait is reported if it is served at once, and a try is not") {
    const child_result child = reported("child: calls that are served at once", 0);
    CHECK(count_of(child.output, "has made a call that may wait") == 4);
    CHECK(count_of(child.output, "locks_the_ledger") == 4);
  }

  TEST_CASE("child: a pinned fiber" * doctest::skip()) {
    run_checked([] {
      const vigil::this_fiber::pin stays;
      std::mutex m;
      locks_the_ledger(m);
      waits_for_the_post();
      m.unlock();
    });
  }

  TEST_CASE("a pinned fiber is reported, for those that it blocks") {
    const child_result child = reported("child: a pinned fiber", 1);
    CHECK(child.says("blocks a whole worker"));
    CHECK_FALSE(child.says("on another thread"));
  }

  TEST_CASE("child: a callback that leaves a lock behind" * doctest::skip()) {
    run_checked([] {
      std::mutex m;
      const auto t = vigil::after_func(1ms, [&] { locks_the_ledger(m); });
      vigil::sleep_for(2ms);
    });
  }

  TEST_CASE("a callback that leaves a lock behind is reported") {
    const child_result child = reported("child: a callback that leaves a lock behind", 1);
    CHECK(child.says("(a callback to run)"));
    CHECK(count_of(child.output, "locks_the_ledger") == 1);
  }

  // --- every kind of lock
}
