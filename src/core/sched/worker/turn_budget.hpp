// turn_budget: how many calls that need not wait a fiber may make in one turn.
//
// The danger. A call that finds its value, permit or lock ready does not park. A fiber
// that makes no others keeps its worker for ever: the timers, the I/O and the fibers that
// depend on this worker wait as long.
//
// The rule. A call that may wait spends one, first of all, before it looks at anything.
// Once so many were spent without a switch in between, the next one yields: it has
// nothing in hand, and afterwards begins as if it were called then. It is a yield in all
// but that it looks for no stop.
//
// The count is the thread's, so that no call needs to find its fiber. When it has run
// out, the worker takes stock. If it has switched since it last did, the fiber that runs
// has spent less in this turn, and the count begins anew; so a switch costs nothing. A
// fiber yields after `most` to 2 * most - 1 calls in one turn.
//
// docs/decisions/0023-served-at-once.md
#pragma once

#include "core/sched/fiber/fiber.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstdint>
#include <utility>

namespace VIGIL_DETAIL {

// The thread's count. Only the functions here touch it. In the code of a fiber its
// address is never in a register for longer than one of them (G10).
extern thread_local int calls_left asm("vigil_calls_left")
    __attribute__((tls_model("initial-exec")));

// Spends n calls. True if the count has run out: the caller takes stock, by give_way() or
// a late_call, or as a task does.
#if defined(__x86_64__) && !defined(__ILP32__)
[[gnu::always_inline]] inline bool spend_calls(int n = 1) noexcept {
  bool has_run_out;
  std::intptr_t at;
  asm volatile(
      "movq vigil_calls_left@gottpoff(%%rip), %1\n\t"
      "subl %2, %%fs:(%1)"
      : "=@ccs"(has_run_out), "=&r"(at)
      : "ri"(n)
      : "memory");
  return has_run_out;
}

// The present count.
[[gnu::always_inline]] inline int calls_of_thread() noexcept {
  std::intptr_t n;
  asm volatile(
      "movq vigil_calls_left@gottpoff(%%rip), %0\n\t"
      "movl %%fs:(%0), %k0"
      : "=r"(n)
      :
      : "memory");
  return static_cast<int>(n);
}
#else
bool spend_calls(int n = 1) noexcept;
int calls_of_thread() noexcept;
#endif

// A worker's side of the count. Its thread alone uses it.
class turn_budget {
 public:
  // 0: any number.
  explicit turn_budget(std::uint32_t most) noexcept;

  // The thread begins to count for this worker.
  void begin() noexcept;

  // Called when the count has run out. `switches`: the worker's so far. True if the fiber
  // that runs has spent all of its turn.
  bool take_stock(std::uint64_t switches) noexcept;

  // The calls that were spent since the last look.
  std::uint64_t take_spent() noexcept;

  // A task has spent all of the runner's turn.
  void end_turn() noexcept { turn_is_over_ = true; }

  bool take_end_of_turn() noexcept { return std::exchange(turn_is_over_, false); }

 private:
  void count_up() noexcept;

  const bool is_limited_;
  const int most_;
  int left_ = 0;  // until the next look at the switches, once what is lent is spent
  int lent_ = 0;  // to the thread, of left_
  bool turn_is_over_ = false;
  std::uint64_t seen_switches_ = 0;
  std::uint64_t spent_ = 0;
};

// Counts what f, which runs on w, has done at the present instant of virtual time.
void count_work(worker& w, const fiber& f) noexcept;

// Called first of all by a call whose spend_calls() was true. Yields if the fiber has
// spent its turn, and may. Returns the fiber if park_check is to look at the call:
// end_checked_call() follows at its end.
fiber* give_way() noexcept;
void end_checked_call(fiber& self) noexcept;

// The same for a coroutine, on a runner: true if the task is to go to the end of the
// queue.
bool must_give_way(fiber& runner) noexcept;

// A call whose count has run out. It keeps the limit as it was given, and its context,
// while it gives way. It lives as long as the call: if that has not waited, the locks of
// its caller are looked at all the same.
class late_call {
 public:
  explicit late_call(const wait_limit& limit = no_limit) noexcept
      : kept_(limit.is_relative() && limit.nanoseconds > 0 ? limit.absolute() : limit),
        checked_(give_way()) {}

  ~late_call() {
    if (checked_ != nullptr) end_checked_call(*checked_);
  }

  late_call(const late_call&) = delete;
  late_call& operator=(const late_call&) = delete;

  const wait_limit& limit() const noexcept { return kept_.limit; }

 private:
  const kept_limit kept_;
  fiber* const checked_;
};

template <class Call>
[[gnu::noinline, gnu::cold]] auto call_late(const wait_limit& limit, Call call) {
  const late_call late(limit);
  return call(late.limit());
}

// Makes a call that may wait, with its limit: gives way first if it has to. The call
// counts as n.
template <class Call>
[[gnu::always_inline]] inline auto in_turn(const wait_limit& limit, Call call, int n = 1) {
  if (spend_calls(n)) [[unlikely]]
    return detail::call_late(limit, call);
  return call(limit);
}

}  // namespace VIGIL_DETAIL
