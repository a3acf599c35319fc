// The behaviour that Go's rules allow to channels, selects, timers and tickers.
//
// The model knows nothing of the implementation. A program records its calls and their
// results, in the order of its one worker; check_history() replays the record and refuses
// the first step that no rule allows.
//
// Everything that may wait is a select:
//
//   recv           select { recv }              recv_for    select { recv, timeout }
//   try_recv       select { recv, otherwise }   sleep_for   select { timeout }
//
// RM1 A select with a ready case takes one of the ready ones, at once; an ordered
//     select takes the first. Otherwise it takes `otherwise` or a timeout that has
//     passed, and failing that it waits in the queues of all its cases.
// RM2 Waiters are served first come, first served, at the step of the peer, and
//     go on at that instant. A wait ends at its deadline: not before, not after.
//     close() ends all waits of its channel.
// RM3 A timer's value is its deadline, and is there from that instant until it
//     is received, or stop() or reset() takes it back.
//
// Within an instant the firing of timers is not recorded. The result of a wait is known
// ahead, from its end further down; so an operation that is about to end by its own
// timeout, or by a timer, at this very instant counts as gone for others.
#pragma once

#include "core/chan/history.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

namespace vigil::testing_support {

class reference_model {
 public:
  explicit reference_model(const history& h) : history_(h), end_of_(ends(h)) {}

  // Throws a std::runtime_error that names the rule that was broken, and the place.
  void check() {
    for (at_ = 0; at_ < history_.records.size(); ++at_) {
      const record& r = history_.records[at_];
      if (r.now != now_) advance_to(r.now);
      play(r);
    }
    for (const operation& op : operations_)
      if (op.parked && op.served) refuse(op, "was served and never went on");
  }

 private:
  struct place {  // a place in a queue
    std::size_t who;
    std::size_t index;
  };

  struct channel_state {
    std::size_t capacity = 0;
    std::deque<value_id> buffer;
    bool closed = false;
    std::vector<place> receivers;
    std::vector<place> senders;
  };

  struct timer_state {
    instant when = never;
    instant period = 0;
    instant missed = 0;
    std::vector<place> receivers;
  };

  struct operation {  // the running or last operation of a fiber
    const record* asked = nullptr;
    const record* end = nullptr;  // nullptr: it never ended
    bool parked = false;
    bool served = false;
  };

  enum class readiness : std::uint8_t { no, yes, unless_rung };

  static std::vector<std::size_t> ends(const history& h) {
    std::vector<std::size_t> end_of(h.records.size());
    std::vector<std::size_t> begun;
    for (std::size_t i = 0; i < h.records.size(); ++i) {
      const auto f = static_cast<std::size_t>(h.records[i].fiber);
      if (f >= begun.size()) begun.resize(f + 1);
      if (h.records[i].what == record::kind::begin) begun[f] = i;
      if (h.records[i].what == record::kind::end) end_of[begun[f]] = i;
    }
    return end_of;
  }

  [[noreturn]] void refuse(const operation& op, const std::string& why) const {
    std::string text = "the rules do not allow this: " + to_string(history_, *op.asked);
    if (op.end != nullptr) text += "\n  which ended: " + to_string(history_, *op.end);
    refuse(text + "\n  it " + why);
  }

  [[noreturn]] void refuse(const std::string& why) const {
    std::string text = why + "\nthe steps up to there:\n";
    constexpr std::size_t shown = 40;
    for (std::size_t i = at_ < shown ? 0 : at_ - shown; i <= at_ && i < history_.records.size();
         ++i)
      text += "  " + to_string(history_, history_.records[i]) + "\n";
    throw std::runtime_error(text);
  }

  // --- the state

  template <class State>
  static State& at(std::vector<State>& all, int object) {
    if (static_cast<std::size_t>(object) >= all.size())
      all.resize(static_cast<std::size_t>(object) + 1);
    return all[static_cast<std::size_t>(object)];
  }

  channel_state& channel_at(int object) { return at(channels_, object); }

  timer_state& timer_at(int object) { return at(timers_, object); }

