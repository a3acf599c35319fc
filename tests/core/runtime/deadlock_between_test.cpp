// Deadlocks where several runtimes run at once, in threads of one process.
#include "core/runtime/runtime_test.hpp"
#include "support/at_rest.hpp"
#include "support/hidden_deadlock.hpp"
#include "support/send_to_process.hpp"

#include <mutex>
#include <vector>

using namespace vigil::testing_support;
using vigil::channel;
using vigil::make_channel;

namespace {

vigil::options strict(std::size_t workers) {
  vigil::options o;
  o.deadlock = vigil::on_deadlock::fatal;
  o.workers = workers;
  return o;
}

// Copies the value when the fiber that holds it is unwound.
template <class From, class To>
struct copy_at_end {
  const From* from;
  To* to;

  ~copy_at_end() { *to = from->load(); }
};

template <class From, class To>
copy_at_end(From*, To*) -> copy_at_end<From, To>;

// Several runtimes that run at once. Until all of them run, a work guard holds those that
// wait for one that has yet to begin, as the contract asks.
class several {
 public:
  explicit several(const std::vector<vigil::options>& settings) : places_(settings.size()) {
    for (std::size_t i = 0; i < settings.size(); ++i) {
      places_[i].rt = std::make_unique<vigil::runtime>(settings[i]);
      places_[i].guard = places_[i].rt->make_work_guard();
    }
  }

  vigil::runtime& operator[](std::size_t i) { return *places_[i].rt; }

  // f(i) is the main fiber of the i-th runtime, called when all are running. Returns true
  // for each runtime that ended by a deadlock.
  template <class F>
  std::vector<bool> run(F f) {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < places_.size(); ++i)
      threads.emplace_back([this, i, f] { run_one(i, f); });
    for (std::thread& t : threads)
      t.join();
    if (const std::exception_ptr error = kept_failure::take()) std::rethrow_exception(error);
    std::vector<bool> stuck;
    for (const place& p : places_)
      stuck.push_back(p.is_stuck);
    return stuck;
  }

  // Runs one of them on the calling thread.
  template <class F>
  void run_one(std::size_t i, F f) {
    place& here = places_[i];
    try {
      here.rt->run([&] {
        running_.fetch_add(1);
        while (running_.load() != places_.size())
          sleep_for(10us);
        here.guard.release();
        f(i);
      });
    } catch (const vigil::deadlock&) {
      here.is_stuck = true;
    } catch (...) {
      kept_failure::keep(std::current_exception());
    }
  }

  // On a fiber of another one: until these can only be woken from outside.
  void wait_until_at_rest(const std::vector<std::size_t>& these) {
    for (const std::size_t i : these) {
      auto& sched = vigil::detail::runtime_access::core_of(*places_[i].rt).sched;
      while (!is_at_rest_for_good(sched))
        sleep_for(100us);
    }
  }

  bool is_stuck(std::size_t i) const { return places_[i].is_stuck; }

 private:
  struct place {
    std::unique_ptr<vigil::runtime> rt;
    vigil::work_guard guard;
    bool is_stuck = false;
  };

  std::vector<place> places_;
  std::atomic<std::size_t> running_{0};
};

std::vector<channel<int>> channels(std::size_t n) {
  std::vector<channel<int>> all;
  for (std::size_t i = 0; i < n; ++i)
    all.push_back(make_channel<int>());
  return all;
}

struct child {
  vigil::fiber<void> handle;
  channel<int> go_on;
};

void park_for_ever() {
  make_channel<int>().recv();
}

}  // namespace

