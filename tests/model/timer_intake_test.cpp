// The intakes against publish and drain (HK1 to HK3 of heap_keeper.hpp): once an arming
// has returned, the deadline to which workers sleep is never later than that of the
// arming, so no armed timer is forgotten or fires late.
//
// The main fiber stays awake on its worker, so only the other one can fire. If a deadline
// is lost, that worker sleeps for ever, and the explorer says so; if it sleeps to a later
// one, the model's clock shows it.
#include "core/base/nanos.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/timer/timer_service.hpp"
#include "instants.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::detail::intake;
using vigil::detail::lock_guard;
using vigil::detail::nanos;
using vigil::detail::never;
using vigil::detail::runtime_timer;
using vigil::detail::timer_service;

namespace VIGIL_DETAIL {

struct test_access {
  // Leaves room for only `left` more entries, as if the others were dead ones that have
  // been taken in.
  static void fill(timer_service& s, intake& in, std::uint32_t left) {
    heap_keeper& heap = s.parts_->heap;
    const lock_guard guard(heap.lock_);
    heap.granted_ -= in.allowance - left;
    in.allowance = left;
  }

  static intake& own(timer_service& s) { return *s.owner_.own_intake(); }

  static intake& shared(timer_service& s) { return s.parts_->heap.shared_intake(); }

  // Caller: the owner.
  static bool has_room_for_its_allowance(const intake& in) {
    return in.size.load() + in.allowance <= intake::capacity;
  }

  static std::uint32_t left(const intake& in) { return in.allowance; }

  // Caller: nobody arms, and no publish() is under way.
  static void check(timer_service& s) {
    heap_keeper& keeper = s.parts_->heap;
    const lock_guard guard(keeper.lock_);
    const timer_heap& heap = keeper.heap_;
    nanos earliest = heap.empty() ? never : heap.top().key;
    std::size_t granted = 0;
    for (intake& in : keeper.intakes_) {
      const lock_guard adding(in.lock);
      const std::uint32_t n = in.size.load();
      for (std::uint32_t i = 0; i < n; ++i)
        earliest = std::min(earliest, in.entries[i].key);
      granted += n + in.allowance;
    }
    const nanos next = s.sched()->board.next_deadline.load();
    model::require(next <= earliest || earliest >= runtime_timer::latest, "HK1");
    model::require(granted == keeper.granted_, "HK3: what is granted is what may still come");
    model::require(heap.capacity() >= heap.size() + keeper.taken_ + keeper.granted_, "HK3");
    model::require(heap.verify(), "the heap is one");
  }
};

}  // namespace VIGIL_DETAIL

using programs::far;
using programs::gate;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::near;
using programs::nearer;
using programs::run_with_outside_work;
using programs::workers;
using vigil::detail::test_access;

namespace {

timer_service& service() {
  return static_cast<timer_service&>(vigil::detail::current_scheduler()->timers());
}

// Lets time go on until nothing is pending any more and everything that fired has run,
// then checks the books.
void finish() {
  let_time_pass();
  test_access::check(service());
  model::enough();
}

// A timer that records the time on the timer fiber itself: it shows when it fired without
// a callback's way through the queue.
class stamp {
 public:
  stamp() : timer_(service().make_send(&stamp::fired, this, service().generation())) {}

  ~stamp() { release_record(*timer_); }

  stamp(const stamp&) = delete;
  stamp& operator=(const stamp&) = delete;

  void arm_at(nanos deadline) {
    armed_ = deadline;
    service_.arm_at(*timer_, deadline);
    returned_ = model::now();
  }

  bool stop() { return service_.stop(*timer_); }

  bool has_fired() const { return at_.load() != 0; }

  // If time stood still until the arming had returned, the only sleeper had to sleep to
  // this deadline or an earlier one.
  void await_on_time() {
    model::wait_until([this] { return has_fired(); });
    model::require(at_.load() >= armed_, "not early");
    if (returned_ < armed_) model::require(at_.load() == armed_, "on time");
  }

