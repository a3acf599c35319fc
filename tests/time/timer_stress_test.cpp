// Real time, several workers, plain threads. Each promise is checked under
// every interleaving that comes; no delay is bounded from above.
#include "time/timer_helpers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <thread>

#include <malloc.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using std::chrono::microseconds;
using std::chrono::nanoseconds;
using vigil::after;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::sleep_for;
using vigil::ticker;
using vigil::timer;
using vigil::timer_receiver;

// VIGIL_LONG=1: fifty times as long.
int many(int full) {
  static const bool is_long = std::getenv("VIGIL_LONG") != nullptr;
  return is_long ? full * 50 : rounds(full);
}

// Starts n fibers with body(i), and waits for them.
template <class F>
void in_fibers(int n, F body) {
  std::vector<vigil::fiber<>> fibers;
  for (int i = 0; i < n; ++i)
    fibers.push_back(vigil::spawn([&body, i] { body(i); }));
  for (auto& f : fibers)
    f.join();
}

// A plain thread beside the calling fiber's runtime. The fiber that waits for
// its end parks, and the workers go on.
class plain_thread {
 public:
  template <class F>
  explicit plain_thread(F body)
      : thread_([this, body = std::move(body)]() mutable {
          body();
          done_.send();
        }) {}

  plain_thread(const plain_thread&) = delete;
  plain_thread& operator=(const plain_thread&) = delete;

  void join() {
    done_.recv();
    thread_.join();
  }

 private:
  vigil::work_guard is_no_deadlock_ = vigil::runtime::current().make_work_guard();
  vigil::channel<void> done_ = vigil::make_channel<void>(1);
  std::thread thread_;
};

vigil::options with_workers(std::size_t n) {
  vigil::options o;
  o.workers = n;
  return o;
}

// What receivers got, from several of them.
class log_of_values {
 public:
  void add(instant value) {
    const std::lock_guard guard(lock_);
    values_.push_back(value);
  }

  std::vector<instant> sorted() {
    const std::lock_guard guard(lock_);
    std::sort(values_.begin(), values_.end());
    return values_;
  }

 private:
  std::mutex lock_;  // held for a few instructions, never across a park
  std::vector<instant> values_;
};

bool all_differ(const std::vector<instant>& sorted) {
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

// Receives until `end` is closed.
void receive_all(const timer_receiver& from, const vigil::channel<void>& end, log_of_values& log) {
  for (bool on = true; on;) {
    vigil::select(on_recv(from,
                          [&](std::optional<instant> v) {
                            REQUIRE(v.has_value());
                            REQUIRE(vigil::clock::now() >= *v);
                            log.add(*v);
                          }),
                  on_recv(end, [&] { on = false; }));
  }
}

template <class F>
void for_both(F body) {
  body(timer(5h));
  body(ticker(5h));
}

std::size_t bytes_in_use() {
  return ::mallinfo2().uordblks;
}

}  // namespace

