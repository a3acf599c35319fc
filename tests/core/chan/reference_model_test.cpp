// Tests of the model itself: histories written by hand, some that Go's rules allow, and
// beside each a similar one that they do not.
#include "core/chan/reference_model.hpp"

#include <initializer_list>
#include <stdexcept>

#include <doctest/doctest.h>

using namespace vigil::testing_support;

namespace {

constexpr result closed{result::kind::closed, 0, 0};
constexpr result threw{result::kind::threw_closed, nil, 0};
constexpr wish otherwise{wish::kind::otherwise, nil, 0, 0};

result took(int index, value_id value = 0) {
  return {result::kind::done, index, value};
}

wish recv(int channel) {
  return {wish::kind::recv, channel, 0, 0};
}

wish send(int channel, value_id value) {
  return {wish::kind::send, channel, value, 0};
}

wish time_of(int timer) {
  return {wish::kind::timer, timer, 0, 0};
}

wish until(instant deadline) {
  return {wish::kind::timeout, nil, 0, deadline};
}

// Writes a history; at() sets the clock.
class written {
 public:
  written& at(instant now) {
    now_ = now;
    return *this;
  }

  written& begin(int fiber, std::initializer_list<wish> wishes, bool ordered = false) {
    record& r = add(record::kind::begin, fiber, nil);
    r.ok = ordered;
    r.first = history_.wishes.size();
    r.count = wishes.size();
    history_.wishes.insert(history_.wishes.end(), wishes);
    return *this;
  }

  written& end(int fiber, result got) {
    add(record::kind::end, fiber, nil).got = got;
    return *this;
  }

  // A call that returns at once.
  written& call(int fiber, std::initializer_list<wish> wishes, result got, bool ordered = false) {
    return begin(fiber, wishes, ordered).end(fiber, got);
  }

  written& channel(int id, instant capacity) {
    return fact(record::kind::channel, id, capacity, 0);
  }

  written& timer(int id, instant when, instant period = 0) {
    return fact(record::kind::timer, id, when, period);
  }

  written& close(int id, bool was_open = true) {
    return fact(record::kind::close, id, 0, 0, was_open);
  }

  written& stop(int id, bool was_pending) {
    return fact(record::kind::stop, id, 0, 0, was_pending);
  }

  written& reset(int id, instant when, bool was_pending) {
    return fact(record::kind::reset, id, when, 0, was_pending);
  }

  written& deadline(int id, instant when) { return fact(record::kind::deadline, id, when, 0); }

  written& missed(int id, instant n) { return fact(record::kind::missed, id, n, 0); }

  bool is_allowed() const {
    try {
      check_history(history_);
      return true;
    } catch (const std::runtime_error&) {
      return false;
    }
  }

 private:
  record& add(record::kind what, int fiber, int object) {
    history_.records.push_back({});
    record& r = history_.records.back();
    r.what = what;
    r.fiber = fiber;
    r.now = now_;
    r.object = object;
    return r;
  }

  written& fact(record::kind what, int object, instant a, instant b, bool ok = false) {
    record& r = add(what, 0, object);
    r.a = a;
    r.b = b;
    r.ok = ok;
    return *this;
  }

  history history_;
  instant now_ = 0;
};

}  // namespace

