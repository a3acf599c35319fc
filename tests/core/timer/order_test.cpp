// options::equal_deadlines: timers with equal deadlines fire in the order of arming.
#include "core/timer/timer_service.hpp"
#include "core/timer/timer_test.hpp"

#include <algorithm>

using namespace vigil::testing_support;
using vigil::detail::runtime_timer;
using vigil::detail::timer_service;

namespace VIGIL_DETAIL {

struct test_access {
  // Makes the next arming the one with that number.
  static void count_from(timer_service& s, std::uint64_t number) {
    s.parts_->heap.armings_.store(number);
  }
};

}  // namespace VIGIL_DETAIL

namespace {

vigil::options as_armed() {
  vigil::options o;
  o.equal_deadlines = vigil::timer_order::as_armed;
  return o;
}

template <class F>
void for_each_seed_as_armed(F body) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed)
    in_virtual({.seed = seed, .runtime = as_armed()}, body);
}

timer_service& service_here() {
  return vigil::detail::service_of(*vigil::detail::current_scheduler());
}

// Timers that add a letter each when they run.
class letters {
 public:
  template <class D>
  timer after(const D& d, char letter) {
    return after_func(d, [this, letter] { run_ += letter; });
  }

  template <class D>
  timer every(const D& d, char letter) {
    return vigil::every(d, [this, letter] { run_ += letter; });
  }

  const std::string& run() const { return run_; }

 private:
  std::string run_;
};

// Timers of the channel layer, which fire one after the other on the timer fiber, however
// many workers there are.
class bells {
 public:
  explicit bells(std::size_t n) : all_(n) {
    timer_service& s = service_here();
    for (one& b : all_) {
      b = {this, static_cast<int>(&b - all_.data()), nullptr};
      b.timer = s.make_send(&bells::ring, &b, s.generation());
    }
  }

  ~bells() {
    for (const one& b : all_)
      release_record(*b.timer);
  }

  bells(const bells&) = delete;
  bells& operator=(const bells&) = delete;

  std::size_t size() const { return all_.size(); }

  void arm(std::size_t i, vigil::clock::time_point deadline) {
    service_here().arm_at(*all_[i].timer, deadline.time_since_epoch().count());
  }

  // The numbers of all bells, in the order in which they rang: once each.
  std::vector<int> wait() {
    while (rung_count_.load() < static_cast<int>(all_.size()))
      sleep_for(100us);
    return std::vector<int>(rung_.begin(), rung_.begin() + std::ssize(all_));
  }

  // Until none will ring any more, even if some were armed again after they had rung.
  void end() {
    bells last(1);
    last.arm(0, vigil::clock::now() + 1ms);
    last.wait();
  }

 private:
  struct one {
    bells* of;
    int number;
    runtime_timer* timer;
  };

  static void ring(void* self, vigil::detail::nanos, vigil::detail::fire_again*) noexcept {
    auto& b = *static_cast<one*>(self);
    bells& of = *b.of;
    of.rung_[static_cast<std::size_t>(of.rung_count_.load())] = b.number;
    of.rung_count_.fetch_add(1);
  }

  std::vector<one> all_;
  std::vector<int> rung_ = std::vector<int>(2 * all_.size());  // a bell is armed twice at most
  std::atomic<int> rung_count_{0};
};

}  // namespace

