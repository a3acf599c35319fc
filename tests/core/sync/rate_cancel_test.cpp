// A rate_limiter whose reservations and waits are cancelled: it loses no token, returns
// none twice, and lets no more act than the limit allows.
#include "core/sync/sync_test.hpp"

#include <vigil/rate_limiter.hpp>

#include <algorithm>
#include <cstddef>
#include <random>

using namespace vigil::testing_support;
using vigil::rate;
using vigil::rate_limiter;
using vigil::reservation;

namespace {

enum class order { oldest_first, newest_first, random };

// The numbers 0 … n - 1 in that order.
std::vector<std::size_t> indices(std::size_t n, order o) {
  std::vector<std::size_t> all(n);
  for (std::size_t i = 0; i < n; ++i)
    all[i] = o == order::newest_first ? n - 1 - i : i;
  std::mt19937_64 random(n);
  if (o == order::random) std::shuffle(all.begin(), all.end(), random);
  return all;
}

// One token each 100 ms: time and tokens in tenths, so that the arithmetic is whole.
// `level` is what a bucket holds in which only the acts happen.
struct acts_model {
  struct act {
    std::int64_t at;
    std::int64_t n;
  };

  std::int64_t burst;
  std::vector<act> acts;  // in order of time

  void add(std::int64_t at, std::int64_t n) {
    const auto later = [](std::int64_t t, const act& a) { return t < a.at; };
    acts.insert(std::upper_bound(acts.begin(), acts.end(), at, later), {at, n});
  }

  void remove(std::int64_t at, std::int64_t n) {
    acts.erase(std::find_if(
        acts.begin(), acts.end(), [&](const act& a) { return a.at == at && a.n == n; }));
  }

  // Negative at an act that the limit does not allow.
  std::int64_t least_level() const {
    std::int64_t least = burst;
    static_cast<void>(level(0, &least));
    return least;
  }

  std::int64_t level(std::int64_t now, std::int64_t* least = nullptr) const {
    std::int64_t level = burst;
    std::int64_t since = 0;
    for (const act& a : acts) {
      if (least == nullptr && a.at > now) break;
      level = std::min(burst, level + a.at - since) - a.n;
      since = a.at;
      if (least != nullptr) *least = std::min(*least, level);
    }
    return std::min(burst, level + std::max<std::int64_t>(0, now - since));
  }
};

// A limiter, and all that it allowed.
class searched_limiter {
 public:
  explicit searched_limiter(std::uint64_t seed)
      : random_(seed),
        burst_(static_cast<std::int64_t>(2 + random_() % 5)),
        limiter_(rate::every(100ms), burst_),
        model_{burst_, {}},
        start_(clock::now()) {}

  void step() {
    const auto n = static_cast<std::int64_t>(1 + random_() % static_cast<unsigned>(burst_));
    switch (random_() % 8) {
      case 0:
      case 1:
      case 2:
        reserve(n);
        break;
      case 3:
      case 4:
        cancel(random_() % std::max<std::size_t>(1, open_.size()));
        break;
      case 5:
        cancel(0);
        break;
      case 6:
        if (limiter_.allow(n)) model_.add(now(), n);
        break;
      default:
        sleep_for((random_() % 8) * 100ms);
    }
    std::erase_if(open_, [&](const open& o) { return o.at <= now(); });
  }

  bool is_within_limit() const { return model_.least_level() >= 0; }

  // The same as if the cancelled reservations had never been.
  bool is_whole_without_open() {
    while (!open_.empty())
      cancel(random_() % open_.size());
    return limiter_.tokens() == model_.level(now());
  }

 private:
  struct open {
    reservation r;
    std::int64_t at;
    std::int64_t n;
  };

  std::int64_t now() const { return (clock::now() - start_) / 100ms; }

  void reserve(std::int64_t n) {
    reservation r = limiter_.reserve(n);
    const std::int64_t at = (r.time_to_act() - start_) / 100ms;
    model_.add(at, n);
    if (at > now()) open_.push_back({std::move(r), at, n});
  }

  void cancel(std::size_t i) {
    if (i >= open_.size()) return;
    open_[i].r.cancel();
    model_.remove(open_[i].at, open_[i].n);
    open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(i));
  }

  std::mt19937_64 random_;
  std::int64_t burst_;
  rate_limiter limiter_;
  acts_model model_;
  std::vector<open> open_;
  clock::time_point start_;
};

}  // namespace