TEST_SUITE("timers with channels in real time") {
  // Go: TestAfter, TestAfterTick.
  TEST_CASE("none comes before its deadline, and each hands that over") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      in_fibers(8, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        for (int round = 0; round < rounds(200); ++round) {
          const nanoseconds delay(dice.below(200'000));
          const auto before = vigil::clock::now();
          timer t(delay);
          const instant deadline = t.deadline();
          REQUIRE(deadline >= before + delay);
          instant got{};
          switch (dice.below(4)) {
            case 0:
              got = t.channel().recv().value();
              break;
            case 1:
              got = t.channel().recv_for(1h).value();
              break;
            case 2:
              vigil::select(on_timeout(1h), on_recv(t.channel(), [&](std::optional<instant> v) {
                              got = *v;
                            }));
              break;
            default:
              for (bool there = false; !there; vigil::this_fiber::yield()) {
                if (auto r = t.channel().try_recv()) {
                  there = true;
                  got = *r;
                }
              }
          }
          REQUIRE(got == deadline);
          REQUIRE(vigil::clock::now() >= deadline);
          REQUIRE_FALSE(t.stop());
        }
      });
    });
  }

  // Go: TestZeroTimer; 2.1: fires while the receiver is on its way to park.
  TEST_CASE("none of many zero and tiny ones is missed, new or used again") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      in_fibers(4, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        timer again(1h);
        for (int round = 0; round < many(5'000); ++round) {
          REQUIRE(after(0s).recv().has_value());
          again.reset(0s);
          REQUIRE(again.channel().recv().has_value());
          again.reset(nanoseconds(1 + dice.below(3000)));
          REQUIRE(again.channel().recv().has_value());
          REQUIRE(after(nanoseconds(1 + dice.below(3000))).recv().has_value());
        }
      });
    });
  }

  // Go: TestStopResult, TestResetResult (go#69312).
  TEST_CASE("stop and reset are true for the one of two that the select did not take") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      in_fibers(16, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        for (int round = 0; round < many(200); ++round) {
          const nanoseconds delay(dice.below(50'000));
          timer a(delay);
          timer b(delay);
          const bool first = vigil::select(on_recv(a.channel()), on_recv(b.channel())) == 0;
          timer& taken = first ? a : b;
          timer& left = first ? b : a;
          REQUIRE_FALSE(taken.stop());
          REQUIRE_FALSE(taken.channel().try_recv());
          if (dice.below(2) == 0) {
            REQUIRE(left.stop());
          } else {
            REQUIRE(left.reset(1h));
          }
          REQUIRE_FALSE(left.channel().try_recv());
        }
      });
    });
  }

  // Go: TestChan 4, with racing expiry.
  TEST_CASE("after a reset to the far future nothing stale is there, however near the expiry") {
    in_runtime({.workers = {1, 2}}, [] {
      in_fibers(4, [](int i) {
        seeded dice(static_cast<std::uint64_t>(i) + 1);
        timer t(1h);
        ticker k(1h);
        for (int round = 0; round < many(5'000); ++round) {
          REQUIRE(t.reset(nanoseconds(dice.below(2'000))));
          REQUIRE(k.reset(nanoseconds(1 + dice.below(2'000))));
          for (auto spin = dice.below(300); spin > 0; --spin)
            static_cast<void>(vigil::clock::now());
          REQUIRE(t.reset(1h));  // nobody else receives
          REQUIRE(k.reset(1h));
          REQUIRE_FALSE(t.channel().try_recv());
          REQUIRE_FALSE(k.channel().try_recv());
        }
      });
    });
  }

  // Every arming has a deadline of its own, by which its value is known.
  TEST_CASE("each arming is received once or was prevented: fibers and a thread against one owner") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = many(4'000);
      timer t(1h);
      const auto end = vigil::make_channel<void>();
      log_of_values log;
      std::vector<vigil::fiber<>> receivers;
      for (int i = 0; i < 3; ++i)
        receivers.push_back(vigil::spawn([&, c = t.channel()] { receive_all(c, end, log); }));
      plain_thread thread([&, c = t.channel()] { receive_all(c, end, log); });

      seeded dice(1);
      std::vector<instant> lets;  // armings that nothing prevented, in rising order
      REQUIRE(t.stop());
      instant armed = vigil::clock::now();
      bool is_armed = false;
      for (int round = 0; round < n; ++round) {
        if (dice.below(8) == 0) {
          if (t.stop()) {
            REQUIRE(is_armed);
          } else if (is_armed) {
            lets.push_back(armed);
          }
          is_armed = false;
        } else {
          const instant next =
              std::max(armed + 1ns, vigil::clock::now() + nanoseconds(dice.below(20'000)));
          if (t.reset(next)) {
            REQUIRE(is_armed);
          } else if (is_armed) {
            lets.push_back(armed);
          }
          armed = next;
          is_armed = true;
        }
        switch (dice.below(4)) {
          case 0:
            sleep_for(nanoseconds(dice.below(40'000)));
            break;
          case 1:
            vigil::this_fiber::yield();
            break;
          default:
            break;
        }
      }
      if (!t.stop() && is_armed) lets.push_back(armed);
      end.close();
      for (auto& f : receivers)
        f.join();
      thread.join();
      CHECK(log.sorted() == lets);
      CHECK(lets.size() > 10);
    });
  }

  TEST_CASE("several reset and stop one timer while others receive: no value of an ended arming") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const int n = many(3'000);
      timer t(1h);
      REQUIRE(t.stop());
      const auto end = vigil::make_channel<void>();
      log_of_values log;
      std::vector<vigil::fiber<>> receivers;
      for (int i = 0; i < 2; ++i)
        receivers.push_back(vigil::spawn([&, c = t.channel()] { receive_all(c, end, log); }));
      plain_thread thread([&, c = t.channel()] { receive_all(c, end, log); });

      std::atomic<long> prevented{0};
      std::array<std::vector<instant>, 4> armed;
      const auto hammer = [&](std::size_t who) {
        seeded dice(who + 1);
        // The last two bits say who armed, the others rise: each is unlike all others.
        std::int64_t last = 0;
        for (int round = 0; round < n; ++round) {
          if (dice.below(4) == 0) {
            prevented.fetch_add(t.stop() ? 1 : 0);
          } else {
            const auto now = vigil::clock::now().time_since_epoch().count();
            last = std::max(last + 4, now + static_cast<std::int64_t>(dice.below(10'000)));
            last = (last & ~std::int64_t{3}) | static_cast<std::int64_t>(who);
            const instant deadline{nanoseconds(last)};
            armed[who].push_back(deadline);
            prevented.fetch_add(t.reset(deadline) ? 1 : 0);
          }
          if (dice.below(64) == 0) std::this_thread::yield();
        }
      };
      plain_thread one([&] { hammer(0); });
      plain_thread two([&] { hammer(1); });
      in_fibers(2, [&](int i) { hammer(static_cast<std::size_t>(i) + 2); });
      one.join();
      two.join();
      prevented.fetch_add(t.stop() ? 1 : 0);
      REQUIRE_FALSE(t.channel().try_recv());
      end.close();
      for (auto& f : receivers)
        f.join();
      thread.join();

      std::vector<instant> all;
      for (const auto& mine : armed)
        all.insert(all.end(), mine.begin(), mine.end());
      std::sort(all.begin(), all.end());
      const auto got = log.sorted();
      CHECK(all_differ(got));
      CHECK(std::includes(all.begin(), all.end(), got.begin(), got.end()));
      // Each arming was either received, or ended by exactly one true.
      CHECK(all.size() == got.size() + static_cast<std::size_t>(prevented.load()));
    });
  }

  // The same for the order: what a receive that begins after a reset has
  // returned gets is not older than that reset.
  TEST_CASE("a receive that begins after a reset has returned gets nothing older") {
    in_runtime({.workers = {2, 4}}, [] {
      for (const bool ticks : {false, true}) {
        timer t(1h);
        ticker k(1h);
        const timer_receiver c = ticks ? k.channel() : t.channel();
        std::atomic<std::int64_t> floor{0};  // of the arming in force and all to come
        std::atomic<bool> done{false};
        std::vector<vigil::fiber<>> receivers;
        for (int i = 0; i < 3; ++i) {
          receivers.push_back(vigil::spawn([&] {
            while (!done.load()) {
              const std::int64_t least = floor.load();
              const auto got = c.recv_for(20us);
              if (got) REQUIRE(got.value().time_since_epoch().count() >= least);
              vigil::this_fiber::yield();  // a tick may be due at every look
            }
          }));
        }
        seeded dice(7);
        instant least{};
        for (int round = 0; round < many(3'000); ++round) {
          least = std::max(least, vigil::clock::now() + nanoseconds(1 + dice.below(5'000)));
          if (ticks) {
            k.reset(least - vigil::clock::now(), nanoseconds(1 + dice.below(5'000)));
          } else {
            t.reset(least);
          }
          floor.store(least.time_since_epoch().count());
          if (dice.below(4) == 0) sleep_for(nanoseconds(dice.below(20'000)));
        }
        done.store(true);
        for (auto& f : receivers)
          f.join();
      }
    });
  }

  // Go: 2.1, Stop by several goroutines.
  TEST_CASE("of many that stop one timer while another receives exactly one takes it") {
    in_runtime({.workers = {1, 2}}, [] {
      for (int round = 0; round < rounds(200); ++round) {
        timer t(microseconds(round % 50));
        std::atomic<int> taken{0};
        auto receiver = vigil::spawn([&, c = t.channel()] {
          if (c.recv_for(microseconds(round % 60))) taken.fetch_add(1);
        });
        std::vector<std::unique_ptr<plain_thread>> threads;
        for (int i = 0; i < 2; ++i) {
          threads.push_back(
              std::make_unique<plain_thread>([&] { taken.fetch_add(t.stop() ? 1 : 0); }));
        }
        in_fibers(2, [&](int) { taken.fetch_add(t.stop() ? 1 : 0); });
        for (auto& thread : threads)
          thread->join();
        receiver.join();
        REQUIRE(taken.load() == 1);
        REQUIRE_FALSE(t.channel().try_recv());
      }
    });
  }

  TEST_CASE("of concurrent resets the last to return decides, with a receiver blocked") {
    in_runtime({.workers = {2}}, [] {
      for (int round = 0; round < rounds(100); ++round) {
        timer t(1h);
        instant got{};
        auto receiver = vigil::spawn([&, c = t.channel()] { got = c.recv().value(); });
        std::vector<std::unique_ptr<plain_thread>> threads;
        for (int i = 0; i < 2; ++i) {
          threads.push_back(std::make_unique<plain_thread>([&, i] {
            for (int n = 0; n < 20; ++n)
              t.reset(std::chrono::minutes(i + n + 1));
          }));
        }
        for (auto& thread : threads)
          thread->join();
        REQUIRE(t.reset(1h));
        REQUIRE(t.remaining() > 59min);
        const instant last = vigil::clock::now() + 10us;
        REQUIRE(t.reset(last));
        receiver.join();
        REQUIRE(got == last);
        REQUIRE_FALSE(t.stop());
      }
    });
  }

  // Go: TestNoRaceTimerReset, TestNoRaceTickerReset; for ThreadSanitizer.
  TEST_CASE("what was written before a reset is seen by who receives") {
    in_runtime({.workers = {2, 4}}, [] {
      timer t(1h);
      ticker k(1h);
      const auto seen = vigil::make_channel<int>();
      int plain = 0;
      for (const timer_receiver& c : {t.channel(), k.channel()}) {
        auto receiver = vigil::spawn([&, c] {
          for (int round = 1; round <= rounds(2'000); ++round) {
            if (round % 3 == 0) vigil::this_fiber::yield();
            c.recv();
            seen.send(plain);
          }
        });
        seeded dice(3);
        for (int round = 1; round <= rounds(2'000); ++round) {
          plain = round;
          const nanoseconds delay(dice.below(2'000));
          c == t.channel() ? t.reset(delay) : k.reset(delay, 1h);
          REQUIRE(seen.recv() == round);
        }
        receiver.join();
      }
    });
  }

  // Go: TestMultiWakeupTicker.
  TEST_CASE("a fast ticker for many: each tick once, on the grid, the dropped ones counted") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      constexpr nanoseconds period = 1us;
      ticker t(period);
      const instant first = t.deadline();
      log_of_values log;
      in_fibers(8, [&](int) {
        for (int round = 0; round < many(1'000); ++round) {
          vigil::select(on_recv(t.channel(),
                                [&](std::optional<instant> v) {
                                  REQUIRE(vigil::clock::now() >= *v);
                                  log.add(*v);
                                }),
                        on_recv(after(1ms)));
        }
      });
      REQUIRE(t.stop());
      const auto got = log.sorted();
      CHECK(all_differ(got));
      REQUIRE_FALSE(got.empty());
      CHECK(got.front() == first);
      for (const instant at : got)
        REQUIRE((at - first) % period == 0ns);
      // All up to the last look; a few more may have been dropped in it.
      CHECK(static_cast<std::int64_t>(got.size() + t.missed()) >= (got.back() - first) / period + 1);
    });
  }

  TEST_CASE("received ticks, missed ones and the next one account for all") {
    in_runtime({.workers = {1, 2}}, [] {
      constexpr nanoseconds period = 700ns;
      ticker t(period);
      const instant first = t.deadline();
      std::atomic<std::int64_t> received{0};
      in_fibers(4, [&](int i) {
        for (int round = 0; round < many(1'000); ++round) {
          if ((round + i) % 3 == 0) {
            if (t.channel().try_recv()) received.fetch_add(1);
          } else {
            t.channel().recv();
            received.fetch_add(1);
          }
        }
      });
      // Nobody receives any more: what is in force is the next one.
      CHECK((t.deadline() - first) / period ==
            received.load() + static_cast<std::int64_t>(t.missed()));
    });
  }

  // Go: TestTickerStress.
  TEST_CASE("a ticker of a nanosecond ticks beside a busy program") {
    in_runtime({.workers = {1, 2}}, [] {
      std::atomic<bool> done{false};
      auto busy = vigil::spawn([&] {
        while (!done.load()) {
          sleep_for(1ns);
          static_cast<void>(std::make_unique<std::array<char, 4096>>());
        }
      });
      ticker t(1ns);
      instant last{};
      for (int i = 0; i < rounds(2'000); ++i) {
        const instant at = t.channel().recv().value();
        REQUIRE(at > last);
        last = at;
      }
      done.store(true);
      busy.join();
    });
  }

  // Go: TestTimerFairness (go#16608).
  TEST_CASE("a select between senders that are always ready comes to its timer") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto values = vigil::make_channel<int>();
      const auto end = vigil::make_channel<void>();
      std::vector<vigil::fiber<>> senders;
      for (int i = 0; i < 2; ++i) {
        senders.push_back(vigil::spawn([&] {
          while (vigil::select(vigil::on_send(values, 1), on_recv(end)) == 0) {
          }
        }));
      }
      const auto enough = after(5ms);
      while (vigil::select(on_recv(values), on_recv(enough)) == 0) {
      }
      const ticker beat(1ms);
      for (int ticks = 0; ticks < 5;)
        vigil::select(on_recv(values), on_recv(beat.channel(), [&] { ++ticks; }));
      end.close();
      for (auto& f : senders)
        f.join();
    });
  }

  // Go: TestTimerFairness2.
  TEST_CASE("fibers that send, receive and make system calls all come to their timers") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto values = vigil::make_channel<int>();
      in_fibers(2, [&](int) {
        const auto enough = after(5ms);
        char none;
        for (bool on = true; on;) {
          static_cast<void>(::read(0, &none, 0));
          vigil::select(vigil::on_send(values, 1), on_recv(values),
                        on_recv(enough, [&] { on = false; }));
        }
      });
    });
  }
}

TEST_SUITE("timers with channels and plain threads") {
  TEST_CASE("a thread receives what a fiber armed, never early, and stops and resets it") {
    in_runtime({.workers = {1, 2}}, [] {
      timer t(1h);
      ticker k(100us);
      const auto deadline_after = after(1ms);
      plain_thread thread([&, t, k, deadline_after]() mutable {
        const auto got = deadline_after.recv();
        REQUIRE(vigil::clock::now() >= got.value());
        REQUIRE(t.remaining() > 59min);
        for (int i = 0; i < rounds(100); ++i) {
          const auto before = vigil::clock::now();
          REQUIRE(t.reset(100us) == (i == 0));
          const instant at = t.channel().recv().value();
          REQUIRE(at >= before + 100us);
          REQUIRE(vigil::clock::now() >= at);
          const instant tick = k.channel().recv().value();
          REQUIRE(vigil::clock::now() >= tick);
        }
        t.reset(1h);
        REQUIRE(t.channel().recv_for(1us).is_timeout());
        REQUIRE(vigil::select(on_recv(t.channel()), on_recv(k.channel())) == 1);
        REQUIRE(t.stop());
        REQUIRE_FALSE(t.stop());
        REQUIRE(k.stop());
        REQUIRE_FALSE(k.channel().try_recv());
      });
      thread.join();
    });
  }

  TEST_CASE("threads and fibers on one ticker get each tick once") {
    in_runtime({.workers = {1, 2}}, [] {
      ticker t(20us);
      const instant first = t.deadline();
      const auto end = vigil::make_channel<void>();
      log_of_values log;
      plain_thread one([&, c = t.channel()] { receive_all(c, end, log); });
      plain_thread two([&, c = t.channel()] { receive_all(c, end, log); });
      auto three = vigil::spawn([&, c = t.channel()] { receive_all(c, end, log); });
      while (log.sorted().size() < 100)
        sleep_for(1ms);
      end.close();
      three.join();
      one.join();
      two.join();
      const auto got = log.sorted();
      CHECK(all_differ(got));
      for (const instant at : got)
        REQUIRE((at - first) % 20us == 0ns);
      CHECK(static_cast<std::int64_t>(got.size() + t.missed()) == (t.deadline() - first) / 20us);
    });
  }

  TEST_CASE("a thread that waits on a pending one when the runtime ends is told that it is closed") {
    for (const bool ticks : {false, true}) {
      std::vector<std::thread> threads;
      std::atomic<int> told{0};
      timer kept;
      vigil::run(with_workers(2), [&] {
        timer t(1h);
        ticker k(1h);
        kept = t;
        const timer_receiver c = ticks ? k.channel() : t.channel();
        const auto other = after(1h);
        threads.emplace_back([&, c] { told.fetch_add(c.recv().has_value() ? 0 : 1); });
        threads.emplace_back([&, c] { told.fetch_add(c.recv_for(1h).is_closed() ? 1 : 0); });
        threads.emplace_back([&, c = other] {
          vigil::select(on_recv(vigil::make_channel<int>()),
                        on_recv(c, [&](std::optional<instant> v) { told.fetch_add(v ? 0 : 1); }));
        });
        // Both channels are waited on; the second thread may still be on its way.
        while (pending() < 2)
          vigil::this_fiber::yield();
      });
      for (auto& thread : threads)
        thread.join();
      CHECK(told.load() == 3);
      CHECK_THROWS_AS(kept.reset(1s), vigil::runtime_gone);
    }
  }

  TEST_CASE("threads that wait again and again across the end of a runtime are all told") {
    for (int round = 0; round < rounds(60); ++round) {
      std::vector<std::thread> threads;
      std::atomic<int> ended{0};
      vigil::run(with_workers(2), [&] {
        ticker k(1us);
        timer t(1us);
        for (int i = 0; i < 2; ++i) {
          threads.emplace_back([&, k, t, i]() mutable {
            const auto c = i == 0 ? k.channel() : t.channel();
            try {
              while (c.recv()) {
                if (i == 1) t.reset(1us);
              }
            } catch (const vigil::runtime_gone&) {  // of the reset
              CHECK(i == 1);
            }
            ended.fetch_add(1);
          });
        }
        sleep_for(microseconds(round * 5));
      });
      for (auto& thread : threads)
        thread.join();
      CHECK(ended.load() == 2);
    }
  }

  TEST_CASE("a fiber of another runtime waits on one as well, and is told of the end") {
    vigil::runtime other(with_workers(1));
    const auto ready = vigil::make_channel<timer>(1);
    std::atomic<int> received{0};
    std::atomic<bool> closed{false};
    std::thread thread([&] {
      other.run([&] {
        timer t = ready.recv().value();
        for (int i = 0; i < 100; ++i) {
          const instant at = t.channel().recv().value();
          REQUIRE(vigil::clock::now() >= at);
          received.fetch_add(1);
          REQUIRE_FALSE(t.reset(10us));
        }
        t.reset(1h);
        received.fetch_add(1);
        closed.store(!t.channel().recv().has_value());
      });
    });
    vigil::run(with_workers(2), [&] {
      ready.send(timer(1ms));
      while (received.load() != 101 || pending() < 1)
        vigil::this_fiber::yield();
    });
    thread.join();
    CHECK(closed.load());
  }

  TEST_CASE("a scoped_timer on a thread waits for the callback that is running") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      for (int round = 0; round < rounds(100); ++round) {
        const auto begun = vigil::make_channel<void>(1);
        std::atomic<bool> in_scope{true};
        std::atomic<bool> ended{false};
        plain_thread thread([&] {
          {
            const vigil::scoped_timer t = rt.after_func(0s, [&] {
              begun.send();
              sleep_for(50us);
              REQUIRE(in_scope.load());
              ended.store(true);
            });
            begun.recv();
          }
          in_scope.store(false);
          REQUIRE(ended.load());
        });
        thread.join();
      }
    });
  }
}

TEST_SUITE("memory of timers with channels") {
  // Go: TestTimerGC (go#8898).
  TEST_CASE("ten thousand made and dropped, running, stopped and reset, leave nothing") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_virtual([] {
      const auto make_all = [] {
        for (int i = 0; i < 10'000; ++i) {
          static_cast<void>(after(1h));
          static_cast<void>(vigil::tick(1h));
          timer t(1h);
          ticker k(1h);
          if (i % 2 == 0) t.stop();
          if (i % 3 == 0) k.stop();
          if (i % 5 == 0) t.reset(0s);
          if (i % 7 == 0) k.reset(1ns);
          if (i % 11 == 0) static_cast<void>(vigil::select(on_recv(t.channel()), on_timeout(1ns)));
        }
      };
      make_all();
      const std::size_t before = bytes_in_use();
      make_all();
      CHECK(bytes_in_use() <= before + 16 * 1024);
      CHECK(vigil::stats().heap_entries <= 4'000);
    });
#endif
  }

  // Each arming holds a handle of the channel until it ends.
  TEST_CASE("whatever ends the wait of a receiver, nothing is left of timer and channel") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_virtual([] {
      const auto wait_in_every_way = [] {
        for (int i = 0; i < 200; ++i) {
          for_both([&](auto t) {
            waiting w(t.channel());
            vigil::testing::settle();
            if (i % 2 == 0) t.reset(1h);  // sooner
            if (i % 3 == 0) t.reset(10h);
            if (i % 5 == 0) t.stop();
            if (i % 7 == 0) t.reset(30min);
            if (t.deadline() == no_deadline || i % 4 == 0) {
              w.leave();
            } else {
              sleep_for(24h);
              CHECK(w.is_done);
            }
            if (i % 3 == 1) CHECK(t.channel().recv_for(1ns).status() != vigil::channel_status::closed);
          });
        }
      };
      for (int i = 0; i < 20; ++i)
        wait_in_every_way();  // dead entries have reached their bound
      const std::size_t before = bytes_in_use();
      for (int i = 0; i < 20; ++i)
        wait_in_every_way();
      CHECK(bytes_in_use() <= before + 16 * 1024);
    });
#endif
  }

  TEST_CASE("is flat over a million selects that find a value beside an after") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_runtime({.workers = {1}}, [] {
      const auto values = vigil::make_channel<int>(1);
      const auto turn = [&](int i) {
        values.send(i);
        REQUIRE(vigil::select(on_recv(values), on_recv(after(1s))) == 0);
      };
      for (int i = 0; i < 1000; ++i)
        turn(i);
      const std::size_t before = bytes_in_use();
      const auto stats_before = vigil::stats();
      for (int i = 0; i < rounds(1'000'000); ++i)
        turn(i);
      CHECK(bytes_in_use() <= before + 4 * 1024);
      const auto now = vigil::stats();
      CHECK(now.timers_armed == stats_before.timers_armed);
      CHECK(now.heap_entries == stats_before.heap_entries);
      CHECK(now.stacks_in_use == stats_before.stacks_in_use);
    });
#endif
  }

  TEST_CASE("is flat over a hundred thousand selects that wait beside an after and a timeout") {
#ifndef VIGIL_TEST_UNDER_SANITIZER
    in_runtime({.workers = {1, 2}}, [] {
      const auto values = vigil::make_channel<int>();
      const int n = rounds(100'000);
      std::size_t before = 0;
      std::size_t most = 0;
      auto receiver = vigil::spawn([&] {
        for (int i = 0; i < n; ++i) {
          vigil::select(on_recv(values), on_recv(after(1h)), on_timeout(2h));
          if (i == n / 4) before = bytes_in_use();
          if (i > n / 4 && i % 1000 == 0) most = std::max(most, bytes_in_use());
        }
      });
      for (int i = 0; i < n; ++i)
        values.send(i);
      receiver.join();
      // Dead entries are bounded, and what they hold with them.
      CHECK(most <= before + 2 * 1024 * 1024);
      CHECK(pending() == 0);
    });
#endif
  }
}