  const wish& wish_of(const operation& op, std::size_t i) const {
    return history_.wishes[op.asked->first + i];
  }

  // The case that its end says it took; nullptr if that is unknown.
  const wish* taken_by(const operation& op) const {
    if (op.end == nullptr || op.end->got.index < 0) return nullptr;
    return &wish_of(op, static_cast<std::size_t>(op.end->got.index));
  }

  std::vector<place>* queue_of(const wish& w) {
    if (w.object == nil) return nullptr;
    switch (w.what) {
      case wish::kind::recv:
        return &channel_at(w.object).receivers;
      case wish::kind::send:
        return &channel_at(w.object).senders;
      case wish::kind::timer:
        return &timer_at(w.object).receivers;
      default:
        return nullptr;
    }
  }

  instant deadline_of(const operation& op) const {
    instant least = never;
    for (std::size_t i = 0; i < op.asked->count; ++i) {
      const wish& w = wish_of(op, i);
      if (w.what == wish::kind::timeout && w.deadline < least) least = w.deadline;
    }
    return least;
  }

  bool is_due(const timer_state& t) const { return t.when != never && t.when <= now_; }

  bool sends_on(const operation& op, int channel) const {
    for (std::size_t i = 0; i < op.asked->count; ++i)
      if (wish_of(op, i).what == wish::kind::send && wish_of(op, i).object == channel) return true;
    return false;
  }

  // --- the waiters

  // Returns whether it ends at this very instant without any other fiber.
  bool ends_by_itself(const operation& op) {
    const wish* const w = taken_by(op);
    if (w == nullptr) return false;
    if (w->what == wish::kind::timeout)
      return w->deadline == deadline_of(op) && w->deadline == now_;
    if (w->what != wish::kind::timer) return false;
    const timer_state& t = timer_at(w->object);
    return is_due(t) && op.end->got.value == static_cast<value_id>(t.when);
  }

  operation* first_of(const std::vector<place>& queue) {
    for (const place& p : queue)
      if (!ends_by_itself(operations_[p.who])) return &operations_[p.who];
    return nullptr;
  }

  void park(operation& op) {
    op.parked = true;
    for (std::size_t i = 0; i < op.asked->count; ++i) {
      if (std::vector<place>* const queue = queue_of(wish_of(op, i)))
        queue->push_back({static_cast<std::size_t>(op.asked->fiber), i});
    }
  }

  void serve(operation& op) {
    op.served = true;
    for (std::size_t i = 0; i < op.asked->count; ++i) {
      if (std::vector<place>* const queue = queue_of(wish_of(op, i))) {
        std::erase_if(*queue, [&](const place& p) {
          return p.who == static_cast<std::size_t>(op.asked->fiber);
        });
      }
    }
  }

  void give(operation& op, int channel, value_id value) {
    const wish* const w = taken_by(op);
    if (op.end != nullptr &&
        (w == nullptr || w->what != wish::kind::recv || w->object != channel ||
         op.end->got.how != result::kind::done || op.end->got.value != value)) {
      refuse(op,
             "is the first that waits for channel " + std::to_string(channel) +
                 ", which was just sent " + std::to_string(value));
    }
    serve(op);
  }

  value_id take_from(operation& op, int channel) {
    const wish* w = taken_by(op);
    if (op.end != nullptr && (w == nullptr || w->what != wish::kind::send || w->object != channel ||
                              op.end->got.how != result::kind::done)) {
      refuse(op,
             "is the first that waits to send on channel " + std::to_string(channel) +
                 ", where just now something was received");
    }
    for (std::size_t i = 0; w == nullptr; ++i)
      if (wish_of(op, i).what == wish::kind::send && wish_of(op, i).object == channel)
        w = &wish_of(op, i);
    serve(op);
    return w->value;
  }

