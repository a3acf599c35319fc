// outside_work: work that may make something happen in a runtime although none of its
// fibers runs: announced work of plain threads, functions on side pools, I/O operations
// that fibers wait for, executors of handlers that are to come. While there is any, no
// deadlock is reported, virtual time stands still, and exit_when::all_done does not end
// the run.
//
// The danger. The work that ends may be the last thing for which the main fiber,
// the workers or the virtual clock waited, and all of them may sleep.
//
// The rule. A thread that ends it changes the count first, then has the main
// fiber look (end_listener), then wakes the workers. Only leave() does not wake them if
// no worker can have looked meanwhile.
#pragma once

#include "core/base/atomic.hpp"
#include "core/sched/fiber/end_listener.hpp"
#include "core/sched/fiber/visitors.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class timer_board;
class idle_workers;

class outside_work {
 public:
  outside_work(idle_workers& idle,
               timer_board& board,
               end_listener& main,
               visitors& inside) noexcept
      : idle_(idle), board_(board), main_(main), visitors_(inside) {}

  void add() noexcept { announced_.fetch_add(one_more); }

  void end() noexcept;

  std::size_t count() const noexcept { return announced_.load() & low_half; }

  bool any() const noexcept { return count() != 0 || has_io(); }

  // The count in the lower half, and in the upper half how often work was added: as long
  // as the word stays the same, no work has come and gone in between.
  std::uint64_t history() const noexcept { return announced_.load(); }

  static std::size_t count_in(std::uint64_t history) noexcept { return history & low_half; }

  // For a thread outside fibers that changes what holds the program
  // (exit_when::all_done): it counts as outside work from enter() to leave(). In between
  // the scheduler lives, whatever becomes of the run.
  void enter() noexcept {
    visitors_.enter();
    add();
  }

  void leave() noexcept;

  // Counts an operation that a fiber waits for. Caller: the fiber, which is about to
  // park. After io_ends() the fiber itself sees to what the end leads to.
  VIGIL_FOR_IO void io_begins() noexcept;

  void io_ends() noexcept { pending_io_.fetch_sub(1); }

  bool has_io() const noexcept { return pending_io_.load() != 0; }

  std::size_t pending_io() const noexcept { return static_cast<std::size_t>(pending_io_.load()); }

  // Counts an executor for handlers of I/O that are to come. Any thread.
  VIGIL_FOR_IO void io_executor_begins() noexcept;
  VIGIL_FOR_IO void io_executor_ends() noexcept;

  // Whether a worker should be in the watch, whatever the others do.
  bool awaits_io() const noexcept { return has_io() || io_executors_.load() != 0; }

 private:
  static constexpr std::uint64_t low_half = 0xffff'ffff;
  static constexpr std::uint64_t one_more = (std::uint64_t{1} << 32) + 1;

  idle_workers& idle_;
  timer_board& board_;
  end_listener& main_;
  visitors& visitors_;

  alignas(cache_line) atomic<std::uint64_t> announced_{0};
  alignas(cache_line) atomic<long> pending_io_{0};
  atomic<long> io_executors_{0};
};

}  // namespace VIGIL_DETAIL