 private:
  static void fired(void* self, nanos, vigil::detail::fire_again*) noexcept {
    auto& s = *static_cast<stamp*>(self);
    s.at_.store(model::now());
  }

  timer_service& service_ = service();
  vigil::detail::runtime_timer* const timer_;
  nanos armed_ = 0;
  nanos returned_ = 0;
  std::atomic<nanos> at_{0};
};

// Makes room in the shared intake outside the window.
void arm_once_from_outside(stamp& s) {
  std::thread([&] {
    s.arm_at(model::now() + far);
    s.stop();
  }).join();
}

// Arms a timer while the other worker sleeps to one that is due in `others`.
void arm_beside(nanos others) {
  vigil::run(workers(2), [others] {
    stamp first;
    stamp second;
    const nanos begin = model::now();
    first.arm_at(begin + others);
    let_the_other_rest();
    const model::window w;
    second.arm_at(begin + near);
    second.await_on_time();
    finish();
  });
}

}  // namespace

TEST_CASE("intake: armed here while the other worker fires an earlier one, and publishes") {
  prove("intake: arm against fire", [] { arm_beside(nearer); });
  prove("intake: arm twice against fire", [] {
    vigil::run(workers(2), [] {
      stamp first;
      stamp second;
      stamp third;
      const nanos begin = model::now();
      first.arm_at(begin + nearer);
      let_the_other_rest();
      const model::window w;
      second.arm_at(begin + 2 * near);
      third.arm_at(begin + near);
      third.await_on_time();
      second.await_on_time();
      finish();
    });
  });
}

TEST_CASE("intake: armed earlier than the deadline that the other worker sleeps to") {
  prove("intake: arm earlier", [] { arm_beside(far); });
}

TEST_CASE("intake: armed while the other worker tidies, publishes and lies down") {
  prove("intake: arm against lying down", [] {
    vigil::run(workers(2), [] {
      gate busy;
      stamp first;
      vigil::go([&] { busy.enter(); });
      busy.await();
      const model::window w;
      busy.open();
      first.arm_at(model::now() + near);
      first.await_on_time();
      finish();
    });
  });
  prove("intake: arm against lying down to a dead deadline", [] {
    vigil::run(workers(2), [] {
      gate busy;
      stamp dead;
      stamp first;
      vigil::go([&] { busy.enter(); });
      busy.await();
      const nanos begin = model::now();
      dead.arm_at(begin + nearer);
      dead.stop();
      const model::window w;
      busy.open();
      first.arm_at(begin + near);  // lowers nothing: the dead one is earlier
      first.await_on_time();
      finish();
    });
  });
}

TEST_CASE("intake: armed by both workers at once") {
  prove("intake: arm here and there", [] {
    vigil::run(workers(2), [] {
      gate busy;
      stamp here;
      stamp there;
      const nanos begin = model::now();
      vigil::go([&] {
        busy.enter();
        there.arm_at(begin + nearer);
      });
      busy.await();
      const model::window w;
      busy.open();
      here.arm_at(begin + near);
      model::wait_until([&] { return here.has_fired() && there.has_fired(); });
      finish();
    });
  });
}

