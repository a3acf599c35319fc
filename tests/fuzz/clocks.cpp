// Covers: src/core/clocks/clock_callback.cpp src/core/clocks/clock_channel.cpp
// Covers: src/core/clocks/clock_hub.cpp src/core/clocks/clocks.cpp
//
// Callbacks, channels, aligned tickers and sleeps on wall and boot time, on virtual time
// with steps and suspends. The model has each clock's distance from the runtime's, and so
// knows the instant at which a deadline comes: that at which its clock reads it, or that
// of the step over it.
#include "fuzz/clock_model.hpp"
#include "fuzz/clock_slot.hpp"
#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/clocks.hpp>
#include <vigil/context.hpp>
#include <vigil/debug.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/testing.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace fuzz;

enum class deed : std::uint8_t {
  nothing,
  sleep,
  reset_self,
  stop_self,
  reset_other,
  stop_other,
  step,
  sleep_and_step
};
constexpr std::uint8_t deeds = 8;
constexpr int most_runs = 4;  // that do more than end

class program {
 public:
  explicit program(input& in) : in_(in) {}

  void main() {
    clocks_.changed = now() - 1;
    clocks = &clocks_;
    if (in_.flag()) step_by(64 * unit - clocks_.read(false));  // soon it reads zero
    while (!in_.ended()) {
      step();
      check();
    }
    is_over_ = true;
  }

  void check_gone() {
    for (const auto& m : callbacks_)
      expect(!m->has_captures, "captures die with their runtime");
    for (const clock_slot& s : slots_)
      s.check_gone();
    const auto on_wall = [] { vigil::wall::sleep_until(on<vigil::wall_clock>(1)); };
    const auto on_boot = [] { vigil::boot::sleep_until(on<vigil::boot_clock>(1)); };
    expect(throws<vigil::wrong_place>(on_wall), "a sleep without a fiber");
    expect(throws<vigil::wrong_place>(on_boot), "a sleep without a fiber");
  }

 private:
  clock_slot& some_slot() { return slots_[in_.below(slots_.size())]; }

  // Near what the clock reads.
  nanos some_time(bool on_boot) {
    const nanos delay = some_delay(in_);
    return delay == INT64_MIN ? delay : saturated(clocks_.read(on_boot), delay);
  }

  nanos some_patience() { return (nanos{in_.byte()} - 16) * unit; }

  void step() {
    switch (in_.below(13)) {
      case 0:
        return advance(nanos{in_.byte()} * unit);
      case 1:
        return arm(some_slot());
      case 2:
        return make_channel(some_slot());
      case 3:
        return make_ticker(some_slot());
      case 4:
        return some_slot().stop();
      case 5:
        return reset(some_slot());
      case 6:
        return receive(some_slot());
      case 7:
        return go_sleep();
      case 8:
        return move_clocks();
      case 9:
        return some_slot().drop();
      case 10:
        return await(some_slot());
      case 11:
        return dump();
      default:
        return some_slot().mistakes();
    }
  }

  // --- time

  void advance(nanos length) {
    vigil::sleep_for(nanoseconds(length));
    rest();
  }

  void rest() {
    vigil::testing::settle();
    for (const auto& m : callbacks_)
      expect(!m->is_due(), "a callback is missing");
    for (const auto& m : channels_) {
      expect(m->handed.empty(), "a value that was handed over is lost");
      expect(m->waiters == 0 || !m->is_due(), "a value is missing");
    }
    expect(is_sleep_due() == false, "a sleep goes on");
  }

  // At rest, so that no value is on its way to a fiber that a step would deprive of it.
  void move_clocks() {
    rest();
    const nanos steps = nanos{in_.byte()} - 128;
    const nanos length = steps * (in_.flag() ? unit : 16);
    if (in_.flag()) {
      step_by(length);
    } else {
      clocks_.shift[0] += std::max<nanos>(0, length);
      clocks_.shift[1] += std::max<nanos>(0, length);
      clocks_.changed = now();
      ++moves_;
      vigil::testing::suspend_for(nanoseconds(std::max<nanos>(0, length)));
    }
    check();
    if (in_.flag()) {  // nothing has run in between
      if (in_.flag()) receive(some_slot(), 0, false);
      step_by(-length);
    }
    rest();
  }

