// side_pool: threads that run functions which would block a worker, first in,
// first out.
//
//   submit()   queue; wake a thread that rests, or make one if there are fewer
//              than the limit
//   thread     take the first; run it; if there is none, rest on a note
//   withdraw() out of the queue again, if no thread has taken it
//
// Q1  Functions start in the order in which they were submitted.
// Q2  A thread rests only if, under the lock, the queue was empty; submit() takes
//     a resting thread out under the same lock and wakes it. So no function
//     waits beside a thread that rests.
// Q3  A queued or running call belongs to the pool (C1 of side_call.hpp), but
//     for one that withdraw() has taken out.
// Q4  The destructor waits for what is queued and running, and for no caller:
//     one whose wait has ended may go on after the pool has gone. It touches the pool
//     only as C4 of side_call.hpp says.
// Q5  A thread that is being started counts as one. The caller that fails to start the
//     last one there is refuses all that is queued: no thread would come to it.
// Q6  From then on until it has gone a thread is counted as quiet (process.hpp),
//     but for while it runs the user's code, before it gives the call back: when
//     the last call is over, none of them hides a deadlock, even if the pool has
//     been left to it (Q7).
// Q7  A pool that is ended on a thread of its own, by a function or as what that
//     has captured dies, cannot be waited for there: it is left to its threads.
//     They go on until nothing is queued; the last to go, of them and of the callers
//     that start one, destroys it.
#pragma once

#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"
#include "sched/run/side_call.hpp"
#include "sched/scheduler.hpp"
#include "sched/wait/note.hpp"

#include <vigil/blocking.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace vigil::inline VIGIL_ABI::detail {

class side_pool;

class side_job final : public side_call {
 public:
  bool withdraw() noexcept override;

  list_hook<side_job> queued;
  side_pool* pool = nullptr;
  scheduler* sched = nullptr;
  const detail::blocking_table* table = nullptr;
  void* record = nullptr;
  // Why f was not run although the call is over: Q5. Written before it is.
  std::exception_ptr refused;
};

// The number of threads that is asked for, or what the environment says;
// throws std::invalid_argument.
std::size_t side_pool_size(std::optional<std::size_t> asked);

class side_pool {
 public:
  // The environment is asked when the first function comes if there is no size.
  side_pool(std::optional<std::size_t> size, std::string_view name);
  // Waits for what is queued and running. Caller: as end().
  ~side_pool();
  side_pool(const side_pool&) = delete;
  side_pool& operator=(const side_pool&) = delete;

  // Destroys a pool made by new, or leaves it to its threads: Q7.
  static void end(side_pool* pool) noexcept;

  // Before the first function; throws std::invalid_argument for a bad size in the
  // environment, std::bad_alloc.
  void prepare() VIGIL_EXCLUDES(lock_);
  void submit(side_job& job) noexcept VIGIL_EXCLUDES(lock_);
  // False if a thread has taken it. Caller: as Q4 says.
  bool withdraw(side_job& job) noexcept VIGIL_EXCLUDES(lock_);
  blocking_stats stats() noexcept VIGIL_EXCLUDES(lock_);

 private:
  struct place {
    note sleep;
    place* next = nullptr;  // among those that rest
    bool used = false;
    std::thread thread;
  };

  std::exception_ptr start_thread(place& p, std::size_t number) noexcept;
  void close() noexcept VIGIL_REQUIRES(lock_);
  bool is_last() const noexcept VIGIL_REQUIRES(lock_);
  bool somebody_starts() noexcept VIGIL_EXCLUDES(lock_);
  void start_failed(place& p, const std::exception_ptr& error) noexcept VIGIL_EXCLUDES(lock_);
  void body(place& here, std::size_t number) noexcept VIGIL_EXCLUDES(lock_);
  void run(side_job& job) noexcept VIGIL_EXCLUDES(lock_);
  static void give_back(side_job& job) noexcept;

  const std::optional<std::size_t> asked_;
  const std::string name_;

  spinlock lock_{lock_rank::side_pool};
  std::unique_ptr<place[]> places_ VIGIL_GUARDED_BY(lock_);
  std::size_t size_ VIGIL_GUARDED_BY(lock_) = 0;  // 0: no function has come yet
  std::size_t threads_ VIGIL_GUARDED_BY(lock_) = 0;
  std::size_t starting_ VIGIL_GUARDED_BY(lock_) = 0;  // callers that start one
  list<side_job, &side_job::queued> queue_ VIGIL_GUARDED_BY(lock_);
  chain<place, &place::next> resting_ VIGIL_GUARDED_BY(lock_);
  std::size_t running_ VIGIL_GUARDED_BY(lock_) = 0;
  std::uint64_t done_ VIGIL_GUARDED_BY(lock_) = 0;
  bool closing_ VIGIL_GUARDED_BY(lock_) = false;
  bool is_left_ VIGIL_GUARDED_BY(lock_) = false;  // Q7
};

}  // namespace vigil::inline VIGIL_ABI::detail
