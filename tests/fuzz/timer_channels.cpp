// Covers: src/core/time/time.cpp src/core/time/timed_channel.cpp src/core/time/timer.cpp
// Covers: src/core/time/timer_channel.cpp
//
// Timers and tickers with channels, and fibers that wait on them, on virtual time. The
// model has for each channel the deadline that is in force. A value that the library has
// handed to a waiting fiber may stay unseen until that fiber runs: the model notices it
// by deadline(), and the fiber has to turn up with it in the same instant.
#include "fuzz/input.hpp"
#include "fuzz/timer_channel_model.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/select.hpp>
#include <vigil/testing.hpp>
#include <vigil/ticker.hpp>
#include <vigil/timer.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

namespace {

using namespace fuzz;

class program {
 public:
  // `gives_way`: a fiber whose turn is used up lets others go first as it begins to wait.
  program(input& in, bool gives_way) : in_(in), gives_way_(gives_way) {}

  void main() {
    while (!in_.ended()) {
      step();
      check();
    }
    is_over_ = true;
  }

  // After the end of the runtime.
  void check_gone() {
    for (const slot& s : slots_) {
      if (s.of == nullptr) continue;
      expect(s.deadline() == no_deadline, "after the run nothing is pending");
      expect(s.channel().try_recv().is_closed(), "after the run the channel is closed");
      expect(!(s.ticker ? s.ticker.stop() : s.timer.stop()), "after the run stop() is false");
      const nanoseconds d(1);
      const auto resets = [&] { s.ticker ? s.ticker.reset(d) : s.timer.reset(d); };
      expect(throws<vigil::runtime_gone>(resets), "after the run reset() throws");
    }
    const auto sleeps = [] { vigil::sleep_for(nanoseconds(1)); };
    const auto sleeps_until = [] { vigil::sleep_until(at(INT64_MAX - 1)); };
    expect(throws<vigil::wrong_place>(sleeps), "a sleep without a fiber");
    expect(throws<vigil::wrong_place>(sleeps_until), "a sleep without a fiber");
  }

 private:
  struct slot {
    std::shared_ptr<timer_channel_model> of;
    vigil::timer timer;
    vigil::ticker ticker;

    [[nodiscard]] vigil::timer_receiver channel() const {
      return ticker ? ticker.channel() : timer.channel();
    }

    [[nodiscard]] nanos deadline() const {
      return (ticker ? ticker.deadline() : timer.deadline()).time_since_epoch().count();
    }
  };

  slot& some_slot() { return slots_[in_.below(slots_.size())]; }

  // A patience that ends.
  nanos some_patience() { return (nanos{in_.byte()} - 16) * unit; }

  void step() {
    switch (in_.below(16)) {
      case 0:
        return advance(nanos{in_.byte()} * unit);
      case 1:
        return make_timer(some_slot());
      case 2:
        return make_ticker(some_slot());
      case 3:
        return stop(some_slot());
      case 4:
        return reset(some_slot());
      case 5:
        return try_recv(some_slot());
      case 6:
        return go_wait(some_slot());
      case 7:
        return go_select();
      case 8:
        return set_slack(some_slot());
      case 9:
        return drop(some_slot());
      case 10:
        return recv_for(some_slot());
      case 11:
        return mistakes(some_slot());
      case 12:
        return from_thread(some_slot());
      case 13:
        return sleep_stopped();
      case 14:
        return sleep_often();
      default:
        return rest();
    }
  }

  void advance(nanos length) {
    const nanos end = now() + length;
    in_.flag() ? vigil::sleep_for(nanoseconds(length))
               : vigil::sleep_until(vigil::clock::time_point(nanoseconds(end)));
    expect(now() == end, "a sleep is exact on virtual time");
    rest();
  }

  // A fiber that is asked to stop before it sleeps.
  static void sleep_stopped() {
    const nanos begin = now();
    bool slept = false;
    auto f = vigil::spawn([&slept] {
      vigil::sleep_for(nanoseconds(unit));
      slept = true;
    });
    f.request_stop();
    expect(throws<vigil::cancelled>([&f] { f.join(); }), "a sleep that ends by a stop");
    expect(!slept && now() == begin, "a sleep of a fiber that is to stop does not begin");
  }

  // Calls that do not wait use up the turn of the fiber.
  static void sleep_often() {
    const nanos begin = now();
    for (int i = 0; i < 300; ++i)
      vigil::sleep_for(nanoseconds(0));
    expect(now() == begin, "a sleep of nothing takes no time");
  }

  void rest() {
    vigil::testing::settle();
    for (const auto& m : models_) {
      expect(m->handed.empty(), "a value that was handed over is lost");
      expect(m->waiters.empty() || !m->is_pending() || m->rings() > now(), "a value is missing");
    }
  }

