// The search for leaks beside other workers, other runtimes and other threads.
#include "core/runtime/runtime_core.hpp"
#include "inspect/inspect_helpers.hpp"
#include "inspect/leaks_helpers.hpp"
#include "inspect/own_thread.hpp"
#include "support/child.hpp"
#include "support/note.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

namespace vigil::testing_support {
using namespace std::chrono_literals;

TEST_CASE("a fiber is stuck beside running ones of several workers") {
  inspect::install();
  real_options setup;
  setup.workers = {2, 4};
  in_runtime(setup, [] {
    std::atomic<int> rounds_done{0};  // outlives the group, whose end waits for its fibers
    const cancellable made = with_cancel(background());
    group busy(made.ctx);
    for (int i = 0; i < 4; ++i) {
      busy.go([&] {
        while (!made.ctx.is_done()) {
          rounds_done.fetch_add(1);
          this_fiber::yield();
        }
      });
    }
    // A reader may not have parked yet, or a worker that has run it, and runs others now,
    // keeps a pointer in an unused part of its thread's stack: then another one is taken.
    inspect::stuck_report r;
    for (int i = 0; i < 1000 && r.certain.empty(); ++i) {
      start("parent", [] {
        const auto c = make_channel<int>();
        start("reader", [c] { c.recv(); });
      });
      sleep_for(1ms);
      r = find_stuck();
      if (!can_be_certain && names_of(r.possible).contains("reader")) break;
    }
    check_certain(r, {"reader"});
    const int before = rounds_done.load();
    while (rounds_done.load() == before)
      this_fiber::yield();
    made.cancel();
  });
}

TEST_CASE("a plain thread may look") {
  inspect::install();
  const inspect::stuck_report r = inspect::find_stuck_fibers();
  CHECK(r.certain.empty());
  CHECK(r.possible.empty());
  CHECK_NOTHROW(testing::check_no_leaks());
}

// install() holds for the process, so this has one of its own.
TEST_CASE("without install a thread beside the caller's hides what is certain" * doctest::skip()) {
  in_virtual([] {
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    check_certain(find_stuck(), {"stuck"});
    std::atomic<bool> may_go{false};
    std::thread outside([&may_go] { may_go.wait(false); });
    const inspect::stuck_report r = inspect::find_stuck_fibers();
    CHECK(r.certain.empty());
    CHECK(in_words(names_of(r.possible)) == "stuck");
    if (can_be_certain) CHECK(has(r.why_none_certain, "install() was not called"));
    may_go.store(true);
    may_go.notify_all();
    outside.join();
  });
}

TEST_CASE("install is needed only beside other threads") {
  const child_result child =
      run_child("without install a thread beside the caller's hides what is certain");
  NOTE(child.output);
  CHECK(child.succeeded());
}

TEST_CASE("the fibers of a runtime that looks at the others are no leaks") {
  inspect::install();
  runtime observer = detail::make_observer({});
  const auto is_over = make_channel<void>();
  std::thread outside([&] {
    observer.run([&is_over] {
      this_fiber::set_name("observer");
      is_over.recv();
    });
  });
  const auto its_line = [] {
    return fiber_line(written([](std::FILE* f) { inspect::dump(f); }), "observer");
  };
  while (!has(its_line(), "[parked: channel receive"))
    std::this_thread::sleep_for(1ms);  // only a pause between two looks
  const inspect::stuck_report r = inspect::find_stuck_fibers();
  CHECK(in_words(names_of(r.certain)) == "");
  CHECK(in_words(names_of(r.possible)) == "");
  is_over.close();
  outside.join();
}

TEST_CASE("a thread that blocks the signal hides what is certain") {
  in_leaky_virtual([] {
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    std::atomic<bool> has_begun{false};
    std::atomic<bool> may_go{false};
    std::thread deaf([&] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
      has_begun.store(true);
      has_begun.notify_all();
      may_go.wait(false);
    });
    has_begun.wait(false);
    const inspect::stuck_report r = inspect::find_stuck_fibers();
    CHECK(r.certain.empty());
    CHECK(in_words(names_of(r.possible)) == "stuck");
    if (can_be_certain) CHECK(has(r.why_none_certain, "a thread blocks the signal"));
    may_go.store(true);
    may_go.notify_all();
    deaf.join();
    check_certain(find_stuck(), {"stuck"});
  });
}

// Until the child ends, the thread that made it is kept in the kernel by vfork(), which
// ThreadSanitizer makes a fork().
TEST_CASE("a check looks again if a thread has not stopped in time" * doctest::skip(VIGIL_TSAN)) {
  inspect::install();
  in_virtual([] {
    std::atomic<bool> is_kept{false};
    std::thread slow([&is_kept] {
      const pid_t child = ::vfork();
      if (child == 0) {
        is_kept.store(true);
        constexpr timespec time{0, 500'000'000};  // more than a search waits
        ::nanosleep(&time, nullptr);
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
    });
    while (!is_kept.load())
      std::this_thread::yield();
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    if (can_be_certain) CHECK_THROWS_AS(testing::check_no_leaks({.patience = 1h}), testing::leak);
    slow.join();
  });
}

TEST_CASE("a thread that starts or ends, and blocks signals meanwhile, hides nothing") {
  in_leaky_virtual([] {
    // Starts before the fiber: a new thread has its parent's vector registers, where an
    // address of the fiber's may be left over.
    std::atomic<bool> is_over{false};
    std::thread starter([&is_over] {
      while (!is_over.load())
        std::thread([] {}).join();
    });
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    for (int look = 0; look < rounds(50); ++look)
      check_certain(find_stuck(), {"stuck"});
    is_over.store(true);
    starter.join();
  });
}

TEST_CASE("a thread of the library's own hides nothing") {
  in_leaky_virtual([] {
    struct two_flags {
      std::atomic<bool> has_begun{false};
      std::atomic<bool> may_go{false};
    };
    const auto shared = std::make_shared<two_flags>();
    detail::start_own_thread([shared] {
      shared->has_begun.store(true);
      shared->has_begun.notify_all();
      shared->may_go.wait(false);
    });
    shared->has_begun.wait(false);
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    check_certain(find_stuck(), {"stuck"});
    shared->may_go.store(true);
    shared->may_go.notify_all();
  });
}

}  // namespace vigil::testing_support