  // The timer fires for the first of its waiters.
  void ring(int object) {
    timer_state& t = timer_at(object);
    for (const place& p : t.receivers) {
      operation& op = operations_[p.who];
      const wish* const w = taken_by(op);
      const bool has_it = op.end == nullptr ||
                          (w != nullptr && w->what == wish::kind::timer && w->object == object &&
                           op.end->got.value == static_cast<value_id>(t.when));
      if (has_it) {
        serve(op);
        move_on(t);
        return;
      }
      if (!ends_by_itself(op)) refuse(op, "is the first that waits for a timer that fired");
    }
    refuse("the value of timer " + std::to_string(object) + " is gone, and nobody has it");
  }

  void move_on(timer_state& t) const {
    if (t.period == 0) {
      t.when = never;
      return;
    }
    const instant dropped = (now_ - t.when) / t.period;
    t.missed += dropped;
    t.when += (dropped + 1) * t.period;
  }

  // --- one select

  readiness ready(const wish& w) {
    const auto yes_if = [](bool b) { return b ? readiness::yes : readiness::no; };
    if (w.object == nil) return readiness::no;
    if (w.what == wish::kind::recv) {
      channel_state& c = channel_at(w.object);
      return yes_if(!c.buffer.empty() || c.closed || first_of(c.senders) != nullptr);
    }
    if (w.what == wish::kind::send) {
      channel_state& c = channel_at(w.object);
      return yes_if(c.closed || c.buffer.size() < c.capacity || first_of(c.receivers) != nullptr);
    }
    if (w.what != wish::kind::timer) return readiness::no;
    timer_state& t = timer_at(w.object);
    // There is a waiter: at this instant the timer has fired for it, or will.
    return !is_due(t)            ? readiness::no
           : t.receivers.empty() ? readiness::yes
                                 : readiness::unless_rung;
  }

  void take(const operation& op, const wish& w) {
    const result& got = op.end->got;
    const auto expect = [&](result::kind how, value_id value) {
      if (got.how != how || got.value != value)
        refuse(op, "should have got " + std::to_string(value));
    };
    if (w.what == wish::kind::timer) {
      timer_state& t = timer_at(w.object);
      expect(result::kind::done, static_cast<value_id>(t.when));
      move_on(t);
      return;
    }
    channel_state& c = channel_at(w.object);
    if (w.what == wish::kind::send) {
      expect(c.closed ? result::kind::threw_closed : result::kind::done, 0);
      if (c.closed) return;
      if (operation* const peer = first_of(c.receivers)) {
        give(*peer, w.object, w.value);
      } else {
        c.buffer.push_back(w.value);
      }
      return;
    }
    operation* const peer = first_of(c.senders);
    if (!c.buffer.empty()) {
      expect(result::kind::done, c.buffer.front());
      c.buffer.pop_front();
      if (peer != nullptr) c.buffer.push_back(take_from(*peer, w.object));
    } else if (peer != nullptr) {
      expect(result::kind::done, take_from(*peer, w.object));
    } else {
      expect(result::kind::closed, 0);
    }
  }

  // The case that it took at once; nullptr: none was ready.
  const wish* taken_at_once(const operation& op, bool at_once) {
    if (!at_once) return nullptr;
    const wish* w = taken_by(op);
    for (std::size_t i = 0; w == nullptr && i < op.asked->count; ++i) {
      const wish& other = wish_of(op, i);  // it threw
      if (other.what == wish::kind::send && other.object != nil && channel_at(other.object).closed)
        w = &other;
    }
    if (w == nullptr || ready(*w) == readiness::no) return nullptr;
    // Fired for another waiter: then this one came a period later, or after a reset.
    const bool rung = ready(*w) == readiness::unless_rung &&
                      op.end->got.value != static_cast<value_id>(timer_at(w->object).when);
    return rung ? nullptr : w;
  }