  // --- the deadlines

  timer_channel_model& fresh(slot& s) {
    drop(s);
    s.of = std::make_shared<timer_channel_model>();
    models_.push_back(s.of);
    return *s.of;
  }

  static nanos in(nanos delay) { return saturated(now(), std::max<nanos>(0, delay)); }

  // A time point, in the past as well.
  nanos some_time() {
    const nanos delay = some_delay(in_);
    return delay == INT64_MIN ? delay : saturated(now(), delay);
  }

  void make_timer(slot& s) {
    timer_channel_model& m = fresh(s);
    if (in_.flag()) {
      const nanos delay = some_delay(in_);
      m.set(in(delay));
      s.timer = vigil::timer(nanoseconds(delay));
    } else {
      const nanos time = some_time();
      m.set(time);
      s.timer = vigil::timer(at(time));
    }
  }

  void make_ticker(slot& s) {
    timer_channel_model& m = fresh(s);
    m.period = some_period(in_);
    const nanos first = in_.flag() ? some_delay(in_) : m.period;
    m.set(in(first));
    s.ticker = vigil::ticker(nanoseconds(first), nanoseconds(m.period));
  }

  void stop(slot& s) {
    if (s.of == nullptr) return expect(!s.timer.stop() && !s.ticker.stop(), "an empty handle");
    observe(s);
    bool stopped = false;
    call([&] { stopped = s.ticker ? s.ticker.stop() : s.timer.stop(); });
    expect(stopped == s.of->stop(), "what stop() returns");
  }

  void reset(slot& s) {
    if (s.of == nullptr) return;
    observe(s);
    timer_channel_model& m = *s.of;
    const bool was_pending = m.is_pending();
    bool said = false;
    if (s.ticker) {
      m.period = some_period(in_);
      const nanos first = some_delay(in_);
      m.set(in(first));
      call([&] { said = s.ticker.reset(nanoseconds(first), nanoseconds(m.period)); });
    } else if (in_.flag()) {
      const nanos delay = some_delay(in_);
      m.set(in(delay));
      call([&] { said = s.timer.reset(nanoseconds(delay)); });
    } else {
      const nanos time = some_time();
      m.set(time);
      call([&] { said = s.timer.reset(at(time)); });
    }
    expect(said == was_pending, "what reset() returns");
  }

  void set_slack(slot& s) {
    const nanos slack = nanos{in_.byte()} * unit;
    s.ticker ? s.ticker.set_slack(nanoseconds(slack)) : s.timer.set_slack(nanoseconds(slack));
    if (s.of == nullptr) return;
    s.of->slack_now = slack;
    s.of->slack = std::max(s.of->slack, slack);
  }

  // Fibers that wait on its channel go on waiting.
  void drop(slot& s) const {
    call([&s] { s = {}; });
  }

  void mistakes(slot& s) {
    const nanoseconds zero(0);
    expect(throws<std::invalid_argument>([&] { vigil::ticker t(zero); }), "a period of 0");
    expect(vigil::tick(zero) == vigil::timer_receiver(), "tick(0) is a nil channel");
    if (s.ticker) {
      expect(throws<std::invalid_argument>([&] { s.ticker.reset(zero); }), "a period of 0");
    } else if (!s.timer) {
      expect(throws<std::logic_error>([&] { s.timer.reset(zero); }), "an empty timer");
      expect(throws<std::logic_error>([&] { s.ticker.reset(nanoseconds(1)); }), "empty");
    }
    vigil::timer_receiver later = vigil::after(nanoseconds(unit));
    if (!in_.flag()) return;
    const auto got = later.recv();
    expect(got == at(now()), "after()");
  }

  // Makes the call on a thread of its own if from_thread() has asked for that.
  template <class F>
  void call(F f) const {
    if (!on_thread_) return f();
    std::thread(f).join();
  }

  // From a plain thread, while the runtime's only worker waits for that.
  void from_thread(slot& s) {
    on_thread_ = true;
    switch (in_.below(3)) {
      case 0:
        stop(s);
        break;
      case 1:
        reset(s);
        break;
      default:
        drop(s);
        break;
    }
    on_thread_ = false;
  }

  // --- values

  void try_recv(slot& s) {
    if (s.of == nullptr) return;
    observe(s);
    const auto got = s.channel().try_recv();
    expect(!!got == s.of->is_due(), "whether a value is there");
    if (got) expect(got->time_since_epoch().count() == s.of->take(), "the value");
  }

