// timeout_core: one list of idle timeouts, as all who use it see it.
//
// The danger. An entry is touched, removed, added, expired and destroyed at the
// same moment from different threads, and none of these but its owner knows
// whether its memory will be there in the next. A touch that returns true must
// keep the entry from expiring; after a remove no on_expire may run for it.
//
// The rule. Three words in the entry, two locks.
//
//   touched  0: in no list, otherwise the last touch. Expiry begins by a
//            compare-exchange from the very time that was found due to 0; a
//            touch is one from the time that it saw to a later one. Each
//            change is therefore won by exactly one of touch, expiry, remove.
//   home     the list that it is in; changed under that list's lock
//   run      its on_expire that is under way; changed under a run lock, one of
//            a few for all entries of the process
//
//   expiring   list's lock: run lock: run = mine; touched: found -> 0; unlink,
//              home = none; both unlocked; on_expire; run lock: run = none,
//              those who wait for it are told
//   removing   home's lock: touched = 0, unlink, home = none; then run lock:
//              wait while run is another's
//
// C1  run is set before home is cleared, so who finds neither finds an entry
//     that nobody else knows.
// C2  An on_expire that destroys its entry says so in its run; the entry is not
//     touched after that. There is one run for each entry: an entry that comes
//     due while its run is under way is put off, as if it were touched then.
// C3  While the lock is free and there are entries, the list's timer is armed
//     for armed_, not later than the first of them is due as it stands in
//     order_; or its callback has begun and is on its way to the lock; or the
//     run has no user fiber left but the main one, whose end stops all timers.
// C4  Lists are type-stable: who has read home may lock it, and looks again.
// C5  on_expire is called under no lock, and so die its captures: in the end of
//     the handle, once no run is left, since none begins after closed_ is set;
//     with the last use if that end is called in an on_expire of the list.
// C6  Once closed_ is set a list only loses entries, out of all places where it
//     has some: order_ and the batches of expire_now. So whoever adds or
//     moves one looks at closed_ under that very hold of the lock. An on_expire
//     that the end waits for has the handle and may add so late: that only takes
//     the entry out of where it is.
// C7  What is kept for ever (C4) is small: the room in which the entries stand is
//     the handle's of a list of its own; a list by duration, one of many, has one
//     only while it has entries. An expire_now brings another.
// C8  No entry outlives the run in which it was added: add looks under the lock
//     whether a run is under way, and the run's end takes all out under it, after
//     it has said that it is over.
//
// The timer's callback expires one entry. Before it calls on_expire it arms the
// timer for the next: at once, if that is due, which queues the timer behind
// the other callbacks. So those of one list take turns with all others, and one
// that waits leaves the next to another runner (timer/runner_pool.hpp).
#pragma once

#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"
#include "idle_timeouts/timeout_order.hpp"
#include "timer/timer_service.hpp"

#include <vigil/timeout_list.hpp>

#include <cstddef>

namespace vigil::inline VIGIL_ABI::detail {

// On the stack of who calls on_expire.
struct timeout_run {
  struct waiting : detail::open_wait {
    waiting* next = nullptr;
  };

  timeout_run(timeout_core* of, detail::fiber* caller) noexcept : list(of), on(caller) {}

  timeout_core* const list;
  detail::fiber* const on;
  detail::spinlock* lock = nullptr;  // of the entry; guards what follows
  timeout_node* entry = nullptr;     // nullptr: destroyed in its on_expire
  detail::chain<waiting, &waiting::next> waiters;
  detail::list_hook<timeout_run> hook;
};

class timeout_core final : private detail::run_listener {
 public:
  // The service of the caller's runtime. Throws wrong_place if there is none.
  static detail::timer_service& service_here(const char* call);
  // Throws runtime_gone unless `run` is the service's, std::invalid_argument,
  // std::bad_alloc. Takes over a use of f, unless it throws.
  static timeout_core& make(const char* call,
                            detail::timer_service& service,
                            std::uint32_t run,
                            detail::nanos duration,
                            timeout_function* f,
                            const site& from,
                            bool one_of_many);
  static void drop_function(timeout_function* f) noexcept;

