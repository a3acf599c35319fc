// A random program on virtual time that records its calls and their results.
//
// One seed decides everything about it: 2 to 64 fibers share channels of capacity 0 to 3,
// timers and tickers. Durations are few and short, so deadlines often coincide. A referee
// (fiber 0) closes the channels and resets the timers whenever all others are stuck, so
// each program ends.
#pragma once

#include "core/chan/history.hpp"
#include "core/chan/sent_values.hpp"
#include "support/in_runtime.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace vigil::testing_support {

template <class Value>
class random_program {
 public:
  random_program(std::uint64_t seed, bool sets_wide) : random_(seed), wide_(sets_wide) {}

  // Runs as the main fiber.
  void run() {
    const int fibers = wide_ ? 17 + draw(47) : 2 + draw(7);
    const int steps = wide_ ? 12 : 40;
    for (int i = 0, n = 1 + draw(4); i < n; ++i)
      channels_.push_back(fresh_channel(0));
    for (int i = 0, n = 1 + draw(3); i < n; ++i)
      clocks_.push_back(fresh_clock());
    for (int f = 1; f <= fibers; ++f) {
      vigil::go([this, f, steps, seed = random_.next()] {
        seeded dice(seed);
        for (int i = 0; i < steps; ++i)
          step(f, dice);
        ++finished_;
      });
    }
    referee(fibers);
  }

  const history& written() const { return history_; }

  std::uint64_t operations() const { return operations_; }

 private:
  using channel_of = vigil::channel<Value>;
  using nanoseconds = std::chrono::nanoseconds;

  struct channel_slot {
    channel_of channel;
    int id = nil;
  };

  struct clock_slot {
    vigil::timer once;
    vigil::ticker again;
    int id = nil;
    bool ticks = false;

    vigil::timer_receiver channel() const { return ticks ? again.channel() : once.channel(); }

    vigil::clock::time_point deadline() const { return ticks ? again.deadline() : once.deadline(); }
  };

  // The arguments of one select, beside the wishes that are recorded.
  struct drawn_case {
    wish::kind what = wish::kind::otherwise;
    channel_of channel;
    vigil::timer_receiver timer;
    Value value{};
    nanoseconds timeout{};
    bool absolute = false;
  };

  int draw(int n) { return static_cast<int>(random_.below(static_cast<std::uint32_t>(n))); }

  static int draw(seeded& dice, int n) {
    return static_cast<int>(dice.below(static_cast<std::uint32_t>(n)));
  }

  static instant now() { return vigil::clock::now().time_since_epoch().count(); }

  static nanoseconds length(seeded& dice) { return std::chrono::milliseconds(draw(dice, 6) - 1); }

  // A timer with a negative delay is due now.
  static instant due_in(nanoseconds d) { return now() + std::max<instant>(0, d.count()); }

  // --- the record

  record& write(record::kind what, int fiber, int object = nil) {
    history_.records.push_back({});
    record& r = history_.records.back();
    r.what = what;
    r.fiber = fiber;
    r.now = now();
    r.object = object;
    return r;
  }

  void begin(int fiber, bool ordered, const wish* first, std::size_t count) {
    record& r = write(record::kind::begin, fiber);
    r.ok = ordered;
    r.first = history_.wishes.size();
    r.count = count;
    history_.wishes.insert(history_.wishes.end(), first, first + count);
    ++operations_;
  }

  void begin(int fiber, bool ordered, std::initializer_list<wish> wishes) {
    begin(fiber, ordered, wishes.begin(), wishes.size());
  }

  void end(int fiber, result got) {
    write(record::kind::end, fiber).got = got;
    ++ended_;
  }

  // --- the steps of a fiber

  void step(int f, seeded& dice) {
    const int roll = draw(dice, 100);
    if (roll < 14) return send(f, dice);
    if (roll < 30) return recv(f, dice);
    if (roll < 38) return recv_timer(f, dice);
    if (roll < 70) return choose(f, dice);
    if (roll < 73) return close(f, dice);
    if (roll < 75) return look_at_size(f, dice);
    if (roll < 86) return turn_clock(f, dice);
    if (roll < 89) return vigil::this_fiber::yield();
    const nanoseconds d = length(dice);
    begin(f, false, {timeout_in(d)});
    vigil::sleep_for(d);
    end(f, {result::kind::done, 0, 0});
  }

