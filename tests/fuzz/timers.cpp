// Covers: src/core/time/timer.cpp src/core/timer/arming.cpp
// Covers: src/core/timer/callback_queue.cpp src/core/timer/heap_keeper.cpp
// Covers: src/core/timer/keepalive.cpp src/core/timer/post.cpp src/core/timer/records.cpp
// Covers: src/core/timer/runner_pool.cpp src/core/timer/stop_waiters.cpp
// Covers: src/core/timer/timer_fiber.cpp
//
// Timers with callbacks on virtual time, beside a model that is told of each call and of
// each start and end of a callback, in the order in which they come. It says what each
// call returns, what deadline() is, and which captures live; that no callback starts
// before its time, after a stop, or beside another run of every(); and, each time all is
// at rest, that none is missing. With timer_order::as_armed it knows the order as well.
#include "fuzz/input.hpp"
#include "fuzz/timer_crowd.hpp"
#include "fuzz/timer_mistakes.hpp"
#include "fuzz/timer_model.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/context.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/options.hpp>
#include <vigil/post.hpp>
#include <vigil/runtime.hpp>
#include <vigil/stats.hpp>
#include <vigil/testing.hpp>
#include <vigil/ticker.hpp>
#include <vigil/timer.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace fuzz;

enum class deed : std::uint8_t {
  none,
  sleep,
  reset_self,
  stop_self,
  sleep_and_reset_self,
  await_self,
  reset_other,
  stop_other,
  soon_other,
  end_of_scope,
  throw_error,
  throw_cancelled,
};

constexpr std::uint8_t deeds = 12;

// The deed of a callback in its first runs. It stops its timer in the last, so that no
// program is endless.
struct plan {
  deed what = deed::none;
  std::uint8_t other = 0;
  nanos length = 0;
};

constexpr int planned_runs = 4;
constexpr int most_runs = 24;

class program {
 public:
  program(input& in, const vigil::options& o)
      : in_(in),
        until_all_done_(o.exit == vigil::exit_when::all_done),
        reports_(o.on_unhandled != nullptr),
        world_(o.equal_deadlines == vigil::timer_order::as_armed) {}

  void main() {
    while (!in_.ended()) {
      step();
      check();
    }
    has_main_ended_ = true;
    alive_until_ = now();
  }

  void note_unhandled() noexcept { ++unhandled_; }

  // After the end of the runtime.
  void check_gone() {
    for (const auto& m : models_) {
      expect(!m->has_captures, "captures die with their runtime");
      expect(!until_all_done_ || !m->is_pending || !m->keeps_alive, "a program ends too early");
    }
    for (const slot& s : slots_) {
      expect(!s.handle.stop(), "after the run stop() is false");
      const auto resets = [&] { s.handle.reset(nanoseconds(1)); };
      expect(s.handle ? throws<vigil::runtime_gone>(resets) : throws<std::logic_error>(resets),
             "after the run reset() throws");
    }
    expect(throws<vigil::wrong_place>([] { vigil::post([] {}); }), "post() outside a runtime");
  }

 private:
  struct slot {
    vigil::timer handle;
    timer_model* model = nullptr;
  };

  slot& some_slot() { return slots_[in_.below(slots_.size())]; }

  nanos some_delay() {
    nanos delay = fuzz::some_delay(in_);
    // Turns long ones into short ones and a nanosecond: two may come due that far apart.
    if (delay > 160 * unit && delay != INT64_MAX) delay += 1 - 128 * unit;
    return until_all_done_ && delay == INT64_MAX ? unit : delay;  // else endless
  }

  plan some_plan() {
    plan p;
    p.what = static_cast<deed>(in_.below(deeds));
    if (p.what == deed::none) return p;
    p.other = static_cast<std::uint8_t>(in_.below(slots_.size()));
    p.length = some_delay();
    return p;
  }

