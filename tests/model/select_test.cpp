// select: of all that could end it exactly one does, the others keep their values, and no
// case is left in any queue (SE1, SE2 of selecting.hpp).
//
// The cases lie in a vigil::case_list, which is freed after the select: a case left in a
// queue is a use of freed memory. A thread's select is select_ordered: its draw would
// differ from process to process. A fiber's draw depends on the seed.
#include "core/sched/worker/worker.hpp"
#include "instants.hpp"
#include "parcel.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::channel_status;
using vigil::detail::choice;

using programs::brief;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::parcel;
using programs::run_with_outside_work;
using programs::send;
using programs::workers;

namespace {

using line = vigil::channel<parcel>;
using patience = std::optional<std::chrono::nanoseconds>;

// The effects of a select on each of two channels.
struct deed {
  int from_a = 0;  // the value received; 0: none
  int from_b = 0;
  bool into_a = false;
  bool into_b = false;
  bool timed_out = false;

  std::string said() const {
    return from_a != 0   ? "from a"
           : from_b != 0 ? "from b"
           : into_a      ? "into a"
           : into_b      ? "into b"
                         : "timeout";
  }

  int count() const {
    return (from_a != 0 ? 1 : 0) + (from_b != 0 ? 1 : 0) + (into_a ? 1 : 0) + (into_b ? 1 : 0) +
           (timed_out ? 1 : 0);
  }
};

// The cases of one select; they are destroyed with it.
class cases {
 public:
  explicit cases(deed& d) : deed_(d) {}

  cases& recv_a(const line& a) {
    list_.add(
        vigil::on_recv(a, [&d = deed_](std::optional<parcel> p) { d.from_a = p ? p->id() : -1; }));
    return *this;
  }

  cases& recv_b(const line& b) {
    list_.add(
        vigil::on_recv(b, [&d = deed_](std::optional<parcel> p) { d.from_b = p ? p->id() : -1; }));
    return *this;
  }

  cases& send_a(const line& a, parcel& p) {
    list_.add(vigil::on_send(a, std::ref(p), [&d = deed_] { d.into_a = true; }));
    return *this;
  }

  cases& send_b(const line& b, parcel& p) {
    list_.add(vigil::on_send(b, std::ref(p), [&d = deed_] { d.into_b = true; }));
    return *this;
  }

  cases& give_up(patience after) {
    if (after) list_.add(vigil::on_timeout(*after, [&d = deed_] { d.timed_out = true; }));
    return *this;
  }

  void run(choice how = choice::ordered) {
    how == choice::fair ? vigil::select(list_) : vigil::select_ordered(list_);
    model::require(deed_.count() == 1, "a select takes one case");
  }

