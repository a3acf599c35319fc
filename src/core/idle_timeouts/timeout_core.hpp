// timeout_core: one list of idle timeouts. Its invariants stand above the class.
//
// The danger. An entry may be touched, removed, added, expired and destroyed at the same
// moment from different threads, and only its owner knows whether its memory will still
// be there in the next moment. A touch that returns true must keep the entry from
// expiring; after a remove no on_expire may run for it.
//
// The rule. Three words in the entry, two locks.
//
//   touched  0: in no list; otherwise the time of the last touch. Expiry begins with a
//            compare-exchange from the very time that was found due to 0; a touch is one
//            from the time that it saw to a later one. So each change is won by exactly
//            one of touch, expiry and remove.
//   home     the list that the entry is in; changed under that list's lock
//   run      the entry's on_expire under way; changed under a run lock, one of a few for
//            all entries of the process
//
//   expiring   list's lock: run lock: run = mine; touched: found -> 0; unlink,
//              home = none; both unlocked; on_expire; run lock: run = none, and its
//              waiters are readied
//   removing   home's lock: touched = 0, unlink, home = none; then run lock: wait while
//              run is another's
#pragma once

#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/idle_timeouts/timeout_order.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/timeout_list.hpp>

#include <cstddef>

namespace VIGIL_DETAIL {

// A call of on_expire. It lies on the caller's stack.
struct timeout_run {
  struct waiting : open_wait {
    waiting* next = nullptr;
  };

  timeout_run(timeout_core* of, fiber* caller) noexcept : list(of), on(caller) {}

  timeout_core* const list;
  fiber* const on;
  spinlock* lock = nullptr;       // the entry's; guards the members below
  timeout_node* entry = nullptr;  // nullptr once it is destroyed in its on_expire
  chain<waiting, &waiting::next> waiters;
  list_hook<timeout_run> hook;
};

// Invariants.
//
// TL1 `run` is set before `home` is cleared, so a caller that finds neither has an entry
//     that nobody else knows.
// TL2 An on_expire that destroys its entry says so in its run; the entry is not touched
//     after that. An entry has one run at a time: if it comes due while its run is under
//     way, it is put off, as if it were touched then.
// TL3 While the lock is free and there are entries, the list's timer is armed for armed_,
//     not later than the first of them is due as it stands in order_; or its callback has
//     begun and is on its way to the lock; or the run has no user fiber left but the main
//     one, whose end stops all timers.
// TL4 Lists are type-stable: a caller that has read `home` may lock it, and looks again.
// TL5 on_expire is called under no lock, and its captures die under none: at the end of
//     the handle, once no run is left, since none begins after closed_ is set; or with
//     the last use, if that end is called in an on_expire of the list.
// TL6 Once closed_ is set a list only loses entries, from all places where it has some:
//     order_ and the batches of expire_now. So a call that adds or moves an entry looks
//     at closed_ under that very hold of the lock. An on_expire that the end waits for
//     has the handle and may add so late: that only takes the entry out of where it is.
// TL7 What is kept for ever (TL4) is small. The room in which the entries stand belongs
//     to the handle, if the list has one to itself; a list by duration, one of many, has
//     a room only while it has entries. An expire_now brings another room.
// TL8 No entry outlives the run in which it was added: add looks under the lock whether a
//     run is under way, and the run's end takes all entries out under it, after it has
//     said that the run is over.
//
// The timer's callback expires one entry. Before it calls on_expire it arms the timer for
// the next: at once, if that one is due, which queues the timer behind the other
// callbacks. So the callbacks of one list take turns with all others, and one that waits
// leaves the next to another runner (timer/runner_pool.hpp).
class timeout_core final : private run_listener {
 public:
  // Returns the service of the caller's runtime. Throws wrong_place if there is none.
  static timer_service& service_here(const char* call);
  // Makes a list, and takes over a use of f unless it throws: runtime_gone if `run` is
  // not the service's, std::invalid_argument, std::bad_alloc.
  static timeout_core& make(const char* call,
                            timer_service& service,
                            std::uint32_t run,
                            nanos duration,
                            timeout_function* f,
                            const site& from,
                            bool one_of_many);
  static void drop_function(timeout_function* f) noexcept;