TEST_SUITE("deadlock between runtimes") {
  TEST_CASE("is never reported for two runtimes that wait for each other's values") {
    for (const std::size_t workers : {1u, 2u}) {
      several all({strict(workers), strict(workers)});
      const auto there = make_channel<int>();
      const auto back = make_channel<int>();
      const int n = rounds(4000);
      const auto stuck = all.run([=](std::size_t i) {
        for (int round = 0; round < n; ++round) {
          if (i == 0) {
            there.send(round);
            REQUIRE(back.recv() == round);
          } else {
            back.send(there.recv().value());
          }
        }
      });
      CHECK(stuck == std::vector<bool>{false, false});
    }
  }

  TEST_CASE("is never reported for a runtime that joins another one's fibers") {
    for (const std::size_t workers : {1u, 2u}) {
      several all({strict(workers), strict(workers)});
      const auto made = make_channel<child>();
      const auto done = make_channel<int>();
      const int n = rounds(2000);
      const auto stuck = all.run([=](std::size_t i) {
        for (int round = 0; round < n; ++round) {
          if (i == 0) {
            const auto go_on = make_channel<int>();
            made.send({spawn([=] { go_on.recv(); }), go_on});
          } else {
            child c = made.recv().value();
            spawn([&c] { c.go_on.send(1); }).join();
            c.handle.join();
          }
        }
        if (i == 0) {
          done.recv();
        } else {
          done.send(1);
        }
      });
      CHECK(stuck == std::vector<bool>{false, false});
    }
  }

  TEST_CASE("is never reported for a runtime that waits for another one's timers") {
    several all({strict(2), strict(1)});
    const auto rings = make_channel<int>();
    const auto done = make_channel<int>();
    const int n = rounds(2000);
    const auto stuck = all.run([&, n](std::size_t i) {
      if (i == 0) {
        done.recv();
      } else {
        for (int round = 0; round < n; ++round) {
          const auto t = all[0].after_func(20us, [rings, round] { rings.send(round); });
          REQUIRE(rings.recv() == round);
        }
        done.send(1);
      }
    });
    CHECK(stuck == std::vector<bool>{false, false});
  }

  TEST_CASE("seventy runtimes run at once, and pass a value round without a report") {
    constexpr std::size_t many = 70;
    several all(std::vector<vigil::options>(many, strict(1)));
    const auto to = channels(many);
    const int laps = rounds(20);
    const auto stuck = all.run([&to, laps](std::size_t i) {
      for (int lap = 0; lap < laps; ++lap) {
        if (i == 0) {
          to[1].send(lap);
          REQUIRE(to[0].recv() == lap);
        } else {
          to[(i + 1) % many].send(to[i].recv().value());
        }
      }
    });
    CHECK(stuck == std::vector<bool>(many, false));
  }

  TEST_CASE("a signal of stop_on ends each of seventy runtimes") {
    constexpr std::size_t many = 70;
    vigil::options o = strict(1);
    o.stop_on = {SIGUSR2};
    o.grace = 0s;
    several all(std::vector<vigil::options>(many, o));
    // A runtime that does not hear of the signal sleeps on.
    const auto stuck = all.run([](std::size_t i) {
      if (i == many - 1) send_to_process(SIGUSR2);
      sleep_for(std::chrono::hours::max());
    });
    CHECK(stuck == std::vector<bool>(many, false));
  }

  TEST_CASE("runtimes that are stuck on each other are all reported, and each run throws") {
    for (const std::size_t n : {2u, 3u, 70u}) {
      several all(std::vector<vigil::options>(n, strict(n == 70 ? 1 : 2)));
      const auto to = channels(n);
      const auto stuck = all.run([&to, n](std::size_t i) {
        to[i].recv();
        to[(i + 1) % n].send(1);
      });
      CHECK(stuck == std::vector<bool>(n, true));
    }
  }

  TEST_CASE("a runtime that is stuck is reported once the last other one has ended") {
    several all({strict(2), strict(1), strict(2)});
    std::atomic<int> ended{0};
    const auto one_ends = make_channel<int>();
    std::atomic<int> ended_before{-1};
    const auto stuck = all.run([&](std::size_t i) {
      if (i == 0) {
        const copy_at_end at_end{&ended, &ended_before};

        park_for_ever();
      } else if (i == 1) {
        one_ends.recv();
        ended.fetch_add(1);
      } else {
        all.wait_until_at_rest({0, 1});
        one_ends.send(1);
        // Sleeps on purpose: time in which a false report could come.
        sleep_for(20ms);
        ended.fetch_add(1);
      }
    });
    CHECK(stuck == std::vector<bool>{true, false, false});
    CHECK(ended_before.load() == 2);
  }

  TEST_CASE("a runtime that is stuck is reported once the last other one is stuck as well") {
    several all({strict(2), strict(2)});
    std::atomic<bool> over{false};
    std::atomic<bool> was_over{false};
    const auto stuck = all.run([&](std::size_t i) {
      if (i == 0) {
        const copy_at_end at_end{&over, &was_over};

        park_for_ever();
      } else {
        all.wait_until_at_rest({0});
        // Each round lies down anew beside the other, which is not to be taken for stuck.
        for (int round = 0; round < 20; ++round)
          sleep_for(1ms);
        over.store(true);
        park_for_ever();
      }
    });
    CHECK(stuck == std::vector<bool>{true, true});
    CHECK(was_over.load());
  }

  TEST_CASE("is not reported while another runtime has outside work or waits for a signal") {
    vigil::options hears = strict(1);
    hears.stop_on = {SIGUSR2};
    hears.grace = 0s;
    several all({strict(1), hears, strict(1)});
    std::atomic<bool> signalled{false};
    std::atomic<bool> was_signalled{false};
    const auto stuck = all.run([&](std::size_t i) {
      if (i == 0) {
        const copy_at_end at_end{&signalled, &was_signalled};

        park_for_ever();
      } else if (i == 1) {
        sleep_for(std::chrono::hours::max());
      } else {
        all.wait_until_at_rest({0, 1});
        // Blocks on purpose, as outside work does: time for a false report.
        vigil::blocking([] { std::this_thread::sleep_for(20ms); });
        sleep_for(1ms);
        signalled.store(true);
        send_to_process(SIGUSR2);
      }
    });
    CHECK(stuck == std::vector<bool>{true, false, false});
    CHECK(was_signalled.load());
  }

  TEST_CASE("on virtual time it is not reported while another runtime may still do something") {
    several all({strict(1)});
    const auto values = make_channel<int>();
    std::atomic<bool> ended{false};
    std::thread other;
    bool ended_before = false;
    CHECK_THROWS_AS(
        vigil::testing::run_virtual([&] {
          vigil::runtime& here = vigil::runtime::current();
          other = std::thread([&, g = here.make_work_guard()]() mutable {
            all.run_one(0, [&](std::size_t) {
              g.release();
              while (!is_at_rest_for_good(vigil::detail::runtime_access::core_of(here).sched))
                sleep_for(100us);
              values.send(1);
              here.after_func(1h, [values] { values.send(2); });
              // Sleeps on purpose, as above.
              sleep_for(20ms);
              ended.store(true);
            });
          });

          const copy_at_end at_end{&ended, &ended_before};

          REQUIRE(values.recv() == 1);
          REQUIRE(values.recv() == 2);
          park_for_ever();
        }),
        vigil::deadlock);
    other.join();
    CHECK(ended_before);
    CHECK(!all.is_stuck(0));
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer may have a thread of its own
  TEST_CASE("child: two runtimes alone" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    several all({o, o});
    const auto never = make_channel<int>();
    const auto stuck = [&](std::size_t i) {
      vigil::this_fiber::set_name(i == 0 ? "the stuck one" : "another stuck one");
      never.recv();
    };
    std::thread second([&] { all.run_one(1, stuck); });
    all.run_one(0, stuck);
    second.join();
    CHECK(all.is_stuck(0));
    CHECK(all.is_stuck(1));
  }

  TEST_CASE("alone in the process it is fatal to all, and one dump names the fibers of all") {
    if (is_deadlock_hidden()) return;
    const child_result r = run_child("child: two runtimes alone");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("vigil: deadlock"));
    CHECK(r.says("the 2 runtimes that run"));
    CHECK(r.says("the stuck one"));
    CHECK(r.says("another stuck one"));
    CHECK(r.output.find("vigil: deadlock") == r.output.rfind("vigil: deadlock"));
  }
#endif

  // The other runtime's workers are free to run what the reporting thread readies.
  TEST_CASE("the lock waits that are open end together when another runtime finds them") {
    for (const std::size_t workers : {1u, 2u, 4u}) {
      constexpr std::size_t pairs = 500;
      several all({strict(workers), strict(1)});
      std::vector<vigil::mutex> held(pairs);
      std::atomic<std::size_t> got{0};
      std::atomic<std::size_t> ended{0};
      const auto stuck = all.run([&](std::size_t i) {
        if (i == 1) {
          all.wait_until_at_rest({0});
          return;  // the end of this run finds the other one stuck
        }
        std::vector<vigil::fiber<void>> holders;
        for (vigil::mutex& m : held) {
          holders.push_back(spawn([&] {
            const std::lock_guard first(m);
            vigil::go([&] {
              try {
                m.lock();
                got.fetch_add(1);
                m.unlock();
              } catch (const vigil::deadlock&) {
                ended.fetch_add(1);
              }
            });
            const std::lock_guard twice(m);
          }));
        }
        park_for_ever();
      });
      CHECK(stuck == std::vector<bool>{true, false});
      CHECK(ended.load() == pairs);
      CHECK(got.load() == 0);
    }
  }
}