  void step() {
    constexpr std::size_t to_post = 4;
    const std::size_t kind = in_.below(18);
    if (kind != to_post) ++stretch_;
    switch (kind) {
      case 0:
        return advance(nanos{in_.byte()} * unit);
      case 1:
        return arm(some_slot(), timer_kind::once);
      case 2:
        return arm(some_slot(), timer_kind::periodic);
      case 3:
        return arm(some_slot(), timer_kind::from_end);
      case to_post:
        return soon(some_slot());
      case 5:
        stop(some_slot());
        return;
      case 6:
        return reset(some_slot());
      case 7:
        return reset_at(some_slot());
      case 8:
        return set_slack(some_slot());
      case 9:
        return drop(some_slot());
      case 10:
        return await(some_slot());
      case 11:
        return await_for(some_slot());
      case 12:
        return many();
      case 13:
        return flag(some_slot());
      case 14:
        return timer_mistakes(some_slot().handle);
      case 15:
        return from_thread(some_slot());
      case 16:
        return go_await(some_slot());
      default:
        return rest();
    }
  }

  // --- time

  void advance(nanos length) {
    const nanos begin = now();
    vigil::sleep_for(nanoseconds(length));
    expect(now() == begin + length, "a sleep is exact on virtual time");
    rest();
  }

  void rest() {
    vigil::testing::settle();
    for (const auto& m : models_)
      expect(!world_.is_overdue(*m, now()), "a callback is missing");
  }

  // --- arming

  timer_model& fresh(slot& s, timer_kind kind) {
    drop(s);
    models_.push_back(std::make_unique<timer_model>());
    timer_model& m = *models_.back();
    m.kind = kind;
    s.model = &m;
    return m;
  }

  auto callback_of(timer_model& m, const plan& p) {
    return [this, &m, p, t = token(m)](vigil::timer& self) { run(m, p, self); };
  }

  void arm(slot& s, timer_kind kind) {
    timer_model& m = fresh(s, kind);
    const plan p = some_plan();
    const nanos length = kind == timer_kind::once ? some_delay() : some_period(in_);
    m.period = kind == timer_kind::once ? 0 : length;
    world_.arm(m, now(), length);
    const nanoseconds d(length);
    auto f = callback_of(m, p);
    if (kind == timer_kind::once) s.handle = vigil::after_func(d, std::move(f));
    if (kind == timer_kind::periodic) s.handle = vigil::every(d, std::move(f));
    if (kind == timer_kind::from_end) s.handle = vigil::every(d, std::move(f), vigil::from_end);
  }

  void soon(slot& s) {
    const std::size_t how = in_.below(4);
    timer_model& m = soon(s, how, some_plan());
    // Posts start in their order; what main defers without a wait, too.
    const bool is_post = how == 1 || how == 2;
    m.line = is_post ? 1 : 2 + stretch_;
  }

  timer_model& soon(slot& s, std::size_t how, const plan& p) {
    timer_model& m = fresh(s, timer_kind::once);
    world_.arm(m, now(), 0);
    m.is_posted = true;
    if (how < 2) {
      auto f = callback_of(m, p);
      s.handle = how == 1 ? vigil::post(std::move(f), vigil::stoppable)
                          : vigil::defer(std::move(f), vigil::stoppable);
      return m;
    }
    m.has_handle = false;
    s.model = nullptr;
    auto f = [this, &m, t = token(m)] { run(m, plan(), vigil::timer()); };
    how == 2 ? vigil::post(std::move(f)) : vigil::defer(std::move(f));
    return m;
  }

  // --- from a plain thread, while the runtime's only worker waits for that

  // Makes the call on a thread of its own if from_thread() has asked for that.
  template <class F>
  auto call(F f) {
    using result = decltype(f());
    if (!on_thread_) return f();
    std::conditional_t<std::is_void_v<result>, int, result> said{};
    std::exception_ptr error;
    std::thread([&] {
      try {
        if constexpr (std::is_void_v<result>) {
          f();
        } else {
          said = f();
        }
      } catch (...) {
        error = std::current_exception();
      }
    }).join();
    if (error != nullptr) std::rethrow_exception(error);
    if constexpr (!std::is_void_v<result>) return said;
  }

