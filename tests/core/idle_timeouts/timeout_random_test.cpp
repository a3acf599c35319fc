#include "core/idle_timeouts/idle_timeouts_test.hpp"

#include <algorithm>
#include <cstdlib>

using namespace vigil::testing_support;

namespace {

// The required behaviour of a list, kept in the plainest way: every entry's last touch.
class model_list {
 public:
  model_list(std::size_t n, nanoseconds d) : last_(n), d_(d) {}

  void add(std::size_t i, instant t) { last_[i] = t; }

  bool touch(std::size_t i, instant t) {
    if (!last_[i]) return false;
    last_[i] = std::max(*last_[i], t);
    return true;
  }

  bool remove(std::size_t i) { return std::exchange(last_[i], std::nullopt).has_value(); }

  // The entry that is called now was due now, and no other should have been called before
  // it.
  void expire(std::size_t i, instant t) {
    REQUIRE(last_[i].has_value());
    CHECK(*last_[i] + d_ == t);
    for (const auto& other : last_)
      CHECK((!other || *other >= *last_[i]));
    last_[i].reset();
  }

  // Checks that nothing is overdue.
  void check_at(instant t) const {
    for (const auto& each : last_)
      CHECK((!each || *each + d_ >= t));
  }

  std::size_t size() const {
    return static_cast<std::size_t>(std::count_if(
        last_.begin(), last_.end(), [](const auto& each) { return each.has_value(); }));
  }

 private:
  std::vector<std::optional<instant>> last_;
  const nanoseconds d_;
};

void random_program(std::uint64_t seed) {
  seeded dice(seed);
  const std::uint32_t n = 1 + dice.below(40);
  // Durations range from those in which few things happen to those in which everything
  // does.
  const nanoseconds d(nanoseconds(1 + dice.below(20)) * (dice.below(2) == 0 ? 1 : 1'000'000));
  const nanoseconds step = d / static_cast<int>(1 + dice.below(10)) + 1ns;
  model_list model(n, d);
  std::vector<std::unique_ptr<connection>> reborn(n);
  for (std::size_t i = 0; i < n; ++i)
    reborn[i] = std::make_unique<connection>(static_cast<int>(i));
  std::optional<timeout_list> l;
  const auto act = [&](bool inside) {
    const std::size_t i = dice.below(n);
    entry& e = reborn[i]->idle;
    switch (dice.below(inside ? 5 : 6)) {
      case 0:
      case 1:
        l->add(e);
        model.add(i, now());
        break;
      case 2: {
        // Times in the past, too; never in the future, which has a test of its own.
        const instant t = now() - nanoseconds(dice.below(3)) * (dice.below(2) == 0 ? 1 : 1000);
        CHECK(e.touch(t) == model.touch(i, t));
        break;
      }
      case 3:
        CHECK(timeout_list::remove(e) == model.remove(i));
        break;
      case 4:
        reborn[i] = std::make_unique<connection>(static_cast<int>(i));
        model.remove(i);
        break;
      case 5:
        sleep_for(nanoseconds(dice.below(static_cast<std::uint32_t>(step.count()) + 1)));
        settle();
        model.check_at(now() + 1ns);
        CHECK(l->size() == model.size());
        break;
    }
  };
  l.emplace(d, [&](entry& e) {
    model.expire(static_cast<std::size_t>(id_of(e)), now());
    for (std::uint64_t k = dice.below(3); k > 0; --k)
      act(true);
  });
  for (int k = 0; k < 300; ++k)
    act(false);
  for (auto& each : reborn) {
    timeout_list::remove(each->idle);
    model.remove(static_cast<std::size_t>(each->id));
  }
  sleep_for(3 * d);
  CHECK(l->size() == 0);
}

}  // namespace

TEST_SUITE("timeout_list at random") {
  TEST_CASE("random programs match the model, to the nanosecond") {
    for_each_seed(static_cast<std::uint64_t>(rounds(2000)), random_program);
  }

  TEST_CASE("random programs whose on_expire waits: never early, never two at once, none lost") {
    for_each_seed(static_cast<std::uint64_t>(rounds(500)), [](std::uint64_t seed) {
      seeded dice(seed);
      constexpr std::uint32_t n = 8;
      constexpr nanoseconds d = 10ms;
      std::array<instant, n> last{};
      std::array<int, n> inside{};
      std::array<int, n> balance{};  // adds that neither expired nor were removed
      std::deque<connection> c;
      for (std::uint32_t i = 0; i < n; ++i)
        c.emplace_back(static_cast<int>(i));
      std::optional<timeout_list> l;
      const auto add = [&](std::uint32_t i) {
        balance[i] = 1;
        last[i] = now();
        l->add(c[i].idle);
      };
      const auto touch = [&](std::uint32_t i) {
        if (c[i].idle.touch()) last[i] = now();
      };
      l.emplace(d, [&](entry& e) {
        const auto i = static_cast<std::uint32_t>(id_of(e));
        CHECK(inside[i]++ == 0);
        CHECK(balance[i]-- == 1);
        CHECK(now() >= last[i] + d);
        for (std::uint32_t k = dice.below(4); k > 0; --k) {
          if (dice.below(2) == 0) sleep_for(nanoseconds(dice.below(25'000'000)));
          if (dice.below(2) == 0) add(i);
          touch(dice.below(n));
        }
        --inside[i];
      });
      for (int k = 0; k < 100; ++k) {
        const std::uint32_t i = dice.below(n);
        switch (dice.below(4)) {
          case 0:
            add(i);
            break;
          case 1:
            touch(i);
            break;
          case 2:
            if (timeout_list::remove(c[i].idle)) balance[i] = 0;
            CHECK(inside[i] == 0);
            CHECK(balance[i] == 0);
            break;
          case 3:
            sleep_for(nanoseconds(dice.below(10'000'000)));
            break;
        }
      }
      for (connection& each : c)
        timeout_list::remove(each.idle);
      // An on_expire may have added its entry again after another one's.
      for (int k = 0; k < 100 && l->size() != 0; ++k) {
        for (connection& each : c)
          timeout_list::remove(each.idle);
      }
      l.reset();
      CHECK(inside == std::array<int, n>{});
    });
  }

  // Some entries are touched all the time, some now and then, some never; each expires at
  // exactly its last touch plus the duration, in that order.
  TEST_CASE("ten thousand entries touched at random expire in the order of their last touch") {
    for_each_seed(3, [](std::uint64_t seed) {
      seeded dice(seed);
      constexpr nanoseconds d = 1s;
      std::deque<connection> c;
      std::vector<instant> last(10'000);
      int expired = 0;
      instant before{};
      timeout_list l(d, [&](entry& e) {
        const instant mine = last[static_cast<std::size_t>(id_of(e))];
        CHECK(now() == mine + d);
        CHECK(mine >= before);
        before = mine;
        ++expired;
      });
      for (int i = 0; i < 10'000; ++i) {
        c.emplace_back(i);
        l.add(c.back().idle);
        last[static_cast<std::size_t>(i)] = now();
        if (dice.below(4) == 0) sleep_for(nanoseconds(dice.below(100'000)));
      }
      for (int k = 0; k < 20'000; ++k) {
        // The square: low numbers come often.
        const std::size_t i = dice.below(100) * dice.below(100);
        if (c[i].idle.touch()) last[i] = now();
        if (dice.below(4) == 0) sleep_for(nanoseconds(dice.below(1'000'000)));
      }
      sleep_for(2s);
      CHECK(expired == 10'000);
    });
  }
}