TEST_SUITE("order of equal deadlines") {
  TEST_CASE("a thousand callbacks with one deadline begin in the order of arming") {
    for_each_seed_as_armed([] {
      std::vector<int> order;
      for (int i = 0; i < 1000; ++i)
        after_func(1s, [&order, i] { order.push_back(i); });
      sleep_for(2s);
      CHECK(order.size() == 1000);
      CHECK(std::is_sorted(order.begin(), order.end()));
    });
  }

  // Node, libuv: timer_order: a, then b, and then the other way round.
  TEST_CASE("stopped and started again in another order, timers fire in that order") {
    for_each_seed_as_armed([] {
      for (const auto d : {0s, 1s}) {
        letters all;
        const timer a = all.after(d, 'a');
        const timer b = all.after(d, 'b');
        sleep_for(2s);
        CHECK(all.run() == "ab");
        b.reset(d);
        a.reset(d);
        sleep_for(2s);
        CHECK(all.run() == "abba");
      }
    });
  }

  // Node, libuv: refresh puts a timer behind its equals (test-timers-refresh).
  TEST_CASE("a reset to the same deadline goes behind the equal ones") {
    for_each_seed_as_armed([] {
      letters all;
      const timer a = all.after(1s, 'a');
      all.after(1s, 'b');
      all.after(1s, 'c');
      sleep_for(0s);
      a.reset(1s);
      sleep_for(2s);
      CHECK(all.run() == "bca");
    });
  }

  TEST_CASE("a reset to a later or an earlier deadline, and back, goes behind the equal ones") {
    for_each_seed_as_armed([] {
      letters all;
      const timer later = all.after(1s, 'l');
      const timer earlier = all.after(3s, 'e');
      const timer there_and_back = all.after(2s, 't');
      all.after(2s, '1');
      later.reset(2s);
      all.after(2s, '2');
      earlier.reset(2s);
      all.after(2s, '3');
      there_and_back.reset(1s);
      there_and_back.reset(2s);
      all.after(2s, '4');
      sleep_for(3s);
      CHECK(all.run() == "1l2e3t4");
    });
  }

  TEST_CASE("a reset after the entry went into the heap counts as well") {
    for_each_seed_as_armed([] {
      letters all;
      const timer a = all.after(4s, 'a');
      all.after(4s, 'b');
      const timer c = all.after(1h, 'c');
      sleep_for(1s);  // tidies
      a.reset(3s);
      sleep_for(1s);
      c.reset(2s);
      all.after(2s, 'd');
      sleep_for(3s);
      CHECK(all.run() == "bacd");
    });
  }

  // Node, libuv: a repeat is started anew for each run.
  TEST_CASE("each next run of every is armed when the one before begins") {
    for_each_seed_as_armed([] {
      letters all;
      const timer x = all.every(10ms, 'x');
      sleep_for(5ms);
      all.after(15ms, '1');
      sleep_for(10ms);
      all.after(5ms, '2');
      sleep_for(10ms);
      x.stop();
      CHECK(all.run() == "x1x2");
    });
  }

  TEST_CASE("with from_end the next run is armed when the one before has ended") {
    for_each_seed_as_armed([] {
      std::string order;
      const timer x = vigil::every(
          10ms,
          [&order] {
            order += 'x';
            after_func(15ms, [&order] { order += '1'; });
            sleep_for(5ms);
          },
          vigil::from_end);
      sleep_for(20ms);
      after_func(5ms, [&order] { order += '2'; });
      sleep_for(8ms);
      x.stop();
      CHECK(order == "x1x2");
      sleep_for(1s);
    });
  }

  TEST_CASE("with from_end a run that resets its own timer has armed it there") {
    for_each_seed_as_armed([] {
      std::string order;
      timer x;
      x = vigil::every(
          10ms,
          [&order, &x] {
            order += 'x';
            if (order.size() > 1) return;
            x.reset(10ms);
            after_func(10ms, [&order] { order += '1'; });
          },
          vigil::from_end);
      sleep_for(25ms);
      x.stop();
      CHECK(order == "xx1");
    });
  }

  TEST_CASE("the slack is added to the deadline before it is compared") {
    for (const bool reversed : {false, true}) {
      for_each_seed_as_armed([reversed] {
        letters all;
        const timer a = all.after(1h, 'a');
        const timer b = all.after(1h, 'b');
        a.set_slack(5ms);
        const auto arm_a = [&a] { a.reset(10ms); };
        const auto arm_b = [&b] { b.reset(15ms); };
        if (reversed) {
          arm_b();
          arm_a();
        } else {
          arm_a();
          arm_b();
        }
        sleep_for(20ms);
        CHECK(all.run() == (reversed ? "ba" : "ab"));
      });
    }
  }

  TEST_CASE("the order holds while the number of armings passes 2^32") {
    for_each_seed_as_armed([] {
      vigil::detail::test_access::count_from(service_here(), 0xffff'fffdU);
      letters all;
      for (const char letter : {'1', '2', '3', '4', '5', '6'})
        all.after(1s, letter);
      sleep_for(2s);
      CHECK(all.run() == "123456");
    });
  }

  TEST_CASE("timers of all kinds fire in one order, and later deadlines stay later") {
    for_each_seed_as_armed([] {
      const auto start = vigil::clock::now();
      bells all(300);
      for (std::size_t i = 0; i < all.size(); ++i)
        all.arm(i, start + (i % 2 == 0 ? 2s : 1s));
      for (std::size_t i = 0; i < all.size(); i += 3)
        all.arm(i, start + 2s);
      std::vector<int> expected;
      const auto add = [&](auto belongs) {
        for (int i = 0; i < 300; ++i) {
          if (belongs(i)) expected.push_back(i);
        }
      };
      add([](int i) { return i % 2 == 1 && i % 3 != 0; });
      add([](int i) { return i % 2 == 0 && i % 3 != 0; });
      add([](int i) { return i % 3 == 0; });
      CHECK(all.wait() == expected);
    });
  }

  // The chain goes from fiber to fiber, so each arming returns before the next begins,
  // wherever it is.
  TEST_CASE("armings on many workers, one after the other, fire in their order in real time") {
    real_options how{.settings = as_armed()};
    in_runtime(how, [&] {
      int tried = 0;
      for (int round = 0; round < rounds(40) || tried == 0; ++round) {
        bells all(50);
        const auto deadline = vigil::clock::now() + 10ms;
        auto turn = vigil::make_channel<int>();
        std::vector<vigil::fiber<void>> armers;
        std::atomic<bool> is_late{false};
        for (int k = 0; k < 4; ++k) {
          armers.push_back(vigil::spawn([&, turn] {
            for (;;) {
              const auto i = turn.recv();
              if (!i) return;
              all.arm(static_cast<std::size_t>(*i), deadline);
              // Each third one is armed twice, the second time after the next four.
              if (*i % 3 == 0 && *i >= 6) all.arm(static_cast<std::size_t>(*i - 6), deadline);
              if (vigil::clock::now() >= deadline) is_late = true;
              if (*i == 49) {
                turn.close();
                return;
              }
              turn.send(*i + 1);
            }
          }));
        }
        turn.send(0);
        for (auto& f : armers)
          f.join();
        std::vector<int> expected;
        for (int i = 0; i < 50; ++i) {
          if (i % 3 != 0 || i > 42) expected.push_back(i);
          if (i % 3 == 0 && i >= 6) expected.push_back(i - 6);
        }
        if (is_late) {
          all.end();
          continue;
        }
        ++tried;
        CHECK(all.wait() == expected);
      }
    });
  }

  TEST_CASE("callbacks of one deadline begin in the order of arming in real time") {
    in_runtime({.workers = {1}, .settings = as_armed()}, [] {
      for (int round = 0; round < rounds(40); ++round) {
        std::vector<int> order;
        std::vector<timer> timers;
        for (int i = 0; i < 100; ++i) {
          timers.push_back(after_func(1h, [&order, i] { order.push_back(i); }));
        }
        const auto deadline = vigil::clock::now() + 2ms;
        for (int i = 99; i >= 0; --i)
          timers[static_cast<std::size_t>(i)].reset(deadline);
        const bool in_time = vigil::clock::now() < deadline;
        vigil::sleep_until(deadline);
        while (order.size() < 100)
          vigil::this_fiber::yield();
        if (in_time) CHECK(std::is_sorted(order.rbegin(), order.rend()));
      }
    });
  }
}