  void from_thread(slot& s) {
    on_thread_ = true;
    switch (in_.below(6)) {
      case 0:
        stop(s);
        break;
      case 1:
        reset(s);
        break;
      case 2:
        reset_at(s);
        break;
      case 3:
        if (s.model != nullptr && s.model->running == 0) await(s);
        break;
      case 4:
        make_from_thread(s, vigil::runtime::current());
        break;
      default:
        flag(s);
        break;
    }
    on_thread_ = false;
  }

  void make_from_thread(slot& s, vigil::runtime& to) {
    timer_model& m = fresh(s, timer_kind::once);
    const plan p = some_plan();
    const bool is_posted = in_.flag();
    const nanos length = is_posted ? 0 : some_delay();
    world_.arm(m, now(), length);
    m.is_posted = is_posted;
    auto f = callback_of(m, p);
    call([&] {
      s.handle = is_posted ? to.post(std::move(f), vigil::stoppable)
                           : to.after_func(nanoseconds(length), std::move(f));
    });
  }

  void many() {
    const std::uint8_t how = in_.byte();
    const std::size_t n = std::size_t{1} << how % 12;
    if (how < 128) return timer_burst(in_, n);
    timer_crowd(in_, n, world_.is_as_armed(), [this](nanos length) { advance(length); });
  }

  // --- changes, by main (`inside` is null) or in a run of that timer

  bool stop(slot& s) {
    const bool stopped = call([&] { return s.handle.stop(); });
    expect(stopped == (s.model != nullptr && world_.stop(*s.model)), "what stop() returns");
    if (stopped) ++stopped_;
    return stopped;
  }

  void reset(slot& s) {
    const nanos delay = some_delay();
    if (s.model != nullptr) reset(s.handle, *s.model, delay, nullptr);
  }

  void reset(const vigil::timer& t, timer_model& m, nanos delay, const timer_run* inside) {
    if (m.kind != timer_kind::once && delay <= 0) {
      expect(throws<std::invalid_argument>([&] { t.reset(nanoseconds(delay)); }), "no such period");
      return;
    }
    const bool expected = world_.reset(m, now(), saturated(now(), delay), delay, inside);
    const bool said = call([&] { return t.reset(nanoseconds(delay)); });
    expect(said == expected, "what reset() returns");
  }

  void reset_at(slot& s) {
    const nanos due = in_.flag() ? in_.number<std::int8_t>() : saturated(now(), some_delay());
    if (s.model == nullptr) return;
    if (s.model->kind != timer_kind::once) {
      expect(throws<std::logic_error>([&] { s.handle.reset(at(due)); }),
             "a period is no time point");
      return;
    }
    const bool expected = world_.reset(*s.model, now(), due, 0, nullptr);
    const bool said = call([&] { return s.handle.reset(at(due)); });
    expect(said == expected, "what reset() at a time returns");
  }

  void set_slack(slot& s) {
    const nanos slack = nanos{in_.byte()} * unit;
    s.handle.set_slack(nanoseconds(slack));
    if (s.model != nullptr) s.model->set_slack(slack);
  }

  void drop(slot& s) {
    if (s.model != nullptr) s.model->has_handle = false;
    s.model = nullptr;
    s.handle = {};
  }

  void flag(slot& s) {
    const bool on = in_.flag();
    call([&] { on ? s.handle.ref() : s.handle.unref(); });
    expect(s.handle.has_ref() == (on && s.handle), "has_ref()");
    if (s.model != nullptr) s.model->keeps_alive = on;
  }

  // --- waiting for the end of a run

