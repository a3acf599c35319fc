// The side pool: its threads, its order, its figures.
#include "core/blocking/blocking_helpers.hpp"
#include "core/machine/process_threads.hpp"
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/hidden_deadlock.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <atomic>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <pthread.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

std::string thread_name() {
  char name[32] = {};
  ::pthread_getname_np(::pthread_self(), name, sizeof name);
  return name;
}

real_options with_threads(std::size_t n) {
  real_options how;
  how.settings.blocking_threads = n;
  return how;
}

// Holds its thread until all `n` have come.
void meet(std::atomic<int>& here, int n) {
  ++here;
  while (here.load() < n)
    std::this_thread::yield();
}

}  // namespace

TEST_SUITE("side pool") {
  // Node, libuv: four threads, made at first use.
  TEST_CASE("makes its threads when they are needed, and four by default") {
    in_runtime({}, [] {
      CHECK(vigil::stats_of_blocking().threads == 0);
      vigil::blocking([] {});
      CHECK(vigil::stats_of_blocking().threads == 1);
      vigil::blocking([] {});
      CHECK(vigil::stats_of_blocking().threads <= 2);  // the first may still be awake
      std::atomic<int> together{0};
      std::vector<vigil::fiber<>> callers;
      for (int i = 0; i < 4; ++i)
        callers.push_back(
            vigil::spawn([&together] { vigil::blocking([&together] { meet(together, 4); }); }));
      for (auto& c : callers)
        c.join();
      CHECK(vigil::stats_of_blocking().threads == 4);
      callers.clear();
      for (int i = 0; i < 40; ++i)
        callers.push_back(vigil::spawn([] { vigil::blocking([] {}); }));
      for (auto& c : callers)
        c.join();
      CHECK(vigil::stats_of_blocking().threads == 4);
    });
  }

  // Node, libuv: size 1 runs strictly one after another.
  TEST_CASE("of one thread runs strictly one after another, in the order of the calls") {
    in_runtime(with_threads(1), [] {
      std::vector<int> order;
      std::atomic<int> inside{0};
      bool overlap = false;
      std::vector<vigil::fiber<>> callers;
      for (int i = 0; i < 50; ++i) {
        callers.push_back(vigil::spawn([&, i] {
          vigil::blocking([&, i] {
            if (++inside != 1) overlap = true;
            order.push_back(i);
            --inside;
          });
        }));
        // Queues them one after another, even where workers steal.
        const auto has_come = [] {
          const vigil::blocking_stats now = vigil::stats_of_blocking();  // of one instant
          return now.queued + now.running + now.done;
        };
        while (has_come() < static_cast<std::size_t>(i) + 1)
          vigil::this_fiber::yield();
      }
      for (auto& c : callers)
        c.join();
      CHECK_FALSE(overlap);
      REQUIRE(order.size() == 50);
      for (int i = 0; i < 50; ++i)
        CHECK(order[static_cast<std::size_t>(i)] == i);
    });
  }

  TEST_CASE("never runs more functions at once than it has threads") {
    in_runtime(with_threads(3), [] {
      std::atomic<int> inside{0};
      std::atomic<int> most{0};
      gate g;
      std::vector<vigil::fiber<>> callers;
      for (int i = 0; i < 60; ++i) {
        callers.push_back(vigil::spawn([&] {
          vigil::blocking([&] {
            const int n = ++inside;
            int seen = most.load();
            while (seen < n && !most.compare_exchange_weak(seen, n)) {
            }
            g.wait();
            --inside;
          });
        }));
      }
      // All that can begin have begun.
      while (inside.load() < 3 || vigil::stats_of_blocking().queued < 57)
        vigil::this_fiber::yield();
      CHECK(vigil::stats_of_blocking().running == 3);
      g.open();
      for (auto& c : callers)
        c.join();
      CHECK(most.load() == 3);
      CHECK(vigil::stats_of_blocking().done == 60);
    });
  }

  // Node, libuv: named.
  TEST_CASE("its threads have names with numbers") {
    in_virtual([] {
      CHECK(vigil::blocking(&thread_name) == "blocking/1");
      vigil::blocking_pool dns({.threads = 1, .name = "names"});
      CHECK(vigil::blocking(dns, &thread_name) == "names/1");
      vigil::blocking_pool longer({.threads = 1, .name = "a name of many letters"});
      CHECK(vigil::blocking(longer, &thread_name) == "a name of man/1");
    });
  }

  // Node, libuv: stacks of 8 MB.
  TEST_CASE("its threads have stacks as large as any thread's") {
    const auto stack_size = [] {
      pthread_attr_t attributes;
      REQUIRE(::pthread_getattr_np(::pthread_self(), &attributes) == 0);
      std::size_t size = 0;
      ::pthread_attr_getstacksize(&attributes, &size);
      ::pthread_attr_destroy(&attributes);
      return size;
    };
    std::size_t of_a_thread = 0;
    std::thread([&] { of_a_thread = stack_size(); }).join();
    in_runtime({.workers = {1}},
               [&] { CHECK(vigil::blocking([&] { return stack_size(); }) == of_a_thread); });
  }

  // Node, libuv: DNS blocked all threads (node#8436).
  TEST_CASE("a second pool goes on while the first is full") {
    in_runtime(with_threads(1), [] {
      gate g;
      auto stuck = vigil::spawn([&] { vigil::blocking([&] { g.wait(); }); });
      g.wait_until_entered();
      vigil::blocking_pool files({.threads = 2, .name = "files"});
      CHECK(vigil::blocking(files, [] { return 1; }) == 1);
      CHECK(vigil::blocking_for(files, 1h, [] { return 2; }) == 2);
      CHECK(vigil::blocking_until(files, vigil::clock::now() + 1h, [] { return 3; }) == 3);
      CHECK(files.stats().done == 3);
      CHECK(vigil::stats_of_blocking().running == 1);
      g.open();
      stuck.join();
    });
  }

  // Node, libuv: one pool for all loops.
  TEST_CASE("two runtimes may share one, which outlives both") {
    vigil::blocking_pool shared({.threads = 2, .name = "shared"});
    const auto use = [&shared] {
      vigil::run([&shared] {
        for (int i = 0; i < rounds(200); ++i)
          CHECK(vigil::blocking(shared, [i] { return i; }) == i);
      });
    };
    std::thread other(use);
    use();
    other.join();
    CHECK(shared.stats().done == 2 * static_cast<std::uint64_t>(rounds(200)));
  }

  TEST_CASE("may be destroyed while a caller whose wait has ended has not gone on yet") {
    in_runtime({.workers = {1}}, [] {
      auto pool = std::make_unique<vigil::blocking_pool>(vigil::blocking_options{.threads = 1});
      auto g = std::make_shared<gate>();
      auto it = vigil::with_cancel(vigil::background());
      auto ran =
          vigil::spawn([g, &pool, &it] { vigil::blocking(*pool, it.ctx, [g] { g->wait(); }); });
      g->wait_until_entered();
      auto queued = vigil::spawn([&pool, &it] { vigil::blocking(*pool, it.ctx, [] {}); });
      while (pool->stats().queued == 0)
        vigil::this_fiber::yield();
      it.cancel();  // both are ready, and the one worker is here
      g->open();
      pool.reset();
      // Both functions have returned first, so nothing is lost.
      ran.join();
      queued.join();
    });
  }

  TEST_CASE("destroyed on its own thread it still runs the queued functions, and its threads end") {
    const std::size_t before = vigil::detail::process_quiet_threads();
    for (const std::size_t threads : {std::size_t{1}, std::size_t{3}}) {
      NOTE("threads: ", threads);
      in_runtime({}, [threads] {
        std::atomic<int> ran{0};
        auto pool = std::make_shared<vigil::blocking_pool>(
            vigil::blocking_options{.threads = threads, .name = "mine"});
        vigil::blocking_pool& same = *pool;
        gate g;
        std::thread::id in;
        std::atomic<std::thread::id> died_in;
        std::vector<vigil::fiber<>> callers;
        // The last pointer is destroyed with the captures, while a probe records where.
        callers.push_back(vigil::spawn([&same, &g, &in, &ran, &died_in, &pool] {
          vigil::blocking(
              same, [&g, &in, &ran, probe = dies_on(died_in), keeps = std::move(pool)]() mutable {
                in = std::this_thread::get_id();
                g.wait();
                ++ran;
              });
        }));
        g.wait_until_entered();
        for (int i = 0; i < 4; ++i) {
          callers.push_back(vigil::spawn([&same, &ran, &g] {
            vigil::blocking(same, [&ran, &g] {
              g.wait();
              ++ran;
            });
          }));
        }
        // One look for both: a function that begins between two looks would count twice.
        const auto submitted = [&same] {
          const vigil::blocking_stats s = same.stats();
          return s.queued + s.running;
        };
        while (submitted() < 5)
          vigil::this_fiber::yield();
        CHECK(pool == nullptr);
        g.open();
        for (auto& c : callers)
          c.join();
        CHECK(ran == 5);
        CHECK(died_in.load() == in);
      });
    }
    while (vigil::detail::process_quiet_threads() != before)
      std::this_thread::yield();
  }

  TEST_CASE("destroyed by its function while nothing else is queued") {
    const std::size_t before = vigil::detail::process_quiet_threads();
    in_runtime({}, [] {
      auto pool = std::make_unique<vigil::blocking_pool>(vigil::blocking_options{.threads = 2});
      vigil::blocking_pool& same = *pool;
      vigil::blocking(same, [] {});
      CHECK(vigil::blocking(same, [&pool] {
              pool.reset();
              return 7;
            }) == 7);
    });
    while (vigil::detail::process_quiet_threads() != before)
      std::this_thread::yield();
  }

  // Node, libuv: DNS blocked all threads (node#8436).
  TEST_CASE("reports the length of its queue, the oldest wait, running and finished functions") {
    in_runtime(with_threads(1), [](vigil::runtime& rt) {
      gate g;
      std::vector<vigil::fiber<>> callers;
      for (int i = 0; i < 3; ++i)
        callers.push_back(vigil::spawn([&] { vigil::blocking([&] { g.wait(); }); }));
      // A function may have to wait for its thread first.
      while (vigil::stats_of_blocking().running == 0 || vigil::stats_of_blocking().queued < 2)
        vigil::this_fiber::yield();
      vigil::sleep_for(3ms);  // the wait to be reported: a lower bound
      const vigil::blocking_stats s = vigil::stats_of_blocking();
      CHECK(s.threads == 1);
      CHECK(s.running == 1);
      CHECK(s.queued == 2);
      CHECK(s.done == 0);
      CHECK(s.oldest_wait >= 3ms);
      vigil::runtime_stats outside;
      std::thread([&] { outside = rt.stats(); }).join();
      for (const vigil::blocking_stats& same : {outside.blocking, vigil::stats().blocking}) {
        CHECK(same.threads == 1);
        CHECK(same.running == 1);
        CHECK(same.queued == 2);
        CHECK(same.done == 0);
        CHECK(same.oldest_wait >= s.oldest_wait);
      }
      g.open();
      for (auto& c : callers)
        c.join();
      const vigil::blocking_stats after = vigil::stats_of_blocking();
      CHECK(after.running == 0);
      CHECK(after.queued == 0);
      CHECK(after.done == 3);
      CHECK(after.oldest_wait == 0ns);
    });
  }

  TEST_CASE("measures how long each function was queued, and how long it ran") {
    in_runtime(with_threads(1), [] {
      gate g;
      auto first = vigil::spawn([&] {
        vigil::blocking([&] {
          g.wait();
          std::this_thread::sleep_for(3ms);  // lower bounds: of its own time
        });
      });
      g.wait_until_entered();
      CHECK(vigil::stats_of_blocking().run_time.total() == 0);  // those in `done` alone
      CHECK(vigil::stats_of_blocking().queue_time.total() == 0);
      auto second = vigil::spawn([] { vigil::blocking([] {}); });
      while (vigil::stats_of_blocking().queued == 0)
        vigil::this_fiber::yield();
      auto given_up = vigil::spawn([] { CHECK_FALSE(vigil::blocking_for(1ms, [] {})); });
      given_up.join();
      g.open();
      first.join();
      second.join();
      CHECK_THROWS_AS(vigil::blocking([] { throw 1; }), int);
      const vigil::blocking_stats s = vigil::stats_of_blocking();
      CHECK(s.done == 3);
      CHECK(s.run_time.total() == 3);  // one that never began is not among them
      CHECK(s.queue_time.total() == 3);
      CHECK(s.run_time.max_nanos >= 3'000'000);
      CHECK(s.queue_time.max_nanos >= 3'000'000);  // ... and of the one that waited for it
      CHECK(s.run_time.sum_nanos >= s.run_time.max_nanos);
      CHECK(vigil::stats().blocking.run_time.total() == 3);
    });
  }

  // Node, libuv: UV_THREADPOOL_SIZE up to 1024, 0 means 1.
  TEST_CASE("a size out of range is refused with the range in the text") {
    for (const std::size_t n : {std::size_t{0}, std::size_t{1025}}) {
      vigil::options o;
      o.blocking_threads = n;
      try {
        vigil::run(o, [] {});
        FAIL("accepted");
      } catch (const std::invalid_argument& e) {
        CHECK(std::string(e.what()).find("1 to 1024") != std::string::npos);
      }
      CHECK_THROWS_AS(vigil::blocking_pool({.threads = n, .name = "x"}), std::invalid_argument);
    }
    const vigil::blocking_pool most({.threads = 1024, .name = "most"});
    CHECK(most.stats().threads == 0);
  }

  TEST_CASE("child: size from the environment" * doctest::skip()) {
    vigil::run([] {
      try {
        vigil::blocking([] {});
        std::atomic<int> together{0};
        std::vector<vigil::fiber<>> callers;
        for (int i = 0; i < 6; ++i)
          callers.push_back(
              vigil::spawn([&together] { vigil::blocking([&together] { meet(together, 6); }); }));
        for (auto& c : callers)
          c.join();
        std::printf("%zu threads\n", vigil::stats_of_blocking().threads);
      } catch (const std::invalid_argument& e) {
        std::printf("refused: %s\n", e.what());
      }
    });
  }

  // Node, libuv: UV_THREADPOOL_SIZE up to 1024, 0 means 1.
  TEST_CASE("its size comes from VIGIL_BLOCKING_THREADS, where zero is an error that says so") {
    const char* const name = "child: size from the environment";
    CHECK(run_child(name, {{"VIGIL_BLOCKING_THREADS", "6"}}).says("6 threads"));
    for (const char* bad : {"0", "1025", "-1", "many", "4x", ""}) {
      const child_result child = run_child(name, {{"VIGIL_BLOCKING_THREADS", bad}});
      CHECK(child.succeeded());
      CHECK(child.says("refused: vigil: VIGIL_BLOCKING_THREADS is \""));
      CHECK(child.says("it must be a number from 1 to 1024"));
    }
  }

  TEST_CASE("its threads count as quiet except while they run a function") {
    const std::size_t outside = vigil::detail::process_quiet_threads();
    in_runtime({}, [] {
      const std::size_t before = vigil::detail::process_quiet_threads();
      {
        vigil::blocking_pool pool({.threads = 2});
        CHECK(vigil::blocking(pool, [] { return vigil::detail::process_quiet_threads(); }) ==
              before);
        CHECK(vigil::detail::process_quiet_threads() == before + 1);
      }
      CHECK(vigil::detail::process_quiet_threads() == before);
      vigil::blocking([] {});  // and one on the runtime's own pool
    });
    CHECK(vigil::detail::process_quiet_threads() == outside);
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // sanitizers have threads of their own
  TEST_CASE("its resting threads do not hide a deadlock") {
    if (is_deadlock_hidden()) return;
    const child_result child = run_child("child: deadlock beside a side pool");
    CHECK(child.says("nothing can ever happen again"));
    CHECK(child.says("thrown"));
  }
#endif

#ifndef VIGIL_TEST_UNDER_SANITIZER
  TEST_CASE("a thread that outlives its pool hides no deadlock as it exits") {
    if (is_deadlock_hidden()) return;
    const child_result child = run_child("child: deadlock beside a thread that goes");
    CHECK(child.says("nothing can ever happen again"));
    CHECK(child.says("thrown"));
  }
#endif

  // The thread exits only when the deadlock has been found.
  TEST_CASE("child: deadlock beside a thread that goes" * doctest::skip()) {
    static std::atomic<bool> found{false};

    struct goes_late {
      bool is_registered = true;

      ~goes_late() {
        while (!found.load())
          std::this_thread::yield();
      }
    };

    try {
      vigil::run([] {
        auto pool = std::make_unique<vigil::blocking_pool>(vigil::blocking_options{.threads = 1});
        vigil::blocking_pool& same = *pool;
        vigil::blocking(same, [&pool] {
          thread_local goes_late here;
          static_cast<void>(here.is_registered);
          pool.reset();
        });
        auto nobody_sends = vigil::make_channel<int>();
        nobody_sends.recv();
      });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
    found.store(true);
  }

  TEST_CASE("child: deadlock beside a side pool" * doctest::skip()) {
    try {
      vigil::run([] {
        vigil::blocking([] {});
        auto nobody_sends = vigil::make_channel<int>();
        nobody_sends.recv();
      });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
  }

  TEST_CASE("is refused outside a fiber where only a fiber's runtime has figures") {
    CHECK_THROWS_AS(static_cast<void>(vigil::stats_of_blocking()), vigil::wrong_place);
  }
}