 private:
  deed& deed_;
  vigil::case_list list_;
};

// Requires that nobody waits at any of them.
void require_idle(const line& ch) {
  int ended = 0;
  parcel probe(0, ended);
  model::require(ch.try_send(std::move(probe)).status() == channel_status::not_ready,
                 "no receiver is left behind");
  model::require(ch.try_recv().status() == channel_status::not_ready, "no sender is left behind");
}

struct lines {
  line a = vigil::make_channel<parcel>();
  line b = vigil::make_channel<parcel>();
};

// Two selects that can meet on either channel.
void meet(patience here, patience there, choice how = choice::ordered) {
  int ended = 0;
  const lines l;
  deed one;
  deed other;
  parcel for_b(1, ended);
  parcel for_a(2, ended);
  std::thread thread([&] { cases(other).recv_b(l.b).send_a(l.a, for_a).give_up(there).run(); });
  cases(one).recv_a(l.a).send_b(l.b, for_b).give_up(here).run(how);
  model::note_outcome(one.said());
  // A select that has gone must not be found any more while the other still waits.
  if (one.timed_out && !there) {
    const auto got = l.a.recv();
    one.from_a = got->id();
    one.timed_out = false;
  }
  thread.join();
  model::require(one.from_a == (other.into_a ? 2 : 0), "what one receives the other has sent");
  model::require(other.from_b == (one.into_b ? 1 : 0), "and so the other way");
  model::require(one.timed_out == other.timed_out, "both or neither");
  model::require(for_a.is_here() != other.into_a, "sent or in the hand");
  model::require(for_b.is_here() != one.into_b, "sent or in the hand");
  require_idle(l.a);
  require_idle(l.b);
}

// A select on both channels, and a sender at each, which may wait or not.
void two_senders(patience selects, bool senders_wait) {
  int ended = 0;
  const lines l;
  deed d;
  parcel for_a(1, ended);
  parcel for_b(2, ended);
  const auto gives = [senders_wait](const line& to, parcel& p) {
    if (senders_wait) {
      static_cast<void>(to.send_for(std::move(p), brief));
    } else {
      static_cast<void>(to.try_send(std::move(p)));
    }
  };
  std::thread first([&] { gives(l.a, for_a); });
  std::thread second([&] { gives(l.b, for_b); });
  cases(d).recv_a(l.a).recv_b(l.b).give_up(selects).run();
  model::note_outcome(d.said());
  first.join();
  second.join();
  model::require(for_a.is_here() == (d.from_a == 0), "received or in the hand");
  model::require(for_b.is_here() == (d.from_b == 0), "received or in the hand");
  require_idle(l.a);
  require_idle(l.b);
}

// A value moves from b to a while a select with otherwise looks: it is in one of the two
// all the time.
template <class F>
void a_value_moves(F selects) {
  const auto a = vigil::make_channel<int>(1);
  const auto b = vigil::make_channel<int>(1);
  model::require(static_cast<bool>(b.try_send(1)), "there is room");
  std::thread mover([&] {
    model::require(static_cast<bool>(a.try_send(2)), "there is room");
    static_cast<void>(b.try_recv());
  });
  model::require(selects(a, b) != 2, "one of them is ready all the time");
  mover.join();
}

}  // namespace

TEST_CASE("select: two selects over two channels meet once or not at all") {
  model::take_outcomes();
  prove("select: two selects", [] { meet({}, {}); });
  expect_outcomes({"from a", "into b"});
  prove("select: two selects, one with a timeout", [] { meet(brief, {}); });
  expect_outcomes({"from a", "into b", "timeout"});
  prove("select: two selects, both with a timeout", [] { meet(brief, brief); });
  expect_outcomes({"from a", "into b", "timeout"});
}

TEST_CASE("select: one of two senders is served, the other keeps its value") {
  model::take_outcomes();
  prove("select: try_sends on both channels, a timeout", [] { two_senders(brief, false); });
  expect_outcomes({"from a", "from b", "timeout"});
  prove("select: sends on both channels, a timeout", [] { two_senders(brief, true); });
  expect_outcomes({"from a", "from b", "timeout"});
}

TEST_CASE("select: two selects on the same channels each get a value of their own") {
  prove("select: two receiving selects, two values", [] {
    int ended_a = 0;
    int ended_b = 0;
    const lines l;
    deed one;
    deed other;
    std::thread thread([&] { cases(other).recv_b(l.b).recv_a(l.a).run(); });
    std::thread giver([&] {
      parcel for_a(1, ended_a);
      parcel for_b(2, ended_b);
      model::require(send(l.a, for_a) == channel_status::ok, "somebody takes it");
      model::require(send(l.b, for_b) == channel_status::ok, "somebody takes it");
    });
    cases(one).recv_a(l.a).recv_b(l.b).run();
    thread.join();
    giver.join();
    model::require(one.from_a + other.from_a == 1, "the one arrives once");
    model::require(one.from_b + other.from_b == 2, "the other arrives once");
    require_idle(l.a);
    require_idle(l.b);
  });
}

TEST_CASE("select: a close, a value or a timeout ends it") {
  model::take_outcomes();
  prove("select: close of one, a value on the other, a timeout", [] {
    int ended = 0;
    const lines l;
    deed d;
    parcel for_b(2, ended);
    std::thread closer([&] { l.a.close(); });
    std::thread giver([&] { static_cast<void>(l.b.try_send(std::move(for_b))); });
    cases(d).recv_a(l.a).recv_b(l.b).give_up(brief).run();
    model::note_outcome(d.said());
    closer.join();
    giver.join();
    model::require(d.from_a <= 0, "only the close comes from there");
    model::require(for_b.is_here() == (d.from_b == 0), "received or in the hand");
    require_idle(l.b);
  });
  expect_outcomes({"from a", "from b", "timeout"});
  prove("select: a send against a close", [] {
    int ended = 0;
    const lines l;
    deed d;
    parcel for_a(1, ended);
    std::thread closer([&] { l.a.close(); });
    bool refused = false;
    try {
      cases(d).send_a(l.a, for_a).recv_b(l.b).run();
    } catch (const vigil::channel_closed&) {
      refused = true;
    }
    closer.join();
    model::require(refused && for_a.is_here() && d.count() == 0, "the value is in the hand");
    require_idle(l.b);
  });
}