  void begin(const record& r) {
    operation& op = at(operations_, r.fiber);
    const std::size_t end = end_of_[at_];
    op = {&r, end != 0 ? &history_.records[end] : nullptr, false, false};
    const bool at_once = end == at_ + 1;

    const wish* const taken = taken_at_once(op, at_once);
    for (std::size_t i = 0; i < r.count; ++i) {
      const wish& w = wish_of(op, i);
      if (taken != nullptr && (!r.ok || &w == taken)) break;
      const readiness is = ready(w);
      if (is == readiness::yes)
        refuse(op, "did not take case " + std::to_string(i) + ", which is ready");
      if (is == readiness::unless_rung) ring(w.object);
    }
    if (taken != nullptr) {
      take(op, *taken);
      op.served = true;
      return;
    }
    bool waits = true;
    for (std::size_t i = 0; i < r.count; ++i) {
      const wish& w = wish_of(op, i);
      if (!is_way_out(w)) continue;
      waits = false;
      if (at_once && &w == taken_by(op)) op.served = true;
    }
    if (waits) {
      park(op);
    } else if (!op.served) {
      refuse(op, "should not have waited");
    }
  }

  bool is_way_out(const wish& w) const {
    return w.what == wish::kind::otherwise || (w.what == wish::kind::timeout && w.deadline <= now_);
  }

  void end(const record& r) {
    operation& op = at(operations_, r.fiber);
    if (!op.served) {
      if (!ends_by_itself(op)) refuse(op, "had no reason to end");
      const wish& w = *taken_by(op);
      if (w.what == wish::kind::timer) ring(w.object);
      if (!op.served) serve(op);
    }
    op.parked = false;
  }

  // --- the other steps

  void close(const record& r) {
    channel_state& c = channel_at(r.object);
    if (r.ok == c.closed) refuse("close() says that the channel was open, or not, wrongly");
    if (c.closed) return;
    c.closed = true;
    for (const std::vector<place>* const queue : {&c.receivers, &c.senders}) {
      while (operation* const op = first_of(*queue)) {
        const wish* const w = taken_by(*op);
        const bool told =
            op->end == nullptr ||
            (w != nullptr ? op->end->got.how == result::kind::closed && w->object == r.object
                          : queue == &c.senders || sends_on(*op, r.object));
        if (!told) refuse(*op, "waits on a channel that was closed");
        serve(*op);
      }
    }
  }

  void play(const record& r) {
    switch (r.what) {
      case record::kind::begin:
        return begin(r);
      case record::kind::end:
        return end(r);
      case record::kind::close:
        return close(r);
      case record::kind::channel:
        channel_at(r.object) = {static_cast<std::size_t>(r.a), {}, false, {}, {}};
        return;
      case record::kind::size:
        if (r.a != static_cast<instant>(channel_at(r.object).buffer.size()))
          refuse("size() is wrong");
        return;
      default:
        break;
    }
    timer_state& t = timer_at(r.object);
    switch (r.what) {
      case record::kind::deadline:
        if (r.a != t.when && is_due(t) && !t.receivers.empty()) ring(r.object);
        if (r.a != t.when) refuse("deadline() is wrong");
        return;
      case record::kind::missed:
        if (r.a != t.missed) refuse("missed() is wrong");
        return;
      case record::kind::timer:
        t = {r.a, r.b, 0, {}};
        return;
      default:
        if (r.ok != (t.when != never)) refuse("it says wrongly whether a value was pending");
        t.when = r.what == record::kind::stop ? never : r.a;
        if (r.what == record::kind::reset) t.period = r.b;
    }
  }

  // The clock moves when nothing else can happen.
  void advance_to(instant now) {
    for (const operation& op : operations_) {
      if (!op.parked) continue;
      if (op.served) refuse(op, "was served, and time went on without it");
      if (deadline_of(op) < now) refuse(op, "waits beyond its deadline");
    }
    for (std::size_t i = 0; i < timers_.size(); ++i) {
      if (timers_[i].when < now && !timers_[i].receivers.empty())
        refuse("somebody waits on timer " + std::to_string(i) + ", and it did not fire");
    }
    if (now < now_) refuse("the clock went back");
    now_ = now;
  }

  const history& history_;
  const std::vector<std::size_t> end_of_;  // index of each begin's end; 0: none
  std::size_t at_ = 0;
  instant now_ = 0;
  std::vector<channel_state> channels_;
  std::vector<timer_state> timers_;
  std::vector<operation> operations_;  // by fiber
};

inline void check_history(const history& h) {
  reference_model(h).check();
}

}  // namespace vigil::testing_support
