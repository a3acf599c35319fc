// The life of a timer's record: its captures are destroyed once, on the thread that let
// them go and never on the timer fiber (TS1), and its memory is given back once no thread
// can look at it (RT3). The explorer finds a look that comes too late.
#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/timer/timer_owner.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::detail::never;

using programs::gate;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;
using programs::workers;

namespace {

// The effects of a callback and the fate of its captures.
struct fate {
  std::atomic<int> alive{0};
  std::atomic<int> ran{0};
};

// A capture. A run writes to it, its destructor reads that: an end that is not ordered
// after the last run is a data race.
class capture {
 public:
  explicit capture(fate& f) : fate_(&f) { fate_->alive.fetch_add(1); }

  capture(const capture& other) : fate_(other.fate_) { fate_->alive.fetch_add(1); }

  capture(capture&& other) noexcept : fate_(other.fate_) { fate_->alive.fetch_add(1); }

  capture& operator=(const capture&) = delete;

  ~capture() {
    const auto* const self = vigil::detail::current_fiber();
    model::require(self == nullptr || self->role != vigil::detail::fiber_role::timer,
                   "no capture dies on the timer fiber");
    model::require(written_ < 10, "it is whole");
    fate_->alive.fetch_sub(1);
  }

  void run() {
    ++written_;
    fate_->ran.fetch_add(1);
  }

 private:
  fate* fate_;
  int written_ = 0;
};

// The callback of most timers here.
auto callback(fate& f) {
  return [c = capture(f)]() mutable { c.run(); };
}

// A plain thread acts on the timer while the main fiber acts, too. The timer is due at
// any moment, or its callback is queued, or in its run.
enum class state { due, queued, running };

template <class Here, class Outside>
auto meeting(state how, Here here, Outside outside) {
  return [=] {
    run_with_outside_work(2, [&] {
      fate f;
      gate busy;
      vigil::timer t;
      if (how == state::due) {
        t = vigil::after_func(1us, callback(f));
        let_the_other_rest();
      } else if (how == state::queued) {
        vigil::go([&] { busy.enter(); });
        busy.await();
        t = vigil::after_func(0s, callback(f));
      } else {
        t = vigil::after_func(0s, [&busy, c = capture(f)]() mutable {
          busy.enter();
          c.run();
        });
        busy.await();
      }
      const model::window w;
      busy.open();
      const int more = outside(std::move(t), here);
      let_time_pass();
      model::require(f.ran.load() == 1 + more, "it runs once for each arming not prevented");
      model::require(f.alive.load() == 0, "its captures are gone");
      model::enough();
    });
  };
}

// Actions on the timer; each returns how many more runs there will be.
const auto drop = [](vigil::timer&) { return 0; };
const auto stop_timer = [](vigil::timer& t) { return t.stop() ? -1 : 0; };
const auto again = [](vigil::timer& t) { return t.reset(2us) ? 0 : 1; };

const auto alone = [](vigil::timer t, auto here) {
  const int more = here(t);
  t = {};
  return more;
};

// Both release a handle of their own afterwards.
template <class Outside>
auto with_a_thread(Outside outside) {
  return [outside](vigil::timer t, auto here) {
    int more_outside = 0;
    std::thread thread([&more_outside, outside, copy = t]() mutable {
      more_outside = outside(copy);
      copy = {};
    });
    const int more = here(t);
    t = {};
    thread.join();
    return more + more_outside;
  };
}

}  // namespace

TEST_CASE("record: the last handle goes as the timer fires") {
  prove("record: drop against fire", meeting(state::due, drop, alone));
  prove("record: stop and drop against fire", meeting(state::due, stop_timer, alone));
  prove("record: drop against queued", meeting(state::queued, drop, alone));
  prove("record: stop and drop against queued", meeting(state::queued, stop_timer, alone));
  prove("record: drop against running", meeting(state::running, drop, alone));
  prove("record: stop and drop against running", meeting(state::running, stop_timer, alone));
  prove("record: reset and drop against fire", meeting(state::due, again, alone));
  prove("record: reset and drop against running", meeting(state::running, again, alone));
}

TEST_CASE("record: two handles go at once, one of them outside") {
  prove("record: drop, drop, fire", meeting(state::due, drop, with_a_thread(drop)));
  prove("record: stop, drop, fire", meeting(state::due, stop_timer, with_a_thread(drop)));
  prove("record: stop, stop, fire", meeting(state::due, stop_timer, with_a_thread(stop_timer)));
  prove("record: reset, drop, fire", meeting(state::due, again, with_a_thread(drop)));
  prove("record: drop, drop, queued", meeting(state::queued, drop, with_a_thread(drop)));
  prove("record: stop, drop, queued", meeting(state::queued, stop_timer, with_a_thread(drop)));
  prove("record: reset, drop, queued", meeting(state::queued, again, with_a_thread(drop)));
  prove("record: drop, drop, running", meeting(state::running, drop, with_a_thread(drop)));
  prove("record: reset, drop, running", meeting(state::running, again, with_a_thread(drop)));
}

TEST_CASE("record: a periodic timer is stopped and let go as it comes due") {
  prove("record: every, stop and drop", [] {
    vigil::run(workers(2), [] {
      fate f;
      gate second;
      auto t = vigil::every(1us, [&, c = capture(f)]() mutable {
        c.run();
        if (f.ran.load() == 2) second.enter();  // otherwise the runs would have no end
      });
      let_the_other_rest();
      const model::window w;
      t.stop();
      t = {};
      second.open();
      let_time_pass();
      model::require(f.alive.load() == 0, "its captures are gone");
      model::enough();
    });
  });
}