  // Sometimes a nil channel, but only for a form that ends by itself.
  channel_slot any_channel(seeded& dice, bool may_be_nil) const {
    if (may_be_nil && draw(dice, 16) == 0) return {};
    return channels_[static_cast<std::size_t>(draw(dice, static_cast<int>(channels_.size())))];
  }

  clock_slot& any_clock(seeded& dice) {
    return clocks_[static_cast<std::size_t>(draw(dice, static_cast<int>(clocks_.size())))];
  }

  static wish timeout_in(nanoseconds d) { return {wish::kind::timeout, nil, 0, now() + d.count()}; }

  static constexpr wish otherwise_wish{wish::kind::otherwise, nil, 0, 0};

  void send(int f, seeded& dice) {
    const int form = draw(dice, 4);
    const channel_slot to = any_channel(dice, form != 0);
    const value_id id = ++last_value_;
    Value value(id);
    const wish sends{wish::kind::send, to.id, id, 0};
    const nanoseconds d = length(dice);
    result got{result::kind::done, 0, 0};
    if (form == 0) {
      begin(f, false, {sends});
      try {
        to.channel.send(std::move(value));
      } catch (const vigil::channel_closed&) {
        got = {result::kind::threw_closed, nil, 0};
      }
    } else {
      begin(f, false, {sends, form == 1 ? otherwise_wish : timeout_in(d)});
      const vigil::send_result how =
          form == 1   ? to.channel.try_send(std::move(value))
          : form == 2 ? to.channel.send_for(std::move(value), d)
                      : to.channel.send_until(std::move(value), vigil::clock::now() + d);
      if (how.is_closed()) got = {result::kind::threw_closed, nil, 0};
      if (!how && !how.is_closed()) got.index = 1;
      REQUIRE(how.is_timeout() == (form != 1 && got.index == 1));
    }
    end(f, got);
    check_hand(value, id, got.how == result::kind::done && got.index == 0);
    renew_closed(f, dice);
  }

  // Sent or still in the hand: never both, never neither.
  static void check_hand(const Value& value, value_id id, bool sent) {
    if (sent) {
      REQUIRE(Value::is_moved_out(value));
    } else {
      REQUIRE(value.is_in_hand(id));
    }
  }

  static value_id id_of(const Value& value) { return value.id; }

  static value_id id_of(vigil::clock::time_point t) {
    return static_cast<value_id>(t.time_since_epoch().count());
  }

  template <class T>
  static result result_of(const std::optional<T>& value) {
    return value ? result{result::kind::done, 0, id_of(*value)}
                 : result{result::kind::closed, 0, 0};
  }

  template <class T>
  static result result_of(vigil::recv_result<T> r) {
    if (r) return {result::kind::done, 0, id_of(*r)};
    return r.is_closed() ? result{result::kind::closed, 0, 0} : result{result::kind::done, 1, 0};
  }

  template <class Channel>
  void recv_from(int f, const Channel& from, wish what, int form, nanoseconds d) {
    if (form == 0) {
      begin(f, false, {what});
      end(f, result_of(from.recv()));
    } else if (form == 1) {
      begin(f, false, {what, otherwise_wish});
      end(f, result_of(from.try_recv()));
    } else {
      begin(f, false, {what, timeout_in(d)});
      end(f, result_of(form == 2 ? from.recv_for(d) : from.recv_until(vigil::clock::now() + d)));
    }
  }

  void recv(int f, seeded& dice) {
    const int form = draw(dice, 4);
    const channel_slot from = any_channel(dice, form != 0);
    recv_from(f, from.channel, {wish::kind::recv, from.id, 0, 0}, form, length(dice));
    renew_closed(f, dice);
  }

  void recv_timer(int f, seeded& dice) {
    const int form = draw(dice, 4);
    const clock_slot& from = any_clock(dice);
    const vigil::timer_receiver channel = from.channel();
    recv_from(f, channel, {wish::kind::timer, from.id, 0, 0}, form, length(dice));
  }

  // --- select

