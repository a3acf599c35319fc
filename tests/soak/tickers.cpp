// Tickers and every(): the phase is kept, a late receiver gets one tick and the others
// are counted, runs never overlap, and none begins after the timer was stopped.
#include "soak/world.hpp"

#include <atomic>
#include <memory>

namespace vigil::soak {
namespace {

struct ticker_ledger : ledger {
  using ledger::ledger;
  opened due{*this, "ticks due"};
  closed received{*this, "received"};
  closed missed{*this, "dropped and counted"};
};

struct every_ledger : ledger {
  using ledger::ledger;
  opened begun{*this, "runs begun"};
  closed ended{*this, "ended"};
};

nanoseconds period(world& w, dice& d) {
  return 1us + w.draw(d) / 4;
}

void play_ticker(world& w, ticker_ledger& l, dice& d) {
  const nanoseconds step = period(w, d);
  const time_point before = clock::now();
  const ticker t(step);
  const time_point first = t.deadline();
  l.must(first >= before + step, "the first tick is due early");
  time_point last = first - step;
  std::uint64_t received = 0;
  for (std::uint32_t n = 1 + d.below(6); n != 0; --n) {
    if (d.one_in(3)) sleep_for(w.draw(d));
    const std::optional<time_point> tick = t.channel().recv();
    const time_point now = clock::now();
    l.must(tick.has_value(), "a ticker's channel was closed");
    ++received;
    l.must(now >= *tick, "a tick came early");
    l.must(*tick > last, "a tick came twice");
    l.must((*tick - first) % step == 0ns, "a tick left the phase");
    last = *tick;
  }
  // A late receiver's tick counts those behind it, up to the next to come.
  const auto due = static_cast<std::uint64_t>((t.deadline() - first) / step);
  l.due += due;
  l.received += received;
  l.missed += t.missed();
  l.must(received + t.missed() == due, "received and missed ticks are not those that were due");
  l.must(t.stop(), "a ticker had stopped");
  l.must(!t.channel().try_recv(), "a tick came after stop()");
}

void play_every(world& w, every_ledger& l, dice& d) {
  struct seen {
    std::atomic<int> at_once{0};
    std::atomic<std::uint64_t> runs{0};
    std::atomic<bool> is_over{false};
    channel<void> signal = make_channel<void>(1);
  };

  const auto s = std::make_shared<seen>();
  const auto own = std::make_shared<dice>(d.another());
  const nanoseconds step = period(w, d);
  const time_point start = clock::now();
  const bool counts_from_end = d.one_in(2);
  const auto run = [&w, &l, s, own, step, start] {
    ++l.begun;
    l.must(s->at_once.fetch_add(1) == 0, "two runs of one timer at once");
    l.must(!s->is_over.load(), "a run began after stop_and_wait()");
    const auto n = static_cast<std::int64_t>(s->runs.fetch_add(1)) + 1;
    l.must(clock::now() >= start + n * step, "a run came early");
    if (own->one_in(4)) w.insist([time = w.draw(*own) / 4] { sleep_for(time); });
    s->at_once.fetch_sub(1);
    static_cast<void>(s->signal.try_send());
    ++l.ended;
  };
  const timer t = counts_from_end ? every(step, run, from_end) : every(step, run);
  for (std::uint32_t n = 1 + d.below(4); n != 0; --n)
    s->signal.recv();
  t.stop_and_wait();
  l.must(s->at_once.load() == 0, "a run was in progress after stop_and_wait()");
  s->is_over.store(true);
}

}  // namespace

void cast_tickers(world& w) {
  auto& l = *w.keep<ticker_ledger>("tickers");
  auto& e = *w.keep<every_ledger>("every()");
  w.cast("tickers", 2, [&](dice& d) { play_ticker(w, l, d); });
  w.cast("every", 2, [&](dice& d) { play_every(w, e, d); });
}

}  // namespace vigil::soak