  void step_by(nanos length) {
    clocks_.shift[0] += length;
    clocks_.changed = now();
    ++moves_;
    vigil::testing::step_wall(nanoseconds(length));
    for (const auto& m : channels_) {
      if (m->waiters != 0) m->look();
    }
  }

  // --- callbacks

  void arm(clock_slot& s) {
    s.drop();
    callbacks_.push_back(std::make_unique<clock_callback_model>());
    clock_callback_model& m = *callbacks_.back();
    m.on_boot = in_.flag();
    const auto what = static_cast<deed>(in_.below(deeds));
    const std::size_t other = in_.below(slots_.size());
    const nanos length = in_.flag() ? some_period(in_) : -some_period(in_);
    const nanos due = some_time(m.on_boot);
    m.set(due);
    s.callback = &m;
    const auto f = [&](auto self_type) {
      using timer = decltype(self_type);
      return [this, &m, what, other, length, t = token(m)](timer& self) {
        run(m, what, slots_[other], length, self);
      };
    };
    if (m.on_boot) {
      s.boot = vigil::boot::after_func_at(on<vigil::boot_clock>(due), f(vigil::boot::timer()));
    } else {
      s.wall = vigil::wall::after_func_at(on<vigil::wall_clock>(due), f(vigil::wall::timer()));
    }
  }

  template <class Timer>
  void run(clock_callback_model& m, deed what, clock_slot& other, nanos length, const Timer& self) {
    const clock_callback_run mine(m);
    check();
    if (++m.runs > most_runs) return;
    switch (what) {
      case deed::nothing:
        return;
      case deed::sleep:
        return vigil::sleep_for(nanoseconds(std::abs(length)));
      case deed::reset_self:
        return reset_callback(self, m, saturated(m.time(), length), &mine);
      case deed::stop_self:
        return expect(!self.stop(), "stop() in a run");
      case deed::stop_other:
        return other.stop();
      case deed::reset_other:
        vigil::sleep_for(nanoseconds(std::abs(length)));
        if (other.callback == nullptr) return;
        return other.with_callback([&](auto& t) {
          clock_callback_model& reset = *other.callback;
          reset_callback(t, reset, reset.time(), &reset == &m ? &mine : nullptr);
        });
      case deed::sleep_and_step:
        vigil::sleep_for(nanoseconds(std::abs(length)));
        [[fallthrough]];
      case deed::step:
        if (has_no_channel()) step_by(length);
        return;
    }
  }

  // A step in the middle of an instant could overtake a value on its way to a fiber.
  [[nodiscard]] bool has_no_channel() const { return channels_.empty() && sleeps_.empty(); }

  template <class Timer>
  static void reset_callback(const Timer& t,
                             clock_callback_model& m,
                             nanos due,
                             const clock_callback_run* inside) {
    bool expected = false;
    if (m.may_arm(inside)) {
      expected = m.is_pending();
      m.set(due);
    }
    const typename std::decay_t<decltype(t.deadline())> at(nanoseconds{due});
    expect(t.reset(at) == expected, "what reset() returns");
  }