  // Adds n, or leaves it in no list if the end of the handle has begun. `surely`: throws
  // no bad_alloc; see arm_surely.
  void add(timeout_node& n, bool surely = false);
  // Returns true if n was in a list.
  static bool take_out(timeout_node& n) noexcept;
  // Waits for a run of n that is not the caller's own. `gone`: n is destroyed.
  static void await_run(timeout_node& n, bool gone) noexcept;
  std::size_t expire_now();

  // Ends the handle: takes all entries out, lets none in any more, and waits for the
  // on_expire calls.
  void end() noexcept {
    close();
    end_closed();
  }

  void close() noexcept;
  void end_closed() noexcept;
  // Returns true if it has no entry and no on_expire runs. Stays so while nobody adds.
  bool is_unused() const noexcept;

  void retain() noexcept;
  void release() noexcept;

  nanos duration() const noexcept { return duration_; }

  std::size_t size() const noexcept { return size_.load(); }

  timeout_core* next_spare = nullptr;  // among lists that no handle uses

 private:
  friend class timeout_callback;

  timeout_core() noexcept = default;

  // The entries that an expire_now has yet to call, on its stack. It takes over the whole
  // order in one step, so that later additions are not among them; then it sorts by the
  // last touch, in pieces. However it ends, the rest is put off. Owns a use of the list.
  struct batch {
    explicit batch(timeout_core& of);  // throws std::bad_alloc
    ~batch();
    batch(const batch&) = delete;
    batch& operator=(const batch&) = delete;

    timeout_node* first() noexcept {
      return timeout_order::is_empty(entries) ? nullptr : static_cast<timeout_node*>(entries.after);
    }

    // Returns an entry, sorted or not.
    timeout_node* any() noexcept {
      timeout_node* const n = first();
      return n != nullptr ? n : unsorted.any();
    }

    // Returns false if nothing is left to sort.
    bool sort_some() noexcept;

    timeout_core& list;
    // The list's lock guards these.
    timeout_order unsorted;
    timeout_links entries;
    list_hook<batch> hook;
  };

  void run_ends() noexcept override;
  void run_due();
  timeout_node* due(nanos now, unsigned& moves) noexcept VIGIL_REQUIRES(lock_);
  bool begin(timeout_run& r, timeout_node& n, nanos touched) noexcept VIGIL_REQUIRES(lock_);
  void call(timeout_run& r);
  void finish(timeout_run& r) noexcept;
  void put_off(timeout_node& n) noexcept VIGIL_REQUIRES(lock_);
  void take_out_here(timeout_node& n) noexcept VIGIL_REQUIRES(lock_);
  void take_all_out() noexcept VIGIL_EXCLUDES(lock_);
  bool take_some_out() noexcept VIGIL_REQUIRES(lock_);
  void need_room() VIGIL_REQUIRES(lock_);
  void spare_room() noexcept VIGIL_REQUIRES(lock_);
  void arm(nanos deadline) VIGIL_REQUIRES(lock_);
  void arm_surely(nanos deadline) noexcept VIGIL_REQUIRES(lock_);
  void disarm() noexcept VIGIL_REQUIRES(lock_);

  nanos now() const noexcept { return service_->now_in(generation_); }

  using run_list = list<timeout_run, &timeout_run::hook>;
  using batch_list = list<batch, &batch::hook>;
  static constexpr unsigned moves_at_once = 128;  // under one hold of the lock
  static constexpr nanos at_once = 0;             // armed_: the callback is queued

  mutable spinlock lock_{lock_rank::timeout_list};
  timeout_order order_ VIGIL_GUARDED_BY(lock_);
  run_list runs_ VIGIL_GUARDED_BY(lock_);
  batch_list batches_ VIGIL_GUARDED_BY(lock_);
  nanos armed_ VIGIL_GUARDED_BY(lock_) = never;
  bool closed_ VIGIL_GUARDED_BY(lock_) = false;
  atomic<std::size_t> size_{0};  // changed under the lock
  atomic<std::size_t> uses_{1};  // the handle, the timer's callback, runs
  nanos duration_ = 0;
  bool one_of_many_ = false;  // TL7
  timer_service* service_ = nullptr;
  std::uint32_t generation_ = 0;
  timer_record* timer_ = nullptr;
  timeout_function* function_ = nullptr;
};

}  // namespace VIGIL_DETAIL