  void choose(int f, seeded& dice) {
    std::vector<drawn_case> cases;
    const bool in_list = draw(dice, 2) == 0;
    const int n = in_list ? 1 + draw(dice, 8) : 4;
    std::vector<wish> wishes;
    cases.reserve(static_cast<std::size_t>(n));
    bool ends = false;
    bool has_otherwise = false;
    for (int i = 0; i < n; ++i) {
      // The form with a fixed number of cases: two receives, a send, a timer.
      const int kind =
          in_list ? draw(dice, 20) : std::array{0, 1, 8, 15}[static_cast<std::size_t>(i)];
      drawn_case c;
      wish w;
      if (kind < 14) {
        const channel_slot slot = any_channel(dice, i != 0);
        ends = ends || slot.id != nil;
        c.channel = slot.channel;
        w = {kind < 8 ? wish::kind::recv : wish::kind::send, slot.id, 0, 0};
        if (w.what == wish::kind::send) c.value = Value(w.value = ++last_value_);
      } else if (kind < 17) {
        w.what = wish::kind::timer;
        if (draw(dice, 4) == 0) {
          const nanoseconds d = length(dice);
          c.timer = vigil::after(d);
          w.object = new_timer(f, due_in(d), 0);
        } else {
          const clock_slot& slot = any_clock(dice);
          c.timer = slot.channel();
          w.object = slot.id;
        }
        ends = true;
      } else if (kind < 19 || has_otherwise) {
        c.timeout = length(dice);
        c.absolute = draw(dice, 2) == 0;
        w = timeout_in(c.timeout);
        ends = true;
      } else {
        w = otherwise_wish;
        has_otherwise = ends = true;
      }
      c.what = w.what;
      cases.push_back(std::move(c));
      wishes.push_back(w);
    }
    if (!ends) return;
    const bool ordered = draw(dice, 3) == 0;
    begin(f, ordered, wishes.data(), wishes.size());

    result got;
    try {
      const std::size_t index =
          in_list ? select_list(cases, ordered, got) : select_four(cases, ordered, got);
      REQUIRE(static_cast<int>(index) == got.index);
    } catch (const vigil::channel_closed&) {
      got = {result::kind::threw_closed, nil, 0};
    }
    end(f, got);
    for (std::size_t i = 0; i < cases.size(); ++i) {
      if (cases[i].what != wish::kind::send) continue;
      check_hand(cases[i].value,
                 wishes[i].value,
                 got.how == result::kind::done && got.index == static_cast<int>(i));
    }
    renew_closed(f, dice);
  }

  template <class T>
  static auto keep(result& got, std::size_t i) {
    return [&got, i](std::optional<T> value) {
      got = result_of(value);
      got.index = static_cast<int>(i);
    };
  }

  static auto note(result& got, std::size_t i) {
    return [&got, i] { got = {result::kind::done, static_cast<int>(i), 0}; };
  }

  static std::size_t select_list(std::vector<drawn_case>& cases, bool ordered, result& got) {
    vigil::case_list list;
    for (std::size_t i = 0; i < cases.size(); ++i) {
      drawn_case& c = cases[i];
      switch (c.what) {
        case wish::kind::recv:
          list.add(vigil::on_recv(c.channel, keep<Value>(got, i)));
          break;
        case wish::kind::send:
          list.add(vigil::on_send(c.channel, std::ref(c.value), note(got, i)));
          break;
        case wish::kind::timer:
          list.add(vigil::on_recv(c.timer, keep<vigil::clock::time_point>(got, i)));
          break;
        case wish::kind::timeout:
          if (c.absolute) {
            list.add(vigil::on_deadline(vigil::clock::now() + c.timeout, note(got, i)));
          } else {
            list.add(vigil::on_timeout(c.timeout, note(got, i)));
          }
          break;
        case wish::kind::otherwise:
          list.add(vigil::otherwise(note(got, i)));
          break;
      }
    }
    return ordered ? vigil::select_ordered(list) : vigil::select(list);
  }

  static std::size_t select_four(std::vector<drawn_case>& cases, bool ordered, result& got) {
    auto a = vigil::on_recv(cases[0].channel, keep<Value>(got, 0));
    auto b = vigil::on_recv(cases[1].channel, keep<Value>(got, 1));
    auto c = vigil::on_send(cases[2].channel, std::move(cases[2].value), note(got, 2));
    auto d = vigil::on_recv(cases[3].timer, keep<vigil::clock::time_point>(got, 3));
    return ordered ? vigil::select_ordered(a, b, c, d) : vigil::select(a, b, c, d);
  }

  // --- channels and timers

  channel_slot fresh_channel(int f) {
    const int capacity = draw(4);
    const int id = static_cast<int>(closed_.size());
    closed_.push_back(false);
    write(record::kind::channel, f, id).a = capacity;
    return {vigil::make_channel<Value>(static_cast<std::size_t>(capacity)), id};
  }

