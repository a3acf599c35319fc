// operation_record: an operation that a fiber waits for, and its handler.
//
// The danger. The handler may run while the fiber is still beginning the
// operation, while it waits, at the moment at which a deadline ends its wait, or
// never. The fiber's frame holds the result and the caller's buffer, so the fiber
// must not go on before the handler has had its turn; and a cancellation that
// reaches an operation between two of its steps, on another thread, would touch
// what the next step is just building.
//
// The rule. The record is counted and not on the fiber's stack.
//
//   fiber      begin() ─ the initiating function ─ wait() ─ takes the result
//   handler    puts the result into the fiber's frame ─ complete() or drop()
//
// O1  `done` and the claim of the fiber's ticket are one step under `lock`; a
//     fiber that finds `done` does not park. After it the frame is not touched.
// O2  A fiber whose wait has ended otherwise cancels and waits again, by nothing
//     but `done`. So the frame and the buffer outlive the operation.
//     A deadline that moves to an earlier time wakes the fiber (`look_again`).
// O3  Whatever Asio runs for the operation, and each cancellation, runs in its
//     section: a lock that one thread may take several times. A fiber in it cannot
//     park. The initiating function is not in it, for user code may park there; a
//     cancellation that comes before that has returned is kept until then.
// O4  Once its fiber has asked it to end, it is asked again after each of its steps:
//     an operation of several steps may have begun one just when it was asked. A
//     step inside another is a part of that one. Steps inside the asking are its
//     answer, so it is asked again after them, a few times and not for ever.
// O5  The executor is kept by the handler and by copies of the associated executor:
//     what else was bound to that runs after the end as before it. It is let go
//     before the fiber knows, if they are gone: its context may go then. What is
//     left of copies afterwards counts no work there.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/waiter.hpp"

#include <vigil/io/detail/operation.hpp>

#include <mutex>

namespace vigil::internal {

class io_watch;
class scheduler;

}  // namespace vigil::internal

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

class operation_record final : public operation {
 public:
  explicit operation_record(internal::fiber& f) noexcept;

  // What complete() left to be done, later: readies the fiber, lets go.
  void deliver() noexcept;

  operation_record* next_ready = nullptr;

 private:
  friend class operation;

  void end() noexcept;
  bool is_done() noexcept VIGIL_EXCLUDES(lock_);
  void emit(boost::asio::cancellation_type_t type) noexcept;
  void ask_again() noexcept;
  void clear_slot() noexcept;
  void untrack() noexcept VIGIL_EXCLUDES(lock_);
  // f on its executor.
  template <class F>
  void enter(F f) noexcept;
  void wait_for_end() noexcept;
  ending wait_once(const wait_limit& limit);

  internal::scheduler& sched_;
  // Where what it waits for may happen; nullptr: in no io_context of the runtime's.
  internal::io_watch* watch_;
  internal::atomic<int> kept_{1};
  internal::atomic<int> executors_{0};  // as long as there are any, they keep it once
  internal::atomic<bool> end_wanted_{false};
  std::recursive_mutex section_;
  int depth_ = 0;          // guarded by section_
  bool answered_ = false;  // guarded by section_: a section inside another has ended
  internal::spinlock lock_{internal::lock_rank::io};
  bool done_ VIGIL_GUARDED_BY(lock_) = false;
  bool look_again_ VIGIL_GUARDED_BY(lock_) = false;
  bool begun_ VIGIL_GUARDED_BY(lock_) = false;  // the initiating function has returned
  boost::asio::cancellation_type_t asked_ VIGIL_GUARDED_BY(lock_) =
      boost::asio::cancellation_type::none;  // before it was begun
  // Empty: any. O5
  boost::asio::any_io_executor executor_ VIGIL_GUARDED_BY(lock_);
  internal::waiter* who_ VIGIL_GUARDED_BY(lock_) = nullptr;
  internal::ticket which_ VIGIL_GUARDED_BY(lock_) = 0;
  internal::waiter* claimed_ = nullptr;  // by complete(), to be delivered
};

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io
