#include "sched/watch_absences.hpp"

#include "support/in_runtime.hpp"

#include <algorithm>

using vigil::detail::nanos;
using vigil::detail::watch_absences;

namespace {

constexpr nanos us = 1'000;
constexpr nanos begun = 3'600'000'000 * us;

// A watch that counts as left often.
struct busy_watch : watch_absences {
  busy_watch() { leaves_before_busy = 0; }

  // One absence that ends now.
  void was_away(nanos now, nanos length) {
    begin(now - length);
    count(now);
  }
};

}  // namespace

TEST_SUITE("watch_absences") {
  TEST_CASE("a watch is busy after five leaves in a row that are at most 500 us apart") {
    watch_absences w;
    nanos now = begun;
    w.begin(now);
    for (int i = 0; i < 3; ++i)
      w.begin(now += 499 * us);
    CHECK_FALSE(w.is_busy());
    w.begin(now += 499 * us);
    CHECK(w.is_busy());
    CHECK(w.sets_alarm(now));
    CHECK_FALSE(w.sets_alarm(now + 500 * us));
    w.begin(now += 500 * us);
    CHECK_FALSE(w.is_busy());
  }

  TEST_CASE("for a watch that is left now and then alarms are near, and after a take-over") {
    watch_absences w;
    w.begin(begun);
    CHECK(w.distance(begun) == watch_absences::near);
    for (int i = 1; i <= 4; ++i)
      w.begin(begun + i * us);
    CHECK(w.distance(begun) == watch_absences::far);
    w.taken_over();
    CHECK(w.distance(begun) == watch_absences::near);
  }

  TEST_CASE("alarms are far as long as absences are short") {
    busy_watch w;
    nanos now = begun;
    for (int i = 0; i < 100'000; ++i) {
      w.was_away(now += 120 * us, 100 * us);
      CHECK(w.distance(now) == watch_absences::far);
    }
  }

  TEST_CASE("an alarm rings that far after the watch was left, or in a moment") {
    busy_watch w;
    w.begin(begun);
    CHECK(w.rings_at(begun) == begun + watch_absences::far);
    CHECK(w.rings_at(begun + 400 * us) == begun + watch_absences::far);
    CHECK(w.rings_at(begun + 700 * us) == begun + 725 * us);
  }

  TEST_CASE("after long absences they are near, until the late part is one in 200 of all time") {
    busy_watch w;
    w.was_away(begun, 50'000 * us);  // of which 600 us were late; 500 of them at once
    CHECK(w.distance(begun) == watch_absences::near);
    CHECK(w.distance(begun + 200 * 100 * us - 1) == watch_absences::near);
    CHECK(w.distance(begun + 200 * 100 * us) == watch_absences::far);
  }

  TEST_CASE("absences that are long while alarms are near make nothing late") {
    busy_watch w;
    w.was_away(begun, 50'000 * us);
    for (int i = 0; i < 10; ++i)
      w.was_away(begun + i * us, 50'000 * us);
    CHECK(w.distance(begun + 200 * 100 * us) == watch_absences::far);
  }

  TEST_CASE("an absence that is counted in pieces counts once") {
    busy_watch w;
    w.begin(begun);
    w.count(begun + 50'000 * us);
    w.count(begun + 50'000 * us);
    const nanos now = begun + 50'000 * us;
    CHECK(w.distance(now + 200 * 100 * us) == watch_absences::far);
  }

  TEST_CASE("however long absences are, late parts are one in 200 of all time") {
    for (const nanos length : {110 * us, 440 * us, 600 * us, 5'000 * us}) {
      busy_watch w;
      nanos now = begun;
      nanos late = 0;
      for (int i = 0; i < 10'000; ++i) {
        now += length;
        const nanos part = std::min(length - 100 * us, 500 * us);
        if (w.distance(now) == watch_absences::far) late += part;
        w.was_away(now, length);
        CHECK(late <= 500 * us + part + (now - begun) / 200);
      }
      CHECK(late >= (now - begun) / 400);
    }
  }
}
