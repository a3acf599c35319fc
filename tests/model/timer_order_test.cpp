// timer_order::as_armed: an arming that has returned has its place among equal deadlines
// before the deadline comes (runtime_timer::tie).
//
// The other worker wakes for a nearer timer, so it tidies and publishes at any moment of
// the arming.
#include "core/base/nanos.hpp"
#include "core/timer/timer_service.hpp"
#include "instants.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <thread>

#include <doctest/doctest.h>

using programs::far;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::near;
using vigil::detail::nanos;
using vigil::detail::runtime_timer;
using vigil::detail::timer_service;

namespace {

timer_service& service_here() {
  return vigil::detail::service_of(*vigil::detail::current_scheduler());
}

// Two timers that fire on the timer fiber, which notes the order.
class pair_of_bells {
 public:
  pair_of_bells() : first_(make(&first_rings)), second_(make(&second_rings)) {}

  ~pair_of_bells() {
    release_record(*first_);
    release_record(*second_);
  }

  pair_of_bells(const pair_of_bells&) = delete;
  pair_of_bells& operator=(const pair_of_bells&) = delete;

  runtime_timer& first() const { return *first_; }

  runtime_timer& second() const { return *second_; }

  // The numbers of the two as digits, in the order in which they rang. Caller: nothing is
  // pending any more.
  int order() const { return order_; }

 private:
  runtime_timer* make(runtime_timer::send_function f) {
    timer_service& s = service_here();
    return s.make_send(f, this, s.generation());
  }

  static void first_rings(void* self, nanos, vigil::detail::fire_again*) noexcept {
    static_cast<pair_of_bells*>(self)->add(1);
  }

  static void second_rings(void* self, nanos, vigil::detail::fire_again*) noexcept {
    static_cast<pair_of_bells*>(self)->add(2);
  }

  void add(int digit) { order_ = 10 * order_ + digit; }

  runtime_timer* const first_;
  runtime_timer* const second_;
  int order_ = 0;
};

// `arm_again` arms one of the two, or both, for the deadline that they have; it returns
// the order that this asks for.
template <class ArmAgain>
void fire_as_armed(ArmAgain arm_again) {
  vigil::options o = programs::workers(2);
  o.equal_deadlines = vigil::timer_order::as_armed;
  vigil::runtime rt(o);
  const vigil::work_guard outside = rt.make_work_guard();
  rt.run([&] {
    pair_of_bells bells;
    timer_service& s = service_here();
    const nanos deadline = model::now() + far;
    s.arm_at(bells.first(), deadline);
    s.arm_at(bells.second(), deadline);
    vigil::after_func(std::chrono::nanoseconds(near), [] {});
    let_the_other_rest();
    bool in_time = false;
    int expected = 0;
    {
      const model::window w;
      expected = arm_again(s, bells, deadline);
      in_time = model::now() < deadline;
      let_time_pass();
    }
    if (in_time) model::require(bells.order() == expected, "they fire in the order of arming");
    model::enough();
  });
}

}  // namespace

TEST_CASE("order: a reset to the same deadline goes behind its equal") {
  prove("order: the first is armed again", [] {
    fire_as_armed([](timer_service& s, const pair_of_bells& bells, nanos deadline) {
      s.arm_at(bells.first(), deadline);
      return 21;
    });
  });
}

TEST_CASE("order: an arming that has returned comes before the next one of another thread") {
  prove("order: a plain thread arms the first again, then a fiber the second", [] {
    fire_as_armed([](timer_service& s, const pair_of_bells& bells, nanos deadline) {
      std::thread([&] { s.arm_at(bells.first(), deadline); }).join();
      s.arm_at(bells.second(), deadline);
      return 12;
    });
  });
  prove("order: a fiber arms the first again, a plain thread moves the second there and back", [] {
    fire_as_armed([](timer_service& s, const pair_of_bells& bells, nanos deadline) {
      std::thread([&] {
        s.arm_at(bells.second(), deadline + far);
        s.arm_at(bells.second(), deadline);
      }).join();
      s.arm_at(bells.first(), deadline);
      return 21;
    });
  });
}
