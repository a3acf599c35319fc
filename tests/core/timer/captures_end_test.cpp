// The end of the runtime object destroys the captures of every callback, whatever handles
// there are.
#include "core/timer/timer_test.hpp"

#include <utility>

namespace {

using namespace vigil::testing_support;

// A session as programs from Asio have it: its timer's callback owns it.
struct session {
  explicit session(int& alive) : count(&alive) { ++*count; }

  ~session() { --*count; }

  session(const session&) = delete;
  session& operator=(const session&) = delete;

  int* count;
  int beats = 0;
  timer beat;
};

// Calls f when it is destroyed.
template <class F>
class at_end {
 public:
  explicit at_end(F f) : f_(std::make_unique<F>(std::move(f))) {}

  at_end(at_end&&) noexcept = default;
  at_end& operator=(at_end&&) = delete;

  ~at_end() {
    if (f_ != nullptr) (*f_)();
  }

 private:
  std::unique_ptr<F> f_;
};

vigil::options one_worker() {
  vigil::options o;
  o.workers = 1;
  return o;
}

}  // namespace

TEST_SUITE("captures at the end of the runtime") {
  TEST_CASE("are destroyed though they own the handle of their timer") {
    int alive = 0;
    in_virtual([&] {
      auto repeating = std::make_shared<session>(alive);
      repeating->beat = every(1ms, [repeating] { ++repeating->beats; });
      auto stopped = std::make_shared<session>(alive);
      stopped->beat = every(1ms, [stopped] { ++stopped->beats; });
      auto has_run = std::make_shared<session>(alive);
      has_run->beat = after_func(1ms, [has_run] { ++has_run->beats; });
      auto pending = std::make_shared<session>(alive);
      pending->beat = after_func(1h, [pending] {});
      auto posted = std::make_shared<session>(alive);
      posted->beat = vigil::post([posted] {}, vigil::stoppable);
      sleep_for(10ms);
      stopped->beat.stop();
      CHECK(has_run->beats == 1);
      CHECK(alive == 5);
    });
    CHECK(alive == 0);
  }

  TEST_CASE("are destroyed by the thread that ends it, while handles are left") {
    struct place {
      std::thread::id* id;

      ~place() { *id = std::this_thread::get_id(); }
    };

    std::thread::id where[3];
    std::vector<timer> kept;
    auto rt = std::make_unique<vigil::runtime>(one_worker());
    rt->run([&] {
      kept.push_back(after_func(0s, [p = std::make_unique<place>(place{&where[0]})] {}));
      kept.push_back(after_func(1h, [p = std::make_unique<place>(place{&where[1]})] {}));
      kept.push_back(after_func(1h, [p = std::make_unique<place>(place{&where[2]})] {}));
      kept.back().stop();
      sleep_for(1ms);
      for (std::thread::id& id : where)
        id = {};  // of the temporaries above
    });
    for (const std::thread::id& id : where)
      CHECK(id == std::thread::id());
    std::thread::id ending;
    std::thread([&] {
      ending = std::this_thread::get_id();
      rt.reset();
    }).join();
    for (const std::thread::id& id : where)
      CHECK(id == ending);
    for (const timer& t : kept) {
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.stop_and_wait());
      CHECK_THROWS_AS(t.reset(1s), vigil::runtime_gone);
    }
  }

  TEST_CASE("live on between two runs: an idle timer can be started in the next") {
    vigil::runtime rt(one_worker());
    const auto shared = std::make_shared<int>(0);
    timer stopped;
    timer has_run;
    rt.run([&] {
      stopped = after_func(1h, [shared] { ++*shared; });
      has_run = after_func(0s, [shared] { ++*shared; });
      while (*shared == 0)
        sleep_for(1ms);
    });
    CHECK(shared.use_count() == 3);
    rt.run([&] {
      stopped.reset(1ms);
      has_run.reset(1ms);
      while (*shared < 3)
        sleep_for(1ms);
    });
    CHECK(shared.use_count() == 3);
  }

  TEST_CASE("may stop, reset, wait for and drop other timers, and their own") {
    int ends = 0;
    in_virtual([&] {
      const auto others = std::make_shared<std::vector<timer>>();
      for (int i = 0; i < 100; ++i) {
        auto own = std::make_shared<timer>();
        *own =
            after_func(1h, [own, others, i, end = at_end([&ends, others, i, own] {
                                              ++ends;
                                              for (const timer& t : {*own, (*others)[0]}) {
                                                CHECK_FALSE(t.stop());
                                                CHECK_FALSE(t.stop_and_wait());
                                                if (t)
                                                  CHECK_THROWS_AS(t.reset(1s), vigil::runtime_gone);
                                              }
                                              const auto next = static_cast<std::size_t>(i + 1);
                                              (*others)[next % 100] = timer();
                                              vigil::scoped_timer last = *own;
                                            })] { static_cast<void>(i); });
        others->push_back(*own);
        if (i % 2 == 0) own->stop();
      }
    });
    CHECK(ends == 100);
  }

  TEST_CASE("are destroyed once beside threads that stop, reset and drop handles") {
    repeat(rounds(200), [](int round) {
      std::atomic<int> alive{0};

      struct counted {
        explicit counted(std::atomic<int>& n) : count(&n) { ++*count; }

        ~counted() { --*count; }

        counted(const counted&) = delete;
        counted& operator=(const counted&) = delete;
        std::atomic<int>* count;
      };

      std::vector<std::thread> threads;
      std::atomic<bool> go{false};
      {
        vigil::runtime rt(one_worker());
        rt.run([&] {
          for (int i = 0; i < 3; ++i) {
            std::vector<timer> kept;
            for (int n = 0; n < 20; ++n) {
              kept.push_back(
                  after_func(n % 3 == 0 ? 0s : 3600s, [c = std::make_unique<counted>(alive)] {}));
              if (n % 3 == 1) kept.back().stop();
            }
            threads.emplace_back([&go, kept = std::move(kept)]() mutable {
              while (!go.load())
                std::this_thread::yield();
              for (timer& t : kept) {
                t.stop();
                try {
                  t.reset(1h);
                } catch (const vigil::runtime_gone&) {
                }
                const timer copy = t;
                t = timer();
              }
            });
          }
          if (round % 2 == 0) sleep_for(50us);
        });
        go.store(true);
      }
      for (std::thread& t : threads)
        t.join();
      CHECK(alive.load() == 0);
    });
  }

  TEST_CASE("of many timers are found, and those of another runtime left alone") {
    const auto shared = std::make_shared<int>(7);
    in_virtual([&] {
      const timer other = after_func(1h, [p = shared] {});
      std::vector<timer> kept;
      std::thread([&] {
        in_virtual([&] {
          for (int i = 0; i < rounds(10'000); ++i) {
            kept.push_back(after_func(1h, [p = shared] {}));
            if (i % 3 == 0) kept.pop_back();
            if (i % 3 == 1) kept.back().stop();
          }
        });
      }).join();
      CHECK(shared.use_count() == 2);
      CHECK(other.stop());
    });
    CHECK(shared.use_count() == 1);
  }
}
