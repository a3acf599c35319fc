// Channels and selects: each value is received, or handed back to its sender, exactly
// once; and the values of one sender arrive in order.
#include "soak/world.hpp"

#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace vigil::soak {
namespace {

struct value_ledger : ledger {
  using ledger::ledger;
  opened made{*this, "made"};
  closed received{*this, "received"};
  closed back{*this, "handed back"};
  note closed_on{*this, "sends on a closed channel"};
  note cancels{*this, "cancelled waits"};
};

// A value of which nothing may be lost: it fails where it dies unsettled.
class value {
 public:
  value() noexcept = default;

  value(value_ledger& l, std::size_t sender, std::uint64_t number)
      : ledger_(&l), sender_(sender), number_(number) {
    ++l.made;
  }

  value(value&& other) noexcept
      : ledger_(std::exchange(other.ledger_, nullptr)),
        sender_(other.sender_),
        number_(other.number_) {}

  value& operator=(value&& other) noexcept {
    value old(std::move(*this));
    ledger_ = std::exchange(other.ledger_, nullptr);
    sender_ = other.sender_;
    number_ = other.number_;
    return *this;
  }

  ~value() {
    if (ledger_ != nullptr) ledger_->fail("a value was lost");
  }

  bool is_whole() const noexcept { return ledger_ != nullptr; }

  std::size_t sender() const noexcept { return sender_; }

  std::uint64_t number() const noexcept { return number_; }

  void settle(entry& as) noexcept {
    ++as;
    ledger_ = nullptr;
  }

 private:
  value_ledger* ledger_ = nullptr;
  std::size_t sender_ = 0;
  std::uint64_t number_ = 0;
};

constexpr std::size_t senders = 3;
constexpr std::size_t receivers = 2;

struct exchange_round {
  exchange_round(world& world_of, value_ledger& ledger_of, dice& d)
      : w(world_of),
        l(ledger_of),
        a(make_channel<value>(d.below(4))),
        b(make_channel<value>(d.below(2))),
        limit(with_timeout(background(), world_of.draw(d))) {}

  // Takes the values that the receivers have left, if they were stopped.
  ~exchange_round() {
    for (const channel<value>& c : {a, b})
      while (auto left = c.try_recv())
        left->settle(l.back);
  }

  world& w;
  value_ledger& l;
  const channel<value> a;
  const channel<value> b;
  const cancellable limit;
};

// The order in which one receiver gets the values of each sender, on each channel.
class order {
 public:
  explicit order(value_ledger& l) : ledger_(l) {}

  void got(value&& v) {
    ledger_.must(v.is_whole(), "a value was received that nobody sent");
    if (!v.is_whole()) return;
    ledger_.must(v.number() >= next_[v.sender()], "values of one sender came out of order");
    next_[v.sender()] = v.number() + 1;
    v.settle(ledger_.received);
  }

 private:
  value_ledger& ledger_;
  std::array<std::uint64_t, senders> next_{};
};

// Sends in one of the ways, and hands the value back if it was not sent.
void send_one(exchange_round& r, dice& d, const channel<value>& to, value v) {
  try {
    switch (d.below(6)) {
      case 0:
        to.send(std::move(v));
        break;
      case 1:
        static_cast<void>(to.try_send(std::move(v)));
        break;
      case 2:
        static_cast<void>(to.send_for(std::move(v), r.w.draw(d)));
        break;
      case 3:
        to.send(std::move(v), r.limit.ctx);
        break;
      case 4:
        select(on_send(to, std::move(v)), on_timeout(r.w.draw(d)), on_done(r.limit.ctx));
        break;
      default:
        select(on_send(to, std::move(v)), on_timeout(r.w.draw(d) / 8));
        break;
    }
  } catch (const channel_closed&) {
    ++r.l.closed_on;
    r.l.must(v.is_whole(), "a send on a closed channel took its value");
  } catch (const cancelled&) {
    ++r.l.cancels;
    r.l.must(v.is_whole(), "a cancelled send took its value");
  } catch (...) {
    if (v.is_whole()) v.settle(r.l.back);
    throw;
  }
  if (v.is_whole()) v.settle(r.l.back);
}

void send_all(exchange_round& r, dice d, std::size_t sender, bool to_a) {
  const channel<value>& to = to_a ? r.a : r.b;
  for (std::uint64_t n = 0; n < 12; ++n) {
    if (d.one_in(16)) sleep_for(r.w.draw(d));
    send_one(r, d, to, value(r.l, sender, n));
  }
}

// Receives in one of the ways until both channels are closed and drained.
void receive_all(exchange_round& r, dice d) {
  order from_a(r.l);
  order from_b(r.l);
  bool has_a = true;
  bool has_b = true;
  const auto take = [](order& o, bool& has, std::optional<value> v) {
    if (v.has_value()) {
      o.got(*std::move(v));
    } else {
      has = false;
    }
  };
  const auto take_result = [&](order& o, bool& has, recv_result<value> got) {
    if (got) {
      o.got(*std::move(got));
    } else if (got.is_closed()) {
      has = false;
    }
  };
  while (has_a || has_b) {
    order& o = has_a ? from_a : from_b;
    bool& has = has_a ? has_a : has_b;
    const receiver<value> from = has_a ? r.a : r.b;
    try {
      switch (d.below(6)) {
        case 0:
          take_result(o, has, from.try_recv());
          this_fiber::yield();
          break;
        case 1:
          take_result(o, has, from.recv_for(r.w.draw(d)));
          break;
        case 2:
          take(o, has, from.recv(r.limit.ctx));
          break;
        default:
          select(on_recv(has_a ? receiver<value>(r.a) : receiver<value>(),
                         [&](std::optional<value> v) { take(from_a, has_a, std::move(v)); }),
                 on_recv(has_b ? receiver<value>(r.b) : receiver<value>(),
                         [&](std::optional<value> v) { take(from_b, has_b, std::move(v)); }),
                 on_timeout(1us + r.w.draw(d)));
          break;
      }
    } catch (const cancelled&) {
      ++r.l.cancels;
    }
  }
}

void play_exchange(world& w, value_ledger& l, dice& d) {
  exchange_round r(w, l, d);
  std::vector<fiber<>> receiving;
  std::vector<fiber<>> sending;
  for (std::size_t i = 0; i < receivers; ++i)
    receiving.push_back(spawn([&r, own = d.another()] { receive_all(r, own); }));
  for (std::size_t i = 0; i < senders; ++i)
    sending.push_back(
        spawn([&r, own = d.another(), i, to_a = i % 2 == 0] { send_all(r, own, i, to_a); }));
  if (d.one_in(4)) {
    // Some senders find it closed.
    sleep_for(w.draw(d) / 4);
    r.a.close();
    for (fiber<>& f : sending)
      f.join();
  } else {
    for (fiber<>& f : sending)
      f.join();
    r.a.close();
  }
  r.b.close();
  for (fiber<>& f : receiving)
    f.join();
}

}  // namespace

void cast_channels(world& w) {
  auto& l = *w.keep<value_ledger>("values of channels");
  w.cast("channels", 4, [&](dice& d) { play_exchange(w, l, d); });
}

}  // namespace vigil::soak
