// Work that is left to a worker in user code: a sleeper is woken for it, or the overseer
// looks.
// There is no overseer's thread here.
#include "core/base/clock_source.hpp"
#include "core/sched/idle/idle.hpp"
#include "core/sched/sleepers.hpp"
#include "support/in_runtime.hpp"

using namespace vigil::testing_support;

namespace {

// Two that lie down, a in the watch and b beside it; a has gone off to user code. The
// work that is left to it counts as left often.
struct one_in_user_code {
  explicit one_in_user_code(bool has_overseer, nanos next = never) {
    if (has_overseer) idle.overseen.begin();
    idle.count_as_traffic();
    lie(idle, a, next, never);
    lie(idle, b, next, never);
    idle.stay_awake(a);
    idle.stop_looking();
  }

  ~one_in_user_code() {
    if (b.hook.linked) idle.wake(b);
    idle.stay_awake(b);
  }

  futex_watch watch;
  idle_workers idle{watch};
  sleeper a;
  sleeper b;
};

}  // namespace

TEST_SUITE("oversight") {
  TEST_CASE("what is left now and then wakes a sleeper, and calls nobody") {
    futex_watch watch;
    idle_workers idle(watch);
    idle.overseen.begin();
    sleeper a;
    lie(idle, a, never, never);
    CHECK_FALSE(idle.leave());
    CHECK(idle.asleep() == 0);
    CHECK(idle.looking() == 1);
    CHECK_FALSE(idle.overseen.looks());
    idle.stay_awake(a);
  }

  TEST_CASE("what is left often is for the overseer, which is called once") {
    one_in_user_code s(true);
    CHECK(s.idle.leave());
    CHECK(s.idle.asleep() == 1);
    CHECK(s.idle.overseen.looks());
    CHECK(s.idle.leave());
    CHECK(s.idle.wake_calls() == 0);
  }

  TEST_CASE("without an overseer a sleeper is woken, however often") {
    one_in_user_code s(false);
    CHECK_FALSE(s.idle.leave());
    CHECK(s.idle.asleep() == 0);
    CHECK(s.idle.looking() == 1);
  }

  TEST_CASE("nothing is left while a worker looks, or if none sleeps") {
    one_in_user_code s(true);
    s.idle.start_looking();
    CHECK_FALSE(s.idle.leave());
    s.idle.staff_watch();
    s.idle.cover(5);
    CHECK_FALSE(s.idle.overseen.looks());
    s.idle.stop_looking();
    s.idle.stay_awake(s.b);
    s.idle.stop_looking();
    CHECK_FALSE(s.idle.leave());
    CHECK_FALSE(s.idle.overseen.looks());
  }

  TEST_CASE("a free watch and a deadline are left to the overseer that looks") {
    one_in_user_code s(true);
    s.idle.staff_watch();
    CHECK(s.idle.overseen.looks());
    s.idle.cover(5);
    CHECK(s.idle.asleep() == 1);
    CHECK(s.idle.wake_calls() == 0);
  }

  TEST_CASE("the overseer rests only if nothing is left when it has said so") {
    vigil::detail::oversight by;
    by.begin();
    CHECK(by.call());
    CHECK_FALSE(by.rests([] { return false; }));
    CHECK(by.looks());
    CHECK(by.rests([&] {
      CHECK_FALSE(by.looks());
      return true;
    }));
    CHECK_FALSE(by.looks());
    CHECK(by.attends());
    CHECK(by.attends_no_more([] { return true; }));
    by.somebody_is_awake();
    CHECK(by.attends());
    by.end();
    CHECK(by.is_over());
    CHECK_FALSE(by.call());
  }
}