TEST_SUITE("rate_limiter: cancelled") {
  TEST_CASE("a hundred waits that one context ends leave nothing taken") {
    in_virtual([] {
      rate_limiter l(rate::every(1s), 1);
      CHECK(l.allow());
      const auto made = vigil::with_cancel(vigil::background());
      crowd all;
      for (int i = 0; i < 100; ++i)
        all.add([&] { CHECK_THROWS_AS(l.wait(made.ctx), vigil::cancelled); });
      settle();
      CHECK(l.tokens() == -100);
      made.cancel();
      all.join();
      CHECK(l.tokens() == 0);
      const auto start = clock::now();
      l.wait();
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("waits that are stopped leave nothing taken, whichever ends first") {
    in_virtual([] {
      for (const order o : {order::oldest_first, order::newest_first, order::random}) {
        rate_limiter l(rate::every(1s), 1);
        CHECK(l.allow());
        std::vector<vigil::fiber<>> waiters;
        for (int i = 0; i < 100; ++i) {
          waiters.push_back(spawn([&] { l.wait(); }));
          settle();
        }
        for (const std::size_t i : indices(100, o)) {
          waiters[i].request_stop();
          settle();
        }
        for (auto& f : waiters)
          CHECK_THROWS_AS(f.join(), vigil::cancelled);
        const auto start = clock::now();
        l.wait();
        CHECK(since(start) == 1s);
      }
    });
  }

  TEST_CASE("reservations that are cancelled leave nothing taken, in whatever order") {
    in_virtual([] {
      for (const order o : {order::oldest_first, order::newest_first, order::random}) {
        for (const std::int64_t burst : {1, 7}) {
          rate_limiter l(rate::every(1s), burst);
          CHECK(l.allow(burst));
          std::vector<reservation> all;
          for (std::int64_t i = 0; i < 1'000; ++i)
            all.push_back(l.reserve(1 + i % burst));
          for (const std::size_t i : indices(all.size(), o))
            all[i].cancel();
          CHECK(l.tokens() == 0);
          CHECK(l.reserve().delay() == 1s);
        }
      }
    });
  }

  TEST_CASE("callers that give up again and again do not stop a busy limiter") {
    in_virtual([] {
      const auto start = clock::now();
      rate_limiter l(rate::per(10, 1s), 5);
      int events = 0;
      crowd all;
      for (int i = 0; i < 20; ++i) {
        all.add([&, i] {
          sleep_for(i * 37ms);
          while (since(start) < 60s) {
            try {
              l.wait(vigil::with_timeout(vigil::background(), 1s).ctx);
              ++events;
            } catch (const vigil::cancelled&) {
            }
          }
        });
      }
      all.join();
      CHECK(events > 500);
      CHECK(events <= 5 + 10 * 62);
    });
  }

  TEST_CASE("a cancel returns no more than was taken, whatever was cancelled before") {
    in_virtual([] {
      rate_limiter l(rate::every(1s), 4);
      const reservation first = l.reserve(2);
      CHECK(first.delay() == 0ns);
      reservation second = l.reserve(3);
      reservation third = l.reserve();
      second.cancel();
      reservation fourth = l.reserve(3);
      fourth.cancel();
      const std::int64_t before = l.tokens();
      third.cancel();
      CHECK(l.tokens() <= before + 2);  // its own, and one that it held
      CHECK(l.tokens() == 2);
      CHECK(l.allow(2));
      CHECK_FALSE(l.allow());
    });
  }

  TEST_CASE("three contexts that end waits let no more act than the burst") {
    in_virtual([] {
      rate_limiter l(rate::every(1s), 4);
      l.wait(2);
      std::vector<vigil::cancellable> made;
      for (int i = 0; i < 3; ++i)
        made.push_back(vigil::with_cancel(vigil::background()));
      const auto waiter = [&](std::int64_t n, const vigil::context& ctx) {
        auto f = spawn([&l, n, ctx] { l.wait(n, ctx); });
        settle();
        return f;
      };
      const auto end = [](vigil::fiber<>& f, const auto& c) {
        c.cancel();
        CHECK_THROWS_AS(f.join(), vigil::cancelled);
      };
      auto first = waiter(3, made[0].ctx);
      auto second = waiter(1, made[1].ctx);
      end(first, made[0]);
      auto third = waiter(3, made[2].ctx);
      end(third, made[2]);
      end(second, made[1]);
      CHECK(l.allow(2));
      CHECK_FALSE(l.allow());
    });
  }

  TEST_CASE("tokens that a later reservation holds are back once it is cancelled or has acted") {
    in_virtual([] {
      for (const bool is_cancelled : {true, false}) {
        rate_limiter l(rate::every(1s), 4);
        CHECK(l.allow(4));
        reservation first = l.reserve(3);
        reservation second = l.reserve(3);
        reservation third = l.reserve();
        CHECK(third.delay() == 7s);
        first.cancel();
        second.cancel();
        CHECK(l.tokens() == -4);  // four at 7 s are too many beside the third
        if (is_cancelled) {
          third.cancel();
          CHECK(l.tokens() == 0);
          continue;
        }
        sleep_for(7s);
        CHECK(l.tokens() == 3);
        CHECK(l.allow(3));
        CHECK_FALSE(l.allow());
        sleep_for(1s);
        CHECK(l.tokens() == 1);
      }
    });
  }

  TEST_CASE("withheld tokens come back at another rate and burst, and go without a limit") {
    in_virtual([] {
      rate_limiter l(rate::every(1s), 4);
      CHECK(l.allow(4));
      reservation first = l.reserve(4);
      reservation second = l.reserve(4);
      first.cancel();
      CHECK(l.tokens() == -8);
      l.set_rate(rate::per(10, 1s));
      l.set_burst(8);
      second.cancel();
      CHECK(l.tokens() == 0);

      reservation old = l.reserve(4);
      l.set_rate(rate::unlimited());
      l.set_rate(rate::every(1s));
      CHECK(l.allow(8));
      old.cancel();  // its limit is gone
      CHECK(l.tokens() == 0);
    });
  }

  TEST_CASE("random reservations and cancels keep the limit and lose nothing") {
    in_virtual([] {
      for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
        CAPTURE(seed);
        searched_limiter l(seed);
        for (std::uint64_t i = 0; i < 4 + seed % 60; ++i)
          l.step();
        REQUIRE(l.is_within_limit());
        REQUIRE(l.is_whole_without_open());
        REQUIRE(l.is_within_limit());
      }
    });
  }

  // Go: rate: TestReserveSetBurst, -SetLimit.
}