TEST_SUITE("the model of Go's rules") {
  TEST_CASE("serves waiters first come, first served") {
    const auto with_receivers = [](int first, int second) {
      return written()
          .channel(0, 0)
          .begin(1, {recv(0)})
          .begin(2, {recv(0)})
          .call(3, {send(0, 7)}, took(0))
          .call(3, {send(0, 8)}, took(0))
          .end(first, took(0, 7))
          .end(second, took(0, 8))
          .is_allowed();
    };
    CHECK(with_receivers(1, 2));
    CHECK_FALSE(with_receivers(2, 1));
    const auto with_senders = [](value_id first, value_id second) {
      return written()
          .channel(0, 1)
          .call(1, {send(0, 5)}, took(0))
          .begin(1, {send(0, 6)})
          .begin(2, {send(0, 7)})
          .call(3, {recv(0)}, took(0, 5))
          .end(1, took(0))
          .call(3, {recv(0)}, took(0, first))
          .end(2, took(0))
          .call(3, {recv(0)}, took(0, second))
          .is_allowed();
    };
    CHECK(with_senders(6, 7));
    CHECK_FALSE(with_senders(7, 6));
  }

  TEST_CASE("lets no value get lost or come twice") {
    const auto then = [](result second) {
      return written()
          .channel(0, 2)
          .call(1, {send(0, 5)}, took(0))
          .call(1, {send(0, 6)}, took(0))
          .call(1, {recv(0), otherwise}, took(0, 5))
          .call(1, {recv(0), otherwise}, second)
          .is_allowed();
    };
    CHECK(then(took(0, 6)));
    CHECK_FALSE(then(took(0, 5)));
    CHECK_FALSE(then(took(1)));
    CHECK_FALSE(then(closed));
  }

  TEST_CASE("takes a case that is ready, at once, and of ordered ones the first") {
    const auto select = [](result got, bool ordered) {
      return written()
          .channel(0, 1)
          .channel(1, 1)
          .channel(2, 1)
          .call(1, {send(1, 5)}, took(0))
          .call(1, {send(2, 6)}, took(0))
          .call(1, {recv(0), recv(1), recv(2), recv(nil), otherwise}, got, ordered)
          .is_allowed();
    };
    CHECK(select(took(1, 5), false));
    CHECK(select(took(2, 6), false));
    CHECK(select(took(1, 5), true));
    CHECK_FALSE(select(took(2, 6), true));
    CHECK_FALSE(select(took(0, 5), false));
    CHECK_FALSE(select(took(4), false));
    // It does not wait for another fiber to move.
    CHECK_FALSE(written()
                    .channel(0, 1)
                    .call(1, {send(0, 5)}, took(0))
                    .begin(1, {recv(0)})
                    .call(2, {until(0)}, took(0))
                    .end(1, took(0, 5))
                    .is_allowed());
  }

  TEST_CASE("ends a wait at its deadline, not before and not after") {
    const auto ends_at = [](instant when) {
      return written()
          .channel(0, 0)
          .begin(1, {recv(0), until(10)})
          .at(when)
          .end(1, took(1))
          .is_allowed();
    };
    CHECK(ends_at(10));
    CHECK_FALSE(ends_at(9));
    CHECK_FALSE(ends_at(11));
    // At that instant the value may still come first, but then it belongs to that
    // receiver.
    const auto meet_at = [](instant when, result sender, result receiver) {
      return written()
          .channel(0, 0)
          .begin(1, {recv(0), until(10)})
          .at(when)
          .call(2, {send(0, 5), otherwise}, sender)
          .at(10)
          .end(1, receiver)
          .is_allowed();
    };
    CHECK(meet_at(10, took(0), took(0, 5)));
    CHECK(meet_at(10, took(1), took(1)));
    CHECK_FALSE(meet_at(10, took(1), took(0, 5)));
    CHECK_FALSE(meet_at(10, took(0), took(1)));
    CHECK_FALSE(meet_at(9, took(1), took(1)));
  }

  TEST_CASE("tells all waiters that a channel is closed, once its values are received") {
    const auto senders = [](result got) {
      return written()
          .channel(0, 0)
          .begin(1, {send(0, 5)})
          .begin(2, {send(0, 6), until(9)})
          .close(0)
          .end(1, threw)
          .at(got.index == 1 ? 9 : 0)
          .end(2, got)
          .is_allowed();
    };
    CHECK(senders(threw));
    CHECK_FALSE(senders(took(0)));
    CHECK_FALSE(senders(took(1)));
    const auto drain = [](result got) {
      return written()
          .channel(0, 1)
          .call(1, {send(0, 5)}, took(0))
          .close(0)
          .call(1, {recv(0)}, got)
          .call(1, {recv(0)}, closed)
          .is_allowed();
    };
    CHECK(drain(took(0, 5)));
    CHECK_FALSE(drain(closed));
    CHECK(written().channel(0, 0).close(0).close(0, false).is_allowed());
    CHECK_FALSE(written().channel(0, 0).close(0).close(0).is_allowed());
    CHECK_FALSE(written().channel(0, 1).close(0).call(1, {send(0, 5)}, took(0)).is_allowed());
  }

  TEST_CASE("hands a timer's deadline over once, and never a value that stop took back") {
    const auto received = [](instant at, result got) {
      return written().timer(0, 10).at(at).call(1, {time_of(0), otherwise}, got).is_allowed();
    };
    CHECK(received(9, took(1)));
    CHECK(received(15, took(0, 10)));
    CHECK_FALSE(received(15, took(0, 15)));
    CHECK_FALSE(received(15, took(1)));
    CHECK_FALSE(received(9, took(0, 10)));
    const auto stopped = [](bool was_pending, result got) {
      return written()
          .timer(0, 10)
          .at(15)
          .stop(0, was_pending)
          .call(1, {time_of(0), otherwise}, got)
          .is_allowed();
    };
    CHECK(stopped(true, took(1)));
    CHECK_FALSE(stopped(true, took(0, 10)));
    CHECK_FALSE(stopped(false, took(1)));
    CHECK(written()
              .timer(0, 10)
              .begin(1, {time_of(0)})
              .at(5)
              .reset(0, 12, true)
              .at(12)
              .end(1, took(0, 12))
              .stop(0, false)
              .is_allowed());
    CHECK_FALSE(written()
                    .timer(0, 10)
                    .begin(1, {time_of(0)})
                    .at(5)
                    .reset(0, 12, true)
                    .at(10)
                    .end(1, took(0, 10))
                    .is_allowed());
  }

  TEST_CASE("lets a timer that somebody waits on fire before or after another at its instant") {
    const auto at_ten = [](instant shown, bool was_pending) {
      return written()
          .timer(0, 10)
          .begin(1, {time_of(0), until(10)})
          .at(10)
          .deadline(0, shown)
          .stop(0, was_pending)
          .end(1, was_pending ? took(1) : took(0, 10))
          .is_allowed();
    };
    CHECK(at_ten(never, false));
    CHECK(at_ten(10, true));
    CHECK_FALSE(at_ten(never, true));
    CHECK_FALSE(at_ten(10, false));
  }

  TEST_CASE("keeps a ticker's phase and counts the dropped ticks") {
    const auto ticks = [](instant second, instant missed) {
      return written()
          .timer(0, 10, 10)
          .at(35)
          .call(1, {time_of(0)}, took(0, 10))
          .missed(0, missed)
          .begin(1, {time_of(0)})
          .at(second)
          .end(1, took(0, static_cast<value_id>(second)))
          .is_allowed();
    };
    CHECK(ticks(40, 2));
    CHECK_FALSE(ticks(40, 3));
    CHECK_FALSE(ticks(45, 2));
  }

  TEST_CASE("refuses a wait that was served and never went on") {
    const auto served = [](bool goes_on) {
      written w;
      w.channel(0, 0).begin(1, {recv(0)}).call(2, {send(0, 5)}, took(0));
      if (goes_on) w.end(1, took(0, 5));
      return w.is_allowed();
    };
    CHECK(served(true));
    CHECK_FALSE(served(false));
  }
}
