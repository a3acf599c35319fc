// One round of the mixed test: fibers and plain threads, in real time, send and receive
// on the same channels in every form, close them, and share timers.
//
// Their order is unknown, so laws are checked:
//
//   MR1 each value that was sent arrives once, one that was not stays in hand;
//   MR2 a receiver of a channel sees each sender's values in their order;
//   MR3 each arming of a timer ends once: received, stopped, or reset; it is
//       never early. A tick comes once, and on the ticker's grid;
//   MR4 at the end nobody waits: a closed channel reports its close, an open one
//       is a buffer of exactly its capacity.
//
// At least one receiver drains: it never waits for a single channel alone, so everything
// that is sent arrives.
#pragma once

#include "support/in_runtime.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace vigil::testing_support {

class mixed_round {
 public:
  explicit mixed_round(std::uint64_t seed) : random_(seed), ends_by_close_(seed % 2 == 0) {}

  // Runs as the main fiber.
  void run() {
    const auto threads_act = vigil::runtime::current().make_work_guard();
    for (std::size_t i = 0, n = 1 + draw(random_, 4); i < n; ++i)
      channels_.push_back(vigil::make_channel<parcel>(draw(random_, 4)));
    for (vigil::timer& t : timers_)
      t = vigil::timer(std::chrono::microseconds(draw(random_, 100)));
    armed_ = timers_.size();
    start_ = ticker_.deadline() - tick;

    const std::size_t fibers = 2 + draw(random_, draw(random_, 4) == 0 ? 60 : 10);
    const std::size_t threads = 1 + draw(random_, 3);
    for (std::size_t i = 0; i < fibers + threads; ++i)
      actors_.push_back(std::make_unique<actor>(i, channels_.size(), random_.next()));
    // The first two actors drain; they are a fiber and a thread.
    const auto role_of = [&](std::size_t i) {
      return i == 0 || i == fibers ? role::drainer
             : i == 1              ? role::sender
                                   : static_cast<role>(draw(random_, 4));
    };
    std::vector<std::thread> plain;
    for (std::size_t i = 0; i < actors_.size(); ++i) {
      actor& a = *actors_[i];
      a.is = role_of(i);
      (a.sends() ? senders_ : receivers_) += 1;
      a.in_fiber = i < fibers;
      if (a.in_fiber) {
        vigil::go([this, &a] { act(a); });
      } else {
        plain.emplace_back([this, &a] { act(a); });
      }
    }
    for (int i = 0; i < senders_; ++i)
      senders_done_.recv();
    if (ends_by_close_) {
      for (std::size_t c = 0; c < channels_.size(); ++c)
        close(c);
    } else {
      quit_.close();
    }
    for (int i = 0; i < receivers_; ++i)
      receivers_done_.recv();
    for (std::thread& t : plain)
      t.join();
    check_timers();
    check_channels();
    check_values();
  }

  std::uint64_t operations() const {
    std::uint64_t sum = 0;
    for (const auto& a : actors_)
      sum += a->operations;
    return sum;
  }

  // The first error, or an empty string.
  const std::string& wrong() const { return wrong_; }

 private:
  using microseconds = std::chrono::microseconds;
  using time_point = vigil::clock::time_point;
  static constexpr microseconds tick{40};
  static constexpr int share = 60;  // operations of one sender

  enum class role : std::uint8_t { sender, relay, receiver, drainer };

  struct parcel {
    parcel() = default;

    parcel(std::size_t c, std::size_t f, std::uint32_t n) : channel(c), from(f), number(n) {}

    parcel(parcel&& other) noexcept { *this = std::move(other); }

    parcel& operator=(parcel&& other) noexcept {
      channel = other.channel;
      from = other.from;
      number = std::exchange(other.number, 0);
      return *this;
    }

    ~parcel() { number = 0; }

    bool is_here() const { return number != 0; }

    std::size_t channel = 0;
    std::size_t from = 0;
    std::uint32_t number = 0;  // from 1; 0: moved from
  };

  using channel_of = vigil::channel<parcel>;

  struct actor {
    actor(std::size_t i, std::size_t channels, std::uint64_t seed)
        : id(i), dice(seed), hand(channels), sent(channels), closed(channels) {}

    bool sends() const { return is == role::sender || is == role::relay; }

    const std::size_t id;
    seeded dice;
    role is = role::sender;
    bool in_fiber = true;
    std::vector<parcel> hand;         // the next to send, by channel
    std::vector<std::uint32_t> sent;  // to each channel
    std::vector<bool> closed;         // as far as it knows
    std::vector<parcel> got;
    std::vector<time_point> ticks;
    std::uint64_t operations = 0;
  };