  // If the library has handed a value to a waiting fiber, the deadline has moved.
  static void observe(const slot& s) {
    timer_channel_model& m = *s.of;
    if (m.waiters.size() > m.handed.size() && m.is_pending() && m.is_due() &&
        s.deadline() != m.due) {
      m.handed.push_back(m.take());
    }
    expect(s.deadline() == (m.due >= latest ? no_deadline : m.due), "deadline()");
  }

  // A fiber has received it.
  void received(timer_channel_model& m, const waiting& w, vigil::clock::time_point t) {
    const nanos value = t.time_since_epoch().count();
    const auto i = std::find(m.handed.begin(), m.handed.end(), value);
    if (i != m.handed.end()) {
      m.handed.erase(i);
      return;
    }
    const nanos rings = m.rings();
    expect(m.is_pending() && m.take() == value, "a value that is not in force");
    if (w.since == now()) return;
    expect(now() <= std::max(rings, w.since), "a value comes late");
    for (const waiting* before : m.waiters) {
      if (before == &w) break;
      const bool may_have_come_later = gives_way_ && before->since == w.since;
      expect(!before->on_one || before->until <= now() || may_have_come_later,
             "waiters are served as they come");
    }
  }

  static void expect_timeout(const timer_channel_model& m, const waiting& w) {
    expect(now() == std::max(w.since, w.until), "a wait ends at its deadline");
    expect(!m.is_pending() || m.rings() >= now(), "a value was there");
    // If others wait, it may have been handed to one of them.
    const bool is_alone = m.waiters.front() == &w && m.waiters.back() == &w;
    expect(w.until > w.since || !is_alone || !m.is_due(), "a value was there at once");
  }

  void recv_for(slot& s) {
    const nanos patience = some_patience();
    if (s.of == nullptr) return;
    observe(s);
    wait(s.of, s.channel(), patience);
  }

  void go_wait(slot& s) {
    const nanos patience = some_patience();
    if (s.of == nullptr) return;
    vigil::go([this, m = s.of, channel = s.channel(), patience] { wait(m, channel, patience); });
  }

  void wait(const std::shared_ptr<timer_channel_model>& m,
            const vigil::timer_receiver& channel,
            nanos patience) {
    waiting w{now(), now() + patience};
    const in_line place(m->waiters, w);
    const auto got = channel.recv_for(nanoseconds(patience));
    if (got) {
      received(*m, w, *got);
    } else if (got.is_closed()) {
      expect(is_over_, "a timer's channel closes");
    } else {
      expect_timeout(*m, w);
    }
  }

  void go_select() {
    const slot& a = some_slot();
    const slot& b = some_slot();
    const nanos patience = some_patience();
    if (a.of == nullptr || b.of == nullptr) return;
    vigil::go([this, p = a.of, q = b.of, c = a.channel(), d = b.channel(), patience] {
      waiting w{now(), now() + patience, false};
      const in_line first(p->waiters, w);
      const in_line second(q->waiters, w);
      std::optional<vigil::clock::time_point> got;
      const auto keep = [&got](std::optional<vigil::clock::time_point> t) { got = t; };
      const std::size_t which = vigil::select(vigil::on_recv(c, keep),
                                              vigil::on_recv(d, keep),
                                              vigil::on_timeout(nanoseconds(patience)));
      if (which == 2) {
        expect_timeout(*p, w);
        expect_timeout(*q, w);
      } else if (!got) {
        expect(is_over_, "a timer's channel closes");
      } else {
        received(which == 0 ? *p : *q, w, *got);
      }
    });
  }

  void check() {
    for (const slot& s : slots_) {
      if (s.of == nullptr) continue;
      observe(s);
      if (s.ticker) {
        expect(s.ticker.missed() == s.of->missed, "missed()");
      } else {
        const nanos left = s.of->due >= latest ? no_deadline
                           : s.of->is_due()    ? 0
                                               : s.of->due - now();
        expect(s.timer.remaining().count() == left, "remaining()");
      }
    }
  }

  input& in_;
  const bool gives_way_;
  std::array<slot, 4> slots_;
  std::vector<std::shared_ptr<timer_channel_model>> models_;
  bool on_thread_ = false;
  bool is_over_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  vigil::testing::virtual_options o;
  const std::uint8_t seed = in.byte();
  // Half of the programs have no limit to a turn: the order of their waits is known.
  const bool has_turns = seed % 2 != 0;
  o.seed = 1 + std::uint64_t{seed};
  if (!has_turns) o.runtime.turn_budget = 0;
  if (in.flag()) o.runtime.equal_deadlines = vigil::timer_order::as_armed;
  program p(in, has_turns);
  vigil::testing::run_virtual(o, [&p] { p.main(); });
  p.check_gone();
  return 0;
}