  // The wait has the handle to itself: a callback may put another into the slot.
  template <class F>
  void with_own_handle(slot& s, F f) {
    timer_model& m = *std::exchange(s.model, nullptr);
    vigil::timer own = std::exchange(s.handle, vigil::timer());
    world_.begin_await(m);
    f(m, own);
    if (own && s.model == nullptr) {
      s.model = &m;
      s.handle = std::move(own);
    } else {
      own = vigil::timer();
      m.has_handle = false;
    }
  }

  void await(slot& s) {
    if (s.model == nullptr) return expect(!s.handle.stop_and_wait(), "an empty handle");
    await(s, in_.flag());
  }

  void await(slot& s, bool by_scope) {
    if (s.model == nullptr) return;
    with_own_handle(s, [&](timer_model& m, vigil::timer& own) {
      if (by_scope) {
        call([&own] { const vigil::scoped_timer scope(std::exchange(own, vigil::timer())); });
        world_.end_await(m);
      } else {
        const bool prevented = call([&own] { return own.stop_and_wait(); });
        expect(prevented == world_.end_await(m), "what stop_and_wait() returns");
      }
      expect(m.running == 0, "after stop_and_wait() nothing runs");
    });
  }

  // Beside the waits of main.
  void go_await(slot& s) {
    ++waiting_;
    vigil::go([this, &s] {
      await(s, false);
      alive_until_ = now();
      --waiting_;
    });
  }

  void await_for(slot& s) {
    const nanos patience = nanos{in_.byte()} * unit;
    if (s.model == nullptr) return;
    const nanos limit = now() + patience;
    const auto limited = vigil::with_timeout(vigil::background(), nanoseconds(patience));
    with_own_handle(s, [&](timer_model& m, vigil::timer& own) {
      const bool was_running = m.running != 0;
      try {
        const bool prevented = own.stop_and_wait(limited.ctx);
        expect(prevented == world_.end_await(m), "what stop_and_wait(ctx) returns");
        expect(m.running == 0, "after stop_and_wait(ctx) nothing runs");
        expect(now() <= limit, "stop_and_wait(ctx) waits for as long as it may");
      } catch (const vigil::cancelled&) {
        expect(was_running && now() == limit, "stop_and_wait(ctx) waits for a run only");
        world_.end_await(m);
      }
    });
  }

  // --- callbacks

  void run(timer_model& m, const plan& p, const vigil::timer& self) {
    timer_run mine(world_, m, now);
    check_order(m);
    expect(may_start(m), "a timer without ref() keeps a program alive");
    mine.begin();
    ++fired_;
    const end_of_life end{*this};
    check();
    if (++m.runs >= most_runs) {
      expect(self.stop() == world_.stop(m), "what stop() in a run returns");
      return;
    }
    if (m.runs <= planned_runs) act(m, p, self, mine);
    check();
  }

  // With exit_when::all_done a run lasts for as long as something keeps it alive.
  struct end_of_life {
    ~end_of_life() { of.alive_until_ = now(); }

    program& of;
  };

  [[nodiscard]] bool may_start(const timer_model& m) const {
    if (!until_all_done_ || !has_main_ended_ || waiting_ != 0) return true;
    if (m.keeps_alive || now() == alive_until_) return true;
    return std::any_of(models_.begin(), models_.end(), [](const auto& other) {
      return other->running != 0 || (other->is_pending && other->keeps_alive);
    });
  }

  void check_order(const timer_model& m) {
    for (const auto& other : models_) {
      expect(!world_.comes_before(*other, m, now()), "timers fire in the order of arming");
      expect(!world::comes_before_in_line(*other, m), "posts start in the order of the calls");
    }
  }