  void await(clock_slot& s) {
    const nanos patience = in_.flag() ? nanos{in_.byte()} * unit : no_deadline;
    if (s.callback == nullptr) return;
    clock_callback_model& m = *s.callback;
    const bool was_running = m.running != 0;
    m.has_prevented = m.stop();
    m.is_awaited = was_running;
    if (was_running) m.halt = clock_callback_model::halt_state::halted;
    const nanos end = saturated(now(), patience);
    const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), nanoseconds(patience));
    try {
      const auto waits = [&c = ctx](auto& t) { return t.stop_and_wait(c); };
      expect(s.with_callback(waits) == m.has_prevented, "what stop_and_wait() returns");
      // Another reset may have started it again before this fiber goes on.
      expect(!m.is_awaited, "stop_and_wait() waits for the end of the run");
    } catch (const vigil::cancelled&) {
      expect(was_running && now() == end, "stop_and_wait() ends with its context");
      m.is_awaited = false;
    }
  }

  // --- channels

  clock_channel_model& fresh_channel(clock_slot& s) {
    s.drop();
    s.channel = std::make_shared<clock_channel_model>();
    channels_.push_back(s.channel);
    return *s.channel;
  }

  void make_channel(clock_slot& s) {
    clock_channel_model& m = fresh_channel(s);
    m.on_boot = in_.flag();
    const nanos due = some_time(m.on_boot);
    m.set(due);
    if (m.on_boot) {
      s.boot = vigil::boot::timer(on<vigil::boot_clock>(due));
    } else {
      s.wall = vigil::wall::timer(on<vigil::wall_clock>(due));
    }
  }

  void make_ticker(clock_slot& s) {
    clock_channel_model& m = fresh_channel(s);
    m.period = some_period(in_);
    m.set(m.next());
    s.ticker = vigil::ticker::aligned(nanoseconds(m.period));
  }

  void receive(clock_slot& s) {
    const nanos patience = some_patience();
    receive(s, patience, in_.flag());
  }

  void receive(clock_slot& s, nanos patience, bool waits) {
    if (s.channel == nullptr) return;
    s.observe();
    if (!waits) return s.try_recv();
    s.with_channel([&](auto& t) {
      vigil::go([this, m = s.channel, c = t.channel(), patience] { recv(*m, c, patience); });
    });
  }

  template <class Receiver>
  void recv(clock_channel_model& m, const Receiver& c, nanos patience) {
    struct in_line {
      clock_channel_model& m;

      ~in_line() { --m.waiters; }
    };

    const nanos begin = now();
    const nanos end = std::max(begin, begin + patience);
    m.look();
    ++m.waiters;
    const in_line place{m};
    const auto got = c.recv_for(nanoseconds(patience));
    if (got) {
      const nanos value = got->time_since_epoch().count();
      const auto i = std::find(m.handed.begin(), m.handed.end(), value);
      if (i != m.handed.end()) {
        m.handed.erase(i);
        return;
      }
      expect(m.is_due() && (begin == now() || m.is_due_since_now()), "a value comes late");
      expect(m.take() == value, "the value that a fiber receives");
    } else if (got.is_closed()) {
      expect(is_over_, "the channel of a timer closes");
    } else {
      expect(now() == end, "a wait ends at its deadline");
      expect(m.waiters > 1 || !m.is_due() || (patience > 0 && m.is_due_since_now()), "it was due");
    }
  }

  // --- both

  void reset(clock_slot& s) {
    if (s.callback != nullptr) {
      const nanos due = some_time(s.callback->on_boot);
      s.with_callback([&](auto& t) { reset_callback(t, *s.callback, due, nullptr); });
      return;
    }
    if (s.channel == nullptr) return;
    s.observe();
    clock_channel_model& m = *s.channel;
    const bool was_pending = m.is_pending();
    bool said = false;
    if (m.period != 0) {
      m.period = some_period(in_);
      m.set(m.next());
      said = s.ticker.reset(nanoseconds(m.period));
    } else {
      const nanos due = some_time(m.on_boot);
      m.set(due);
      said = m.on_boot ? s.boot.reset(on<vigil::boot_clock>(due))
                       : s.wall.reset(on<vigil::wall_clock>(due));
    }
    expect(said == was_pending, "what reset() of a channel's timer returns");
  }

  // --- sleeps

  [[nodiscard]] bool is_sleep_due() const {
    return std::any_of(
        sleeps_.begin(), sleeps_.end(), [](const clock_model* m) { return m->is_due(); });
  }

  void go_sleep() {
    const bool on_boot = in_.flag();
    const nanos due = some_time(on_boot);
    const nanos patience = in_.flag() ? some_patience() : no_deadline;
    vigil::go([this, on_boot, due, patience] { sleep(on_boot, due, patience); });
  }

  void sleep(bool on_boot, nanos due, nanos patience) {
    struct in_line {
      std::vector<const clock_model*>& all;
      const clock_model& m;

      ~in_line() { std::erase(all, &m); }
    };

    clock_model m;
    m.on_boot = on_boot;
    m.set(due);
    sleeps_.push_back(&m);
    const in_line place{sleeps_, m};
    const nanos end = saturated(now(), std::max<nanos>(0, patience));
    const auto [ctx, cancel] = vigil::with_timeout(vigil::background(), nanoseconds(patience));
    try {
      if (on_boot) {
        vigil::boot::sleep_until(on<vigil::boot_clock>(due), ctx);
      } else {
        vigil::wall::sleep_until(on<vigil::wall_clock>(due), ctx);
      }
      expect(m.is_due(), "a sleep ends early");
      expect(m.is_due_since_now(), "a sleep ends late");
    } catch (const vigil::cancelled&) {
      expect(is_over_ || now() == end, "a sleep ends with its context");
    }
  }

  // --- what is the same at any time

  void check() {
    const nanos wall = vigil::wall_clock::now().time_since_epoch().count();
    expect(wall == clocks_.read(false), "the wall clock");
    const nanos boot = vigil::boot_clock::now().time_since_epoch().count();
    expect(boot == clocks_.read(true), "the boot clock");
    for (const clock_slot& s : slots_) {
      if (s.channel != nullptr) s.observe();
      if (s.callback == nullptr) continue;
      const nanos shown = s.with_callback([](auto& t) { return deadline_of(t); });
      expect(shown == s.callback->shown(), "deadline() of a callback");
    }
    for (const auto& m : callbacks_) {
      const bool needed = m->has_handle || m->is_pending() || m->running != 0;
      expect(m->has_captures == needed, "captures live as long as they can be needed");
    }
  }

  // A dump counts all that is pending. At rest no value is on its way.
  void dump() {
    rest();
    const auto is_pending = [](const auto& m) { return m->is_pending(); };
    auto pending = std::count_if(callbacks_.begin(), callbacks_.end(), is_pending);
    pending += std::count_if(channels_.begin(), channels_.end(), [&](const auto& m) {
      return m->is_pending() && m.use_count() > 1;  // a handle or a waiting fiber has it
    });
    pending += std::count_if(
        sleeps_.begin(), sleeps_.end(), [](const clock_model* m) { return m->due != latest; });
    const std::string said = all_of_dump();
    const std::string line = "on wall or boot time: ";
    if (pending == 0) return expect(said.find(line) == said.npos, "a dump says nothing of none");
    const std::string count = line + std::to_string(pending) + " pending, ";
    expect(said.find(count) != said.npos, "a dump says how many are pending");
    const std::string heard = "; " + std::to_string(moves_) + " steps and resumes heard\n";
    expect(said.find(heard) != said.npos, "a dump says how many steps there were");
  }

  static std::string all_of_dump() {
    char* text = nullptr;
    std::size_t size = 0;
    std::FILE* const out = ::open_memstream(&text, &size);
    vigil::debug::dump(out);
    std::fclose(out);
    const std::string said(text, size);
    std::free(text);
    return said;
  }

  input& in_;
  model_clocks clocks_;
  std::size_t moves_ = 0;  // steps and suspends
  std::array<clock_slot, 5> slots_;
  std::vector<std::unique_ptr<clock_callback_model>> callbacks_;
  std::vector<std::shared_ptr<clock_channel_model>> channels_;
  std::vector<const clock_model*> sleeps_;
  bool is_over_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  vigil::testing::virtual_options o;
  o.seed = 1 + std::uint64_t{in.byte()};
  program p(in);
  vigil::testing::run_virtual(o, [&p] { p.main(); });
  p.check_gone();
  return 0;
}