TEST_CASE("select: a select that says that nothing is ready has looked at one instant") {
  prove(
      "select: otherwise, while a value moves",
      [] {
        a_value_moves([](const auto& a, const auto& b) {
          return vigil::select_ordered(vigil::on_recv(a), vigil::on_recv(b), vigil::otherwise());
        });
      },
      also::unbounded);
}

TEST_CASE("select: a fiber's select that a thread or its deadline ends") {
  model::take_outcomes();
  prove("select: a fiber's, a thread's try_send, a timeout, 1 worker", [] {
    run_with_outside_work(1, [] {
      int ended = 0;
      const lines l;
      deed d;
      parcel for_b(2, ended);
      const model::window w;
      std::thread giver([&] { static_cast<void>(l.b.try_send(std::move(for_b))); });
      cases(d).recv_a(l.a).recv_b(l.b).give_up(brief).run();
      model::note_outcome(d.said());
      giver.join();
      model::require(for_b.is_here() == (d.from_b == 0), "received or in the hand");
      require_idle(l.a);
      require_idle(l.b);
      model::enough();
    });
  });
  expect_outcomes({"from b", "timeout"});
  prove("select: a fiber's and a thread's, a timeout, 1 worker", [] {
    run_with_outside_work(1, [] {
      const model::window w;
      meet(brief, {});
      model::enough();
    });
  });
  expect_outcomes({"from a", "into b", "timeout"});
}

// A fair select first looks at each channel by itself, in the order it draws.
TEST_CASE("select: a fair select looks at one instant before it waits or gives up") {
  for (const std::uint64_t seed : {1, 3}) {  // two seeds that draw differently
    const std::string which = ", seed " + std::to_string(seed);
    const auto on_a_fiber = [seed](auto f) {
      return [seed, f] {
        run_with_outside_work(1, [seed, f] {
          vigil::detail::current_worker()->dice() = vigil::detail::random(seed);
          const model::window w;
          f();
          model::enough();
        });
      };
    };
    model::take_outcomes();
    prove(("select: a fiber's fair one and a thread's" + which).c_str(),
          on_a_fiber([] { meet(brief, {}, choice::fair); }));
    expect_outcomes({"from a", "into b", "timeout"});
    prove(("select: fair, otherwise, while a value moves" + which).c_str(), on_a_fiber([] {
            a_value_moves([](const auto& a, const auto& b) {
              return vigil::select(vigil::on_recv(a), vigil::on_recv(b), vigil::otherwise());
            });
          }));
  }
}

// The other fiber already waits on the other worker, which sleeps to its deadline.
TEST_CASE("select: two fibers' selects, one of which has a deadline") {
  prove("select: two fibers', one with a timeout, 2 workers", [] {
    vigil::run(workers(2), [] {
      int ended = 0;
      const lines l;
      deed one;
      deed other;
      parcel for_b(1, ended);
      parcel for_a(2, ended);
      auto f =
          vigil::spawn([&] { cases(other).send_a(l.a, for_a).recv_b(l.b).give_up(brief).run(); });
      vigil::sleep_for(brief / 2);
      let_the_other_rest();
      {
        const model::window w;
        cases(one).recv_a(l.a).send_b(l.b, for_b).give_up(brief / 4).run();
        f.join();
      }
      model::note_outcome(one.said());
      model::require(one.from_a == (other.into_a ? 2 : 0), "what one receives the other has sent");
      model::require(other.from_b == (one.into_b ? 1 : 0), "and so the other way");
      model::require(one.timed_out == other.timed_out, "both or neither");
      require_idle(l.a);
      require_idle(l.b);
      model::enough();
    });
  });
  expect_outcomes({"from a", "timeout"});
}