  void act(timer_model& m, const plan& p, const vigil::timer& self, const timer_run& mine) {
    const nanos bounded = std::clamp<nanos>(p.length, 0, 256 * unit);
    slot& other = slots_[p.other];
    switch (p.what) {
      case deed::none:
        return;
      case deed::sleep:
        return vigil::sleep_for(nanoseconds(bounded));
      case deed::reset_self:
        return reset(self, m, p.length, &mine);
      case deed::stop_self:
        return expect(self.stop() == world_.stop(m), "stop() in a run");
      case deed::sleep_and_reset_self:
        vigil::sleep_for(nanoseconds(bounded));
        return reset(self, m, p.length, &mine);
      case deed::await_self:
        world_.stop(m);
        return expect(throws<vigil::wrong_place>([&] { self.stop_and_wait(); }),
                      "waits for itself");
      case deed::reset_other:
        if (other.model == nullptr) return;
        return reset(other.handle, *other.model, p.length, other.model == &m ? &mine : nullptr);
      case deed::stop_other:
        stop(other);
        return;
      case deed::soon_other: {
        plan next = p;  // a few of a chain
        if (++chained_ > most_runs) next.what = deed::none;
        soon(other, p.length % 2 == 0 ? 1 : 0, next);
        return;
      }
      case deed::end_of_scope: {
        const vigil::scoped_timer scope(self);
        world_.stop(m);
        return;
      }
      case deed::throw_error:
        if (!reports_) return;
        ++thrown_;
        throw std::runtime_error("a callback's");
      case deed::throw_cancelled: {
        if (!reports_) return;
        const auto ended = vigil::with_timeout(vigil::background(), nanoseconds(0));
        ++thrown_;
        return vigil::sleep_for(nanoseconds(unit), ended.ctx);
      }
    }
  }

  // --- what is the same whenever user code runs

  void check() {
    for (const slot& s : slots_) {
      if (s.model == nullptr) continue;
      if (s.model->is_posted) continue;  // its deadline is long ago
      expect(s.handle.deadline().time_since_epoch().count() == world_.deadline(*s.model),
             "deadline()");
      expect(s.handle.remaining().count() == world_.remaining(*s.model, now()), "remaining()");
    }
    std::size_t pending = 0;
    for (const auto& m : models_) {
      const bool needed = m->has_handle || m->is_pending || m->running != 0;
      expect(m->has_captures == needed, "captures live as long as they can be needed");
      if (m->is_pending) ++pending;
    }
    const vigil::runtime_stats counts = vigil::stats();
    const char* const more = "those of sleeps and contexts come on top";
    expect(counts.timers_pending >= pending, more);
    expect(counts.timers_stopped >= stopped_ && counts.timers_fired >= fired_, more);
    expect(thrown_ == unhandled_, "each exception is reported once");
  }

  input& in_;
  const bool until_all_done_;
  const bool reports_;  // else no callback throws: that would end the program
  world world_;
  std::array<slot, 5> slots_;
  std::vector<std::unique_ptr<timer_model>> models_;
  int chained_ = 0;
  std::uint64_t stretch_ = 0;  // of main, which posts and defers in it and does nothing else
  std::uint64_t stopped_ = 0;
  std::uint64_t fired_ = 0;
  std::size_t waiting_ = 0;  // fibers of go_await()
  bool has_main_ended_ = false;
  nanos alive_until_ = 0;
  bool on_thread_ = false;
  std::size_t thrown_ = 0;
  std::size_t unhandled_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  vigil::testing::virtual_options o;
  o.seed = 1 + std::uint64_t{in.byte()};
  const std::uint8_t how = in.byte();
  if (how % 2 != 0) o.runtime.equal_deadlines = vigil::timer_order::as_armed;
  if (how / 2 % 2 != 0) o.runtime.exit = vigil::exit_when::all_done;
  if (how / 4 % 2 != 0) o.runtime.recorder_events = 64;
  program* running = nullptr;
  if (how / 8 % 2 == 0)
    o.runtime.on_unhandled = [&running](const std::exception_ptr&) { running->note_unhandled(); };
  program p(in, o.runtime);
  running = &p;
  vigil::testing::run_virtual(o, [&p] { p.main(); });
  p.check_gone();
  return 0;
}
