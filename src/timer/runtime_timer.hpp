// runtime_timer: one timer, as the service sees it, and the protocol that
// decides whether it fires.
//
// The danger. Stop, reset and fire come from different threads at once, and
// the heap is not searched on a stop or a reset: entries stay in it that speak
// for a deadline long gone. A timer must fire exactly once for each arming that
// nobody prevented, never at a deadline that is no longer in force, and no
// arming may be left without an entry that will bring it to the surface.
//
// The rule. Two words.
//
//   when   the deadline in force, `idle` if none. It is the claim word: arming
//          exchanges a deadline into it, stop exchanges `idle`, and who fires
//          changes it by compare-exchange from the very deadline it saw. Each
//          arming is therefore taken by exactly one of stop, reset and fire.
//   filed  the key of the one entry that speaks for the timer, `nothing` if
//          none does. An entry that surfaces with another key is a dead
//          duplicate. An entry says no more than "look at `when` now".
//
//   arming     exchange when; then, if the key is earlier than filed,
//              compare-exchange filed to it and file an entry; a later
//              deadline files nothing
//   surfacing  compare-exchange filed from the entry's key to `nothing`; then
//              look at when: idle: drop; later: file again; due: fire
//
// T1  If when holds a deadline, and no arming is under way, filed is a key not
//     later than it, and an entry with that key is in the heap or an intake;
//     or the timer is queued or held by its runner, who looks at when last.
//     Both sides change one word and then read the other, all sequentially
//     consistent, so an arming and a surfacing that cross cannot both think
//     that the other files.
// T2  Of concurrent armings the last exchange of when is in force.
// T3  Records are type-stable and counted: each entry, the queue and the users
//     together own one reference each.
#pragma once

#include "base/atomic.hpp"
#include "base/nanos.hpp"
#include "sched/wait/waiter.hpp"

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

class timer_service;

// What happens when the timer fires; all that ever runs on the timer fiber.
enum class timer_kind : std::uint8_t {
  fiber_ready,  // a waiter's deadline: claims its ticket (Go: goroutineReady)
  go_func,      // a callback: queued for a runner fiber (Go: goFunc)
  send_time,    // a function that hands over the time and never waits (Go: sendTime)
};

class runtime_timer {
 public:
  static constexpr nanos idle = 0;
  static constexpr nanos firing = -1;  // fiber_ready only: the waiter is being touched
  static constexpr nanos nothing = never;
  static constexpr nanos held = std::numeric_limits<nanos>::min();  // filed: the runner has it
  static constexpr nanos latest = never - 1;  // the key of what never comes due

  // What a send function may do with its timer: have it fire again, without
  // the room or the wake-up that an arming needs.
  class refire {
   public:
    // True if it was pending all the same.
    virtual bool at(nanos deadline) noexcept = 0;

   protected:
    ~refire() = default;
  };

  // A function of the channel layer. Called on the timer fiber with the
  // deadline that has come, or with `never` when the runtime ends; must not
  // wait, allocate, or call user code.
  using send_function = void (*)(void* argument, nanos when, refire& again) noexcept;

  runtime_timer(timer_kind k,
                timer_service& s,
                std::uint32_t generation_of_service,
                bool periodic = false) noexcept
      : kind(k), is_periodic(periodic), generation(generation_of_service), service(&s) {}

  runtime_timer(const runtime_timer&) = delete;
  runtime_timer& operator=(const runtime_timer&) = delete;

  static constexpr nanos clamp_deadline(nanos d) noexcept { return d < 1 ? 1 : d; }

  // Where the entry for deadline d stands in the heap.
  nanos key_for(nanos d) const noexcept {
    // ordering: slack counts from the next arming; a racing change may be late.
    const auto slack = static_cast<nanos>(slack_us.load(relaxed)) * 1000;
    const nanos key = saturating_add(d, slack);
    return key > latest ? latest : key;
  }

  // Once the deadline stands in `when`: whether an entry has to be filed, with `key`. It
  // has a reference of its own then.
  bool file(nanos deadline, nanos& key) noexcept {
    key = key_for(deadline);
    // T1: when first, then filed; surfacing goes the other way round.
    nanos seen = filed.load();
    while (key < seen) {
      if (filed.compare_exchange_weak(seen, key)) {
        // ordering: the new reference is made from one that the caller holds.
        references.fetch_add(1, relaxed);
        return true;
      }
    }
    return false;
  }

  // The word of the claim, and what the queue of callbacks writes; of a waiter's
  // timer the second line is a stranger's, and harmless.
  void prefetch() const noexcept {
    __builtin_prefetch(this, 1);
    __builtin_prefetch(reinterpret_cast<const std::byte*>(this) + cache_line, 1);
  }

  // It is known to be due next.
  void prefetch_waiter() const noexcept {
    if (kind == timer_kind::fiber_ready) __builtin_prefetch(wait.who, 1);
  }

  atomic<nanos> when{idle};
  atomic<nanos> filed{nothing};
  atomic<std::uint32_t> references{1};
  const timer_kind kind;
  const bool is_periodic;          // every(): the runner files it again
  atomic<bool> referenced{false};  // ref/unref: a flag, not a count
  atomic<std::uint32_t> slack_us{0};
  const std::uint32_t generation;
  timer_service* const service;

  union {
    struct {
      waiter* who;   // written once, when the record is made
      ticket which;  // written before `when` is exchanged, read after the claim
    } wait;

    struct {
      send_function function;
      void* argument;
    } send;
  };
};

static_assert(sizeof(runtime_timer) <= 64, "a sleeping fiber's timer is one cache line");

// The last one ends the timer (T3).
void drop_reference(runtime_timer& t) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