  static std::size_t draw(seeded& dice, std::size_t n) {
    return dice.below(static_cast<std::uint32_t>(n));
  }

  static microseconds moment(actor& a) {
    return microseconds(draw(a.dice, 8) == 0 ? 0 : 1 + draw(a.dice, 60));
  }

  // Continues after a failure, so that the round comes to its end.
  void expect(bool right, const char* law) {
    if (right) return;
    const std::lock_guard guard(wrong_lock_);
    if (wrong_.empty()) wrong_ = law;
  }

  // --- the actors

  void act(actor& a) {
    if (a.sends()) {
      for (int i = 0; i < share; ++i)
        a.is == role::relay&& draw(a.dice, 2) == 0 ? recv_some(a) : send_one(a);
      senders_done_.send();
    } else {
      while (!is_over(a))
        recv_some(a);
      receivers_done_.send();
    }
  }

  bool is_over(const actor& a) const {
    if (!ends_by_close_) return quit_seen_.load();
    for (const bool closed : a.closed)
      if (!closed) return false;
    return true;
  }

  // Any channel that it does not know to be closed; nil if all are.
  std::optional<std::size_t> any_open(actor& a) const {
    const std::size_t from = draw(a.dice, a.closed.size());
    for (std::size_t i = 0; i < a.closed.size(); ++i) {
      const std::size_t c = (from + i) % a.closed.size();
      if (!a.closed[c]) return c;
    }
    return std::nullopt;
  }

  channel_of at(std::optional<std::size_t> c) const { return c ? channels_[*c] : channel_of(); }

  void close(std::size_t c) {
    try {
      channels_[c].close();
      ++closes_;
    } catch (const vigil::channel_closed&) {
    }
  }

  // --- sending

  parcel& fill_hand(actor& a, std::size_t c) {
    if (!a.hand[c].is_here()) a.hand[c] = parcel(c, a.id, a.sent[c] + 1);
    return a.hand[c];
  }

  void note_sent(actor& a, std::size_t c, bool sent) {
    expect(a.hand[c].is_here() != sent, "MR1: a value is neither sent nor in the hand, or both");
    if (sent) ++a.sent[c];
    a.hand[c] = {};
  }

  void note_send(actor& a, std::size_t c, const vigil::send_result& r) {
    if (r.is_closed()) a.closed[c] = true;
    note_sent(a, c, static_cast<bool>(r));
  }

  void send_one(actor& a) {
    ++a.operations;
    const auto open = any_open(a);
    if (!open) return;
    const std::size_t c = *open;
    parcel& value = fill_hand(a, c);
    switch (draw(a.dice, 8)) {
      case 0:
      case 1: {
        bool sent = true;
        try {
          channels_[c].send(std::move(value));
        } catch (const vigil::channel_closed&) {
          sent = false;
          a.closed[c] = true;
        }
        return note_sent(a, c, sent);
      }
      case 2:
        return note_send(a, c, channels_[c].try_send(std::move(value)));
      case 3:
        return note_send(a, c, channels_[c].send_for(std::move(value), moment(a)));
      case 4:
        return touch_timer(a);
      case 5:
        if (ends_by_close_ && draw(a.dice, 100) == 0) close(c);
        return;
      default:
        return choose(a, c, a.is == role::relay ? any_open(a) : std::nullopt, {});
    }
  }

  // --- receiving

  void accept(actor& a, std::size_t c, parcel value) {
    expect(value.is_here(), "MR1: an empty value was received");
    expect(value.channel == c, "MR1: a value of another channel was received");
    a.got.push_back(std::move(value));
  }

  void note_recv(actor& a, std::size_t c, vigil::recv_result<parcel> r) {
    if (r) {
      accept(a, c, *std::move(r));
    } else if (r.is_closed()) {
      a.closed[c] = true;
    }
  }

  void recv_some(actor& a) {
    ++a.operations;
    const auto open = any_open(a);
    if (!open) return;
    const std::size_t c = *open;
    switch (draw(a.dice, 10)) {
      case 0:
        return note_recv(a, c, channels_[c].try_recv());
      case 1:
      case 2:
        return note_recv(a, c, channels_[c].recv_for(moment(a)));
      case 3:
        return touch_timer(a);
      case 4:
      case 5:
        if (a.is != role::receiver || !ends_by_close_) return choose_all(a);
        if (auto value = channels_[c].recv()) {
          return accept(a, c, *std::move(value));
        }
        a.closed[c] = true;
        return;
      case 6:
        return choose_all(a);
      default:
        return choose(a, std::nullopt, c, any_open(a));
    }
  }

  // --- both