  int new_timer(int f, instant when, instant period) {
    const int id = next_timer_++;
    record& r = write(record::kind::timer, f, id);
    r.a = when;
    r.b = period;
    return id;
  }

  clock_slot fresh_clock() {
    clock_slot slot;
    slot.ticks = draw(2) == 0;
    const nanoseconds first = std::chrono::milliseconds(draw(4));
    const nanoseconds period = std::chrono::milliseconds(slot.ticks ? 1 + draw(4) : 0);
    if (slot.ticks) {
      slot.again = vigil::ticker(first, period);
    } else {
      slot.once = vigil::timer(first);
    }
    slot.id = new_timer(0, now() + first.count(), period.count());
    return slot;
  }

  bool close_slot(int f, const channel_slot& slot) {
    bool was_open = true;
    ++operations_;
    record& r = write(record::kind::close, f, slot.id);
    try {
      slot.channel.close();
    } catch (const vigil::channel_closed&) {
      was_open = false;
    }
    r.ok = was_open;
    closed_[static_cast<std::size_t>(slot.id)] = true;
    return was_open;
  }

  void close(int f, seeded& dice) {
    const channel_slot slot = any_channel(dice, false);
    if (!close_slot(f, slot) || draw(dice, 2) == 0) renew_closed(f, dice);
  }

  // A closed channel loses its interest after a while, and a new one replaces it. The
  // program knows from its own calls which ones are closed.
  void renew_closed(int f, seeded& dice) {
    channel_slot& slot =
        channels_[static_cast<std::size_t>(draw(dice, static_cast<int>(channels_.size())))];
    if (draw(dice, 3) == 0 && is_closed(slot)) slot = fresh_channel(f);
  }

  bool is_closed(const channel_slot& slot) const {
    return closed_[static_cast<std::size_t>(slot.id)];
  }

  void look_at_size(int f, seeded& dice) {
    const channel_slot slot = any_channel(dice, false);
    ++operations_;
    write(record::kind::size, f, slot.id).a = static_cast<instant>(slot.channel.size());
  }

  // The clock alone tells whether the timer has fired at this very instant.
  void turn_clock(int f, seeded& dice) {
    clock_slot& slot = any_clock(dice);
    const int form = draw(dice, 4);
    const nanoseconds first = length(dice);
    turn(f, slot, form, first, std::chrono::milliseconds(1 + draw(dice, 4)));
  }

  void turn(int f, clock_slot& slot, int form, nanoseconds first, nanoseconds period) {
    ++operations_;
    write(record::kind::deadline, f, slot.id).a = slot.deadline().time_since_epoch().count();
    if (form == 0) {
      record& r = write(record::kind::stop, f, slot.id);
      r.ok = slot.ticks ? slot.again.stop() : slot.once.stop();
    } else if (form == 1 && slot.ticks) {
      write(record::kind::missed, f, slot.id).a = static_cast<instant>(slot.again.missed());
    } else {
      record& r = write(record::kind::reset, f, slot.id);
      r.a = due_in(first);
      r.b = slot.ticks ? period.count() : 0;
      r.ok = slot.ticks ? slot.again.reset(first, period) : slot.once.reset(first);
    }
  }

  // --- the referee

  void referee(int fibers) {
    int tries = 0;
    while (finished_ < fibers) {
      const std::uint64_t before = ended_;
      const nanoseconds pause = std::chrono::milliseconds(7);
      begin(0, false, {timeout_in(pause)});
      vigil::sleep_for(pause);
      end(0, {result::kind::done, 0, 0});
      if (ended_ > before + 1) {
        tries = 0;
        continue;
      }
      if (++tries == 3) throw std::runtime_error("somebody waits, and nothing ends it");
      for (channel_slot& slot : channels_) {
        if (!is_closed(slot)) close_slot(0, slot);
        slot = fresh_channel(0);
      }
      for (clock_slot& slot : clocks_)
        turn(0, slot, 2, nanoseconds(0), std::chrono::milliseconds(1));
    }
  }

  seeded random_;
  const bool wide_;
  std::vector<channel_slot> channels_;
  std::vector<bool> closed_;  // by id
  std::vector<clock_slot> clocks_;
  history history_;
  std::uint64_t operations_ = 0;
  std::uint64_t ended_ = 0;
  value_id last_value_ = 0;
  int next_timer_ = 0;
  int finished_ = 0;
};

}  // namespace vigil::testing_support
