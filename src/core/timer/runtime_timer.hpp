// runtime_timer: one timer, and the protocol that decides whether it fires.
//
// The danger. Stop, reset and fire come from different threads at once. Stop and reset do
// not search the heap, so entries for deadlines long gone stay in it. A timer must fire
// exactly once for each arming that nothing prevented, never at a deadline no longer in
// force, and no arming may be left without an entry that will bring it to the surface.
//
// The rule. Two words.
//   when   the deadline in force, `idle` if none. The claim word: arming exchanges a
//          deadline into it, stop exchanges `idle`, and firing compare-exchanges the very
//          deadline it saw. So exactly one of stop, reset and fire takes each arming.
//   filed  the key of the one entry that speaks for the timer, `nothing` if none does. An
//          entry with another key is dead. An entry says no more than "look at when now".
//   arming     exchange when; then, if the key is earlier than filed, compare-exchange
//              filed to it and file an entry; a later deadline files nothing
//   surfacing  compare-exchange filed from the entry's key to `nothing`; then look at
//              when: idle: drop; later: file again; due: fire
//
// RT1 If when holds a deadline, and no arming is under way, filed is a key not later than
//     it, and an entry with that key is in the heap or an intake; or the timer is queued
//     or held by its runner, which looks at when last. Both sides change one word, then
//     read the other (seq_cst), so if they cross they cannot both leave it to the other.
// RT2 Of concurrent armings the last exchange of when is in force.
// RT3 Records are type-stable and counted: each entry, the queue and the users together
//     own one reference each.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/wait/waiter.hpp"

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

struct fire_again;  // timer_fiber.hpp
class timer_service;

// The action of a timer that fires; nothing else ever runs on the timer fiber.
enum class timer_kind : std::uint8_t {
  fiber_ready,  // a waiter's deadline: claims its ticket (Go: goroutineReady)
  go_func,      // a callback: queued for a runner fiber (Go: goFunc)
  send_time,    // a function that hands over the time and never waits (Go: sendTime)
};

class runtime_timer {
 public:
  // Stand in `when` in place of a deadline. `firing` is for fiber_ready alone: the timer
  // fiber touches the waiter, or the timeout has ended the wait (timer_fiber::fire_wait).
  static constexpr nanos idle = 0;
  static constexpr nanos firing = -1;
  // Stand in `filed` in place of a key. An arming files an entry if its key is earlier
  // than the word: always over `nothing`, never over `held`, while the runner has the
  // timer.
  static constexpr nanos nothing = never;
  static constexpr nanos held = std::numeric_limits<nanos>::min();
  static constexpr nanos latest = never - 1;  // the key of a timer that never comes due

  // A function of the channel layer. Called on the timer fiber with the deadline that has
  // come, or with `never` and a null `again` when the runtime ends; must not wait,
  // allocate, or call user code.
  using send_function = void (*)(void* argument, nanos when, fire_again* again) noexcept;

  runtime_timer(timer_kind k,
                timer_service& s,
                std::uint32_t generation_of_service,
                bool periodic = false) noexcept
      : kind(k), is_periodic(periodic), generation(generation_of_service), service(&s) {}

  runtime_timer(const runtime_timer&) = delete;
  runtime_timer& operator=(const runtime_timer&) = delete;

  static constexpr nanos clamp_deadline(nanos d) noexcept { return d < 1 ? 1 : d; }

  void set_slack(std::uint32_t micros) noexcept { slack_us.store(micros); }

  // The heap key of an entry for deadline d.
  nanos key_for(nanos d) const noexcept {
    // ordering: a new slack counts from the next arming; a racing change may be late.
    const auto slack = static_cast<nanos>(slack_us.load(order::relaxed)) * 1000;
    const nanos key = saturating_add(d, slack);
    return key > latest ? latest : key;
  }

  // Called once the deadline stands in `when`. True if an entry has to be filed under
  // `key`; the entry's own reference has then been taken.
  bool file(nanos deadline, nanos& key) noexcept {
    key = key_for(deadline);
    // RT1: when first, then filed; surfacing goes the other way round.
    nanos seen = filed.load();
    while (key < seen) {
      if (filed.compare_exchange_weak(seen, key)) {
        // ordering: the new reference is made from one that the caller holds.
        references.fetch_add(1, order::relaxed);
        return true;
      }
    }
    return false;
  }

  // Fetches the claim word and what the queue of callbacks writes. A waiter's timer has
  // one line only; to fetch the stranger's line after it is harmless.
  void prefetch() const noexcept {
    __builtin_prefetch(this, 1);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(this) + cache_line, 1);
  }

  // Fetches the waiter of a timer that is known to be due next.
  void prefetch_waiter() const noexcept {
    if (kind == timer_kind::fiber_ready) __builtin_prefetch(wait.whose, 1);
  }

  atomic<nanos> when{idle};
  atomic<nanos> filed{nothing};
  atomic<std::uint32_t> references{1};
  const timer_kind kind;
  const bool is_periodic;          // every(): the runner files it again
  atomic<bool> referenced{false};  // ref/unref: a flag, not a count
  atomic<bool> must_ask{false};    // whoever arms it asks stop_waiters (SW2)
  atomic<std::uint32_t> slack_us{0};
  // The place among equal keys: that of the last arming, which draws it before it
  // exchanges `when` (heap_keeper::draw_tie), or of one under way. An entry with another
  // tie has missed an arming, and is filed again when it is looked at.
  atomic<std::uint32_t> tie{0};
  const std::uint32_t generation;
  timer_service* const service;

  struct waiting {
    waiter* whose;  // written once, when the record is made
    ticket opened;  // written before `when` is exchanged, read after the claim
  };

  struct sending {
    send_function function;
    void* argument;
  };

  union {
    waiting wait;
    sending send;
  };
};

static_assert(sizeof(runtime_timer) <= 64, "a sleeping fiber's timer is one cache line");

// Ends the timer and gives its memory back. Caller: drops the last reference.
void give_back_record(runtime_timer& t) noexcept;

// Drops a reference; the last one ends the timer (RT3).
inline void release_record(runtime_timer& t) noexcept {
  // Pairs with the other decrements: the last one sees all that was written. If the
  // caller's reference is the only one, no other thread can change the count.
  if (t.references.load(order::acquire) == 1 || t.references.fetch_sub(1, order::acq_rel) == 1)
    give_back_record(t);
}

}  // namespace VIGIL_DETAIL