  auto keep(actor& a, std::optional<std::size_t> c) {
    return [this, &a, c](std::optional<parcel> value) {
      if (value) {
        accept(a, *c, *std::move(value));
      } else {
        a.closed[*c] = true;
      }
    };
  }

  auto keep_tick(actor& a) {
    return [this, &a](std::optional<time_point> t) { note_tick(a, *t); };
  }

  // One send, two receives, a tick, and an end; as far as they exist.
  void choose(actor& a,
              std::optional<std::size_t> to,
              std::optional<std::size_t> from,
              std::optional<std::size_t> other) {
    bool sent = false;
    const auto send_case = [&] {
      return vigil::on_send(
          at(to), std::move(to ? fill_hand(a, *to) : spare_), [&] { sent = true; });
    };
    const auto tick_case = [&] {
      return vigil::on_recv(draw(a.dice, 4) == 0 ? ticker_.channel() : vigil::timer_receiver(),
                            keep_tick(a));
    };
    try {
      switch (draw(a.dice, 4)) {
        case 0:
          vigil::select(send_case(),
                        vigil::on_recv(at(from), keep(a, from)),
                        vigil::on_recv(at(other), keep(a, other)),
                        tick_case(),
                        vigil::on_timeout(moment(a)));
          break;
        case 1:
          vigil::select_ordered(vigil::on_recv(at(from), keep(a, from)),
                                send_case(),
                                tick_case(),
                                vigil::on_deadline(vigil::clock::now() + moment(a)));
          break;
        case 2:
          vigil::select(vigil::on_recv(at(from), keep(a, from)),
                        send_case(),
                        vigil::on_recv(at(other), keep(a, other)),
                        vigil::otherwise());
          break;
        default:
          // `after` needs a runtime.
          vigil::select(
              send_case(),
              vigil::on_recv(at(from), keep(a, from)),
              vigil::on_recv(a.in_fiber ? vigil::after(moment(a)) : vigil::timer_receiver()),
              vigil::on_timeout(std::chrono::milliseconds(1)));
      }
    } catch (const vigil::channel_closed&) {
      a.closed[*to] = true;
    }
    if (to) note_sent(a, *to, sent);
  }

  // All channels at once, and the end of the round.
  void choose_all(actor& a) {
    vigil::case_list cases;
    for (std::size_t c = 0; c < channels_.size(); ++c)
      if (!a.closed[c]) cases.add(vigil::on_recv(channels_[c], keep(a, c)));
    cases.add(vigil::on_recv(quit_, [&](bool) { quit_seen_ = true; }));
    if (a.sends()) cases.add(vigil::on_timeout(moment(a)));
    draw(a.dice, 2) == 0 ? vigil::select(cases) : vigil::select_ordered(cases);
  }

  // --- timers

  void note_tick(actor& a, time_point t) {
    expect(t <= vigil::clock::now(), "MR3: a tick came early");
    a.ticks.push_back(t);
  }

  void touch_timer(actor& a) {
    vigil::timer& t = timers_[draw(a.dice, timers_.size())];
    switch (draw(a.dice, 6)) {
      case 0:
        if (t.stop()) ++ended_;
        return;
      case 1:
      case 2:
        ++armed_;
        if (t.reset(moment(a))) ++ended_;
        return;
      case 3:
        return note_time(t.channel().try_recv());
      case 4:
        return note_time(t.channel().recv_for(moment(a)));
      default:
        if (auto r = ticker_.channel().recv_for(moment(a))) note_tick(a, *r);
    }
  }

  void note_time(const vigil::recv_result<time_point>& r) {
    if (!r) return;
    ++ended_;
    expect(*r <= vigil::clock::now(), "MR3: a timer was early");
  }

  // --- afterwards, alone (mixed_round_checks.cpp)
  void check_timers();
  void check_channels();
  void check_values();

  seeded random_;
  const bool ends_by_close_;
  std::vector<channel_of> channels_;
  std::vector<std::unique_ptr<actor>> actors_;
  vigil::channel<void> quit_ = vigil::make_channel<void>();
  vigil::channel<void> senders_done_ = vigil::make_channel<void>(1);
  vigil::channel<void> receivers_done_ = vigil::make_channel<void>(1);
  std::atomic<bool> quit_seen_{false};
  std::atomic<std::size_t> closes_{0};
  std::array<vigil::timer, 2> timers_;
  vigil::ticker ticker_{tick};
  time_point start_;
  std::atomic<std::uint64_t> armed_{0};
  std::atomic<std::uint64_t> ended_{0};
  int senders_ = 0;
  int receivers_ = 0;
  parcel spare_;
  std::mutex wrong_lock_;
  std::string wrong_;
};

}  // namespace vigil::testing_support