  // Leaves n in no list if the end of the handle has begun. `surely`: throws no
  // bad_alloc; see arm_surely.
  void add(timeout_node& n, bool surely = false);
  // True if it was in a list.
  static bool take_out(timeout_node& n) noexcept;
  // Waits for a run of n that is not the caller's own. `gone`: n is destroyed.
  static void await_run(timeout_node& n, bool gone) noexcept;
  std::size_t expire_now();

  // The end of the handle: no entry is left, nor comes one in; then waits for
  // the on_expires.
  void end() noexcept {
    close();
    end_closed();
  }

  void close() noexcept;
  void end_closed() noexcept;
  // Has no entry, nor does an on_expire run. Stays so while nobody adds.
  bool is_unused() const noexcept;

  void keep() noexcept;
  void let_go() noexcept;

  detail::nanos duration() const noexcept { return duration_; }

  std::size_t size() const noexcept { return size_.load(); }

  timeout_core* next_spare = nullptr;  // those that no list uses

 private:
  friend class timeout_callback;

  timeout_core() noexcept = default;

  // What an expire_now has still to call, on its stack. It takes over the whole
  // order in one step, so what is added after that is not among it; then it sorts
  // by the last touch, in pieces. However it ends, the rest is put off. Owns a use
  // of the list.
  struct batch {
    explicit batch(timeout_core& of);  // throws std::bad_alloc
    ~batch();
    batch(const batch&) = delete;
    batch& operator=(const batch&) = delete;

    timeout_node* first() noexcept {
      return detail::timeout_order::is_empty(entries) ? nullptr
                                                      : static_cast<timeout_node*>(entries.after);
    }

    // Sorted or not.
    timeout_node* any() noexcept {
      timeout_node* const n = first();
      return n != nullptr ? n : unsorted.any();
    }

    // False if nothing is left to be sorted.
    bool sort_some() noexcept;

    timeout_core& list;
    // The list's lock guards these.
    detail::timeout_order unsorted;
    timeout_links entries;
    detail::list_hook<batch> hook;
  };

  void run_ends() noexcept override;
  void run_due();
  timeout_node* due(detail::nanos now, unsigned& moves) noexcept VIGIL_REQUIRES(lock_);
  bool begin(timeout_run& r, timeout_node& n, detail::nanos touched) noexcept VIGIL_REQUIRES(lock_);
  void call(timeout_run& r);
  void finish(timeout_run& r) noexcept;
  void put_off(timeout_node& n) noexcept VIGIL_REQUIRES(lock_);
  void take_out_here(timeout_node& n) noexcept VIGIL_REQUIRES(lock_);
  void take_all_out() noexcept VIGIL_EXCLUDES(lock_);
  bool take_some_out() noexcept VIGIL_REQUIRES(lock_);
  void need_room() VIGIL_REQUIRES(lock_);
  void spare_room() noexcept VIGIL_REQUIRES(lock_);
  void arm(detail::nanos deadline) VIGIL_REQUIRES(lock_);
  void arm_surely(detail::nanos deadline) noexcept VIGIL_REQUIRES(lock_);
  void disarm() noexcept VIGIL_REQUIRES(lock_);

  detail::nanos now() const noexcept { return service_->now_in(generation_); }

  using run_list = detail::list<timeout_run, &timeout_run::hook>;
  using batch_list = detail::list<batch, &batch::hook>;
  static constexpr unsigned moves_at_once = 128;  // under one hold of the lock
  static constexpr detail::nanos at_once = 0;     // armed_: the callback is queued

  mutable detail::spinlock lock_{detail::lock_rank::timeout_list};
  detail::timeout_order order_ VIGIL_GUARDED_BY(lock_);
  run_list runs_ VIGIL_GUARDED_BY(lock_);
  batch_list batches_ VIGIL_GUARDED_BY(lock_);
  detail::nanos armed_ VIGIL_GUARDED_BY(lock_) = detail::never;
  bool closed_ VIGIL_GUARDED_BY(lock_) = false;
  detail::atomic<std::size_t> size_{0};  // changed under the lock
  detail::atomic<std::size_t> uses_{1};  // the handle, the timer's callback, runs
  detail::nanos duration_ = 0;
  bool one_of_many_ = false;  // C7
  detail::timer_service* service_ = nullptr;
  std::uint32_t generation_ = 0;
  timer_record* timer_ = nullptr;
  timeout_function* function_ = nullptr;
};

}  // namespace vigil::inline VIGIL_ABI::detail