TEST_CASE("record: a dead entry is swept as its timer is armed again") {
  // The entry lies in this worker's intake; the other one takes it in as it lies down.
  const auto in_the_intake = [](std::chrono::nanoseconds to) {
    return [to] {
      vigil::run(workers(2), [&] {
        fate f;
        gate busy;
        vigil::go([&] { busy.enter(); });
        busy.await();
        auto t = vigil::after_func(1us, callback(f));
        t.stop();
        const model::window w;
        busy.open();
        model::require(!t.reset(to), "it was idle");
        model::wait_until([&] { return f.ran.load() == 1; });
        t = {};
        let_time_pass();
        model::require(f.ran.load() == 1 && f.alive.load() == 0, "it ran, and is gone");
        model::enough();
      });
    };
  };
  prove("record: dead in the intake, armed earlier", in_the_intake(500ns));
  prove("record: dead in the intake, armed later", in_the_intake(2us));
  prove("record: dead in the heap, armed later", [] {
    vigil::run(workers(2), [] {
      fate f;
      gate busy;
      auto t = vigil::after_func(1us, callback(f));
      let_the_other_rest();  // it has taken the entry in
      vigil::go([&] { busy.enter(); });
      busy.await();
      t.stop();
      const model::window w;
      busy.open();
      model::require(!t.reset(2us), "it was idle");
      model::wait_until([&] { return f.ran.load() == 1; });
      t = {};
      let_time_pass();
      model::require(f.ran.load() == 1 && f.alive.load() == 0, "it ran, and is gone");
      model::enough();
    });
  });
  prove("record: dead in the heap, the last handle goes", [] {
    vigil::run(workers(2), [] {
      fate f;
      gate busy;
      auto t = vigil::after_func(1us, callback(f));
      let_the_other_rest();
      vigil::go([&] { busy.enter(); });
      busy.await();
      t.stop();
      const model::window w;
      busy.open();
      t = {};
      let_time_pass();
      model::require(f.ran.load() == 0 && f.alive.load() == 0, "it is gone");
      model::enough();
    });
  });
}

TEST_CASE("record: the runtime ends with callbacks that never started") {
  // The main fiber ends the run with a runner and the timer fiber still in the middle of
  // it on the other worker.
  const auto discarded = [](bool queued) {
    return [queued] {
      vigil::run(workers(2), [&] {
        fate f;
        gate busy;
        auto& timers = vigil::detail::current_scheduler()->timers();
        if (queued) {
          vigil::go([&] { busy.enter(); });
          busy.await();
          vigil::after_func(0s, callback(f));
        } else {
          vigil::after_func(1us, callback(f));
          let_the_other_rest();
        }
        const model::window w;
        busy.open();
        timers.discard_callbacks();
        let_time_pass();
        model::require(!timers.anything_pending(), "nothing is pending");
        model::require(f.alive.load() == 0 && f.ran.load() <= 1, "the captures are gone");
        model::enough();
      });
    };
  };
  prove("record: discarded against fire", discarded(false));
  prove("record: discarded against queued", discarded(true));
  prove("record: due as the run ends", [] {
    fate f;
    {
      vigil::runtime rt(workers(2));
      std::optional<model::window> w;
      rt.run([&] {
        vigil::after_func(1us, callback(f));
        let_the_other_rest();
        w.emplace();
      });
      w.reset();
    }
    model::require(f.alive.load() == 0 && f.ran.load() <= 1, "the captures are gone");
  });
  prove("record: a handle outside is dropped as the runtime ends", [] {
    fate f;
    std::optional<model::window> w;
    std::thread thread;
    {
      vigil::runtime rt(workers(1));
      vigil::timer t;
      rt.run([&] {
        t = vigil::after_func(1h, callback(f));
        w.emplace();
        thread = std::thread([copy = std::move(t)]() mutable { copy = {}; });
      });
    }
    thread.join();
    w.reset();
    model::require(f.alive.load() == 0 && f.ran.load() == 0, "the captures are gone");
  });
  prove("record: a count from outside goes to no later runtime", [] {
    using vigil::detail::timer_event;
    alignas(std::max_align_t) std::byte no_scheduler[1];  // only its address is looked at
    auto& any = reinterpret_cast<vigil::detail::scheduler&>(no_scheduler);
    vigil::detail::timer_owner owner;
    owner.begin(any, nullptr);
    const std::uint32_t run = owner.generation();
    std::optional<model::window> w(std::in_place);
    std::thread thread([&] { owner.count_for(run, timer_event::stopped); });
    owner.end();
    owner.begin(any, nullptr);
    thread.join();
    w.reset();
    model::require(owner.counted_outside(timer_event::stopped) == 0, "it counted for its own");
  });
  prove("record: a handle outside is used as the runtime ends", [] {
    fate f;
    std::optional<model::window> w;
    std::thread thread;
    {
      vigil::runtime rt(workers(1));
      vigil::timer t;
      rt.run([&] {
        t = vigil::after_func(1h, callback(f));
        w.emplace();
        thread = std::thread([copy = std::move(t)]() mutable {
          try {
            copy.reset(2h);
          } catch (const vigil::runtime_gone&) {
          }
          copy.stop();
        });
      });
    }
    thread.join();
    w.reset();
    model::require(f.alive.load() == 0 && f.ran.load() == 0, "the captures are gone");
  });
}
