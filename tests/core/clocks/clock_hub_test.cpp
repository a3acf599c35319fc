// The followers of a hub, alone, and how they are told.
#include "core/clocks/clock_hub.hpp"

#include "core/clocks/clocks_test.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <atomic>
#include <functional>
#include <new>

namespace {

using namespace vigil::testing_support;
using vigil::detail::clock_follower;
using vigil::detail::clock_hub;
using vigil::detail::clock_kind;

clock_hub& hub_of_run() {
  return *clock_hub::of(*vigil::detail::require_fiber("a test").sched);
}

class noting_follower final : public clock_follower {
 public:
  explicit noting_follower(std::function<bool()> when_told) : when_told_(std::move(when_told)) {
    hub_of_run().add(*this);
  }

  ~noting_follower() { hub_of_run().remove(*this); }

  bool keep() noexcept override { return is_kept; }

  bool clock_changed() noexcept override {
    ++times;
    return when_told_();
  }

  std::atomic<int> times{0};
  bool is_kept = true;

 private:
  const std::function<bool()> when_told_;
};

const auto well = [] { return true; };

}  // namespace

TEST_SUITE("the followers of a clock") {
  TEST_CASE("each is told once of each change, in the order in which they came") {
    in_virtual([] {
      std::vector<int> told;
      const auto note = [&told](int i) {
        return [&told, i] {
          told.push_back(i);
          return true;
        };
      };
      const noting_follower a(note(1));
      const noting_follower b(note(2));
      const noting_follower c(note(3));
      step_wall(1s);
      step_wall(1s);
      CHECK(told == std::vector{1, 2, 3, 1, 2, 3});
    });
  }

  TEST_CASE("one that is about to end is passed over") {
    in_virtual([] {
      noting_follower a(well);
      const noting_follower b(well);
      a.is_kept = false;
      step_wall(1s);
      CHECK(a.times == 0);
      CHECK(b.times == 1);
    });
  }

  TEST_CASE("those that come or go while others are told") {
    in_virtual([] {
      std::vector<std::unique_ptr<noting_follower>> fresh;
      std::unique_ptr<noting_follower> last;
      const noting_follower first([&] {
        fresh.push_back(std::make_unique<noting_follower>(well));
        last.reset();
        return true;
      });
      const noting_follower second(well);
      last = std::make_unique<noting_follower>([] {
        FAIL("it has gone");
        return true;
      });
      step_wall(1s);
      CHECK(first.times == 1);
      CHECK(second.times == 1);
      CHECK(fresh.front()->times == 0);  // it has read the clock after the step
      step_wall(1s);
      CHECK(first.times == 2);
      CHECK(fresh.front()->times == 1);
    });
  }

  TEST_CASE("if one has no memory the others are told, and step_wall says so") {
    in_virtual([] {
      const noting_follower a([] { return false; });
      const noting_follower b(well);
      CHECK_THROWS_AS(step_wall(1s), std::bad_alloc);
      CHECK(vigil::wall_clock::now() == wall_start + 1s);
      CHECK(a.times == 1);
      CHECK(b.times == 1);
    });
  }

  TEST_CASE("in real time one that has no memory is told again, soon") {
    in_runtime({.workers = {1, 2}, .settings = {}}, [] {
      std::atomic<int> failures{3};
      const vigil::detail::pending_mark pending(hub_of_run());
      const noting_follower a([&failures] { return failures-- <= 0; });
      hub_of_run().listener().pretend_step();
      while (a.times < 4)
        vigil::sleep_for(1ms);
      CHECK(failures < 0);
    });
  }

  TEST_CASE("an image is never too early, and does not leave the range") {
    in_runtime({.workers = {1}, .settings = {}}, [] {
      clock_hub& hub = hub_of_run();
      for (const auto kind : {clock_kind::wall, clock_kind::boot}) {
        for (int i = 0; i < 100; ++i) {
          const auto when = hub.now(kind) + 1'000'000;
          const auto image = hub.image(kind, when);
          while (vigil::clock::now().time_since_epoch().count() < image) {
          }
          CHECK(hub.now(kind) + 1 >= when);  // the kernel rounds each clock down by itself
        }
        CHECK(hub.image(kind, INT64_MAX) > INT64_MAX / 2);
        CHECK(hub.image(kind, INT64_MAX) < INT64_MAX);
        CHECK(hub.image(kind, INT64_MIN) < 0);
        hub.shift(kind, INT64_MAX);
        CHECK(hub.now(kind) == INT64_MAX);
        CHECK(hub.image(kind, INT64_MIN) < 0);
        hub.shift(kind, INT64_MIN + 1);
      }
    });
  }
}
