// side_pool: threads that run functions that would block a worker, first in, first out.
//
//   submit()    queues a call; wakes a resting thread, or starts one below the limit
//   thread      runs the first call; if there is none, rests on a note
//   withdraw()  takes a call out of the queue again, if no thread has taken it
//
// BP1 Functions start in the order in which they were submitted.
// BP2 A thread rests only if, under the lock, the queue was empty; submit() takes a
//     resting thread out under the same lock and wakes it. So no function waits beside a
//     resting thread.
// BP3 A queued or running call belongs to the pool (SC1 of side_call.hpp), except one
//     that withdraw() has taken out.
// BP4 The destructor waits for queued and running calls, and for no caller: one whose
//     wait has ended may go on after the pool has gone. Callers touch the pool only as
//     SC4 of side_call.hpp says.
// BP5 A thread that is being started counts as one. A caller that fails to start the only
//     one refuses all queued calls: no thread would come to them.
// BP6 From then until it has gone a thread is counted as quiet (process_threads.hpp),
//     except while it runs the user's code, before it gives the call back. So once the
//     last call is over, no thread hides a deadlock, even if the pool has been left to
//     them (BP7).
// BP7 A pool that is ended on one of its own threads, by a function or as the captures of
//     one die, cannot be waited for there: it is left to its threads. They go on until
//     nothing is queued; the last to go, of them and of the callers that start one,
//     destroys it, and waits for no thread: thread_local destructors may still run.
#pragma once

#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/run/side_call.hpp"
#include "core/sched/wait/note.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/blocking.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace VIGIL_DETAIL {

class side_pool;

class side_job final : public side_call {
 public:
  bool withdraw() noexcept override;

  list_hook<side_job> queued;
  side_pool* pool = nullptr;
  scheduler* sched = nullptr;
  const blocking_table* table = nullptr;
  void* record = nullptr;
  // Why f was not run although the call is over: BP5. Written before the call is over.
  std::exception_ptr refused;
};

// Returns the number of threads asked for, or else the environment's. Throws
// std::invalid_argument.
std::size_t side_pool_size(std::optional<std::size_t> asked);

class side_pool {
 public:
  // Without a size the environment is asked for it, when the first function comes.
  side_pool(std::optional<std::size_t> size, std::string_view name);
  // Waits for queued and running calls. Caller: as for end().
  ~side_pool();
  side_pool(const side_pool&) = delete;
  side_pool& operator=(const side_pool&) = delete;

  // Destroys a pool made by new, or leaves it to its threads: BP7.
  static void end(side_pool* pool) noexcept;

  // Makes the threads' places, before the first function. Throws std::bad_alloc, and
  // std::invalid_argument for a bad size in the environment.
  void prepare() VIGIL_EXCLUDES(lock_);
  void submit(side_job& job) noexcept VIGIL_EXCLUDES(lock_);
  // Returns false if a thread has taken the call. Caller: as BP4 says.
  bool withdraw(side_job& job) noexcept VIGIL_EXCLUDES(lock_);
  VIGIL_FOR_IO blocking_stats stats() noexcept VIGIL_EXCLUDES(lock_);

 private:
  struct place {
    note sleep;
    place* next = nullptr;  // in resting_
    bool used = false;
    std::thread thread;
  };

  std::exception_ptr start_thread(place& p, std::size_t number) noexcept;
  void close() noexcept VIGIL_REQUIRES(lock_);
  bool is_last() const noexcept VIGIL_REQUIRES(lock_);
  bool somebody_starts() noexcept VIGIL_EXCLUDES(lock_);
  void start_failed(place& p, const std::exception_ptr& error) noexcept VIGIL_EXCLUDES(lock_);
  void body(place& here, std::size_t number) noexcept VIGIL_EXCLUDES(lock_);
  void run(side_job& job, int thread) noexcept VIGIL_EXCLUDES(lock_);
  static void give_back(side_job& job) noexcept;

  const std::optional<std::size_t> asked_;
  const std::string name_;

  spinlock lock_{lock_rank::side_pool};
  std::unique_ptr<place[]> places_ VIGIL_GUARDED_BY(lock_);
  std::size_t size_ VIGIL_GUARDED_BY(lock_) = 0;  // 0: no function has come yet
  std::size_t threads_ VIGIL_GUARDED_BY(lock_) = 0;
  std::size_t starting_ VIGIL_GUARDED_BY(lock_) = 0;  // callers that are starting a thread
  list<side_job, &side_job::queued> queue_ VIGIL_GUARDED_BY(lock_);
  chain<place, &place::next> resting_ VIGIL_GUARDED_BY(lock_);
  std::size_t running_ VIGIL_GUARDED_BY(lock_) = 0;
  std::uint64_t done_ VIGIL_GUARDED_BY(lock_) = 0;
  delay_histogram queue_times_ VIGIL_GUARDED_BY(lock_);
  delay_histogram run_times_ VIGIL_GUARDED_BY(lock_);
  bool closing_ VIGIL_GUARDED_BY(lock_) = false;
  bool is_left_ VIGIL_GUARDED_BY(lock_) = false;  // BP7
};

}  // namespace VIGIL_DETAIL