TEST_CASE("intake: armed by a plain thread") {
  prove("intake: arm outside against fire", [] {
    run_with_outside_work(2, [] {
      stamp first;
      stamp second;
      arm_once_from_outside(second);
      const nanos begin = model::now();
      first.arm_at(begin + nearer);
      let_the_other_rest();
      const model::window w;
      std::thread thread([&] { second.arm_at(begin + near); });
      thread.join();
      second.await_on_time();
      finish();
    });
  });
  prove("intake: arm outside against lying down", [] {
    run_with_outside_work(2, [] {
      gate busy;
      stamp first;
      arm_once_from_outside(first);
      vigil::go([&] { busy.enter(); });
      busy.await();
      const model::window w;
      std::thread thread([&] { first.arm_at(model::now() + near); });
      busy.open();
      thread.join();
      first.await_on_time();
      finish();
    });
  });
  prove("intake: arm outside and here", [] {
    run_with_outside_work(2, [] {
      gate busy;
      stamp here;
      stamp outside;
      arm_once_from_outside(outside);
      vigil::go([&] { busy.enter(); });
      busy.await();
      const nanos begin = model::now();
      const model::window w;
      std::thread thread([&] { outside.arm_at(begin + nearer); });
      here.arm_at(begin + near);
      thread.join();
      busy.open();
      outside.await_on_time();
      here.await_on_time();
      finish();
    });
  });
}

TEST_CASE("intake: a full one is taken in by its owner while the other worker fires or tidies") {
  prove("intake: full, against fire", [] {
    vigil::run(workers(2), [] {
      stamp first;
      stamp second;
      stamp third;
      const nanos begin = model::now();
      first.arm_at(begin + nearer);
      let_the_other_rest();
      test_access::fill(service(), test_access::own(service()), 1);
      const model::window w;
      second.arm_at(begin + near);
      third.arm_at(begin + near);
      model::require(test_access::left(test_access::own(service())) == intake::capacity - 1,
                     "it was full");
      model::require(test_access::has_room_for_its_allowance(test_access::own(service())), "HK3");
      second.await_on_time();
      model::wait_until([&] { return third.has_fired(); });
      finish();
    });
  });
  prove("intake: full, against lying down", [] {
    vigil::run(workers(2), [] {
      gate busy;
      stamp first;
      stamp second;
      vigil::go([&] { busy.enter(); });
      busy.await();
      const nanos begin = model::now();
      first.arm_at(begin + near);
      test_access::fill(service(), test_access::own(service()), 0);
      const model::window w;
      busy.open();
      second.arm_at(begin + nearer);
      model::require(test_access::has_room_for_its_allowance(test_access::own(service())), "HK3");
      second.await_on_time();
      model::wait_until([&] { return first.has_fired(); });
      finish();
    });
  });
  prove("intake: the shared one full, against fire", [] {
    run_with_outside_work(2, [] {
      stamp first;
      stamp second;
      stamp third;
      const nanos begin = model::now();
      arm_once_from_outside(second);
      first.arm_at(begin + nearer);
      let_the_other_rest();
      intake& shared = test_access::shared(service());
      test_access::fill(service(), shared, 1);
      const model::window w;
      std::thread thread([&] {
        second.arm_at(begin + near);
        third.arm_at(begin + near);
        model::require(test_access::has_room_for_its_allowance(shared), "HK3");
      });
      thread.join();
      second.await_on_time();
      model::wait_until([&] { return third.has_fired(); });
      finish();
    });
  });
}

TEST_CASE("intake: a timer is moved later while its entry surfaces") {
  prove("intake: moved later against surfacing", [] {
    vigil::run(workers(2), [] {
      stamp s;
      const nanos begin = model::now();
      s.arm_at(begin + nearer);
      let_the_other_rest();
      const model::window w;
      if (s.stop()) {
        s.arm_at(begin + near);
        s.await_on_time();
      }
      finish();
    });
  });
  // Its entry is put back into the heap, and the worker that did so stays busy.
  prove("intake: moved later, and the firing worker is kept busy", [] {
    vigil::run(workers(2), [] {
      stamp moved;
      const nanos begin = model::now();
      moved.arm_at(begin + nearer);
      auto busy = vigil::after_func(std::chrono::nanoseconds(nearer),
                                    [&] { model::wait_until([&] { return moved.has_fired(); }); });
      let_the_other_rest();
      const model::window w;
      moved.arm_at(begin + near);
      busy.stop_and_wait();
      finish();
    });
  });
}
