// operation: an asynchronous operation that a fiber has begun, and its handler.
//
// The danger. The handler may run while the fiber still begins the operation, while it
// waits, when a deadline ends its wait, or never. The fiber's frame has the result and
// the buffer, so the fiber must not go on before the handler has run; and a cancellation
// that comes between two steps, on another thread, would touch what the next one builds.
//
//   fiber      begin_operation() ─ the initiating function ─ await_end() ─ takes the result
//   handler    puts the result into the fiber's frame ─ end()
//
// OP1  `done` and the claim of the fiber's ticket are one step under `lock`; a fiber
//      that finds `done` does not park. After it the frame is not touched.
// OP2  A fiber whose wait has ended otherwise cancels and waits again, for nothing but
//      `done`. So the frame and the buffer outlive the operation. A deadline that moves
//      to an earlier time wakes the fiber (`look_again`).
// OP3  What Asio runs for the operation, and each cancellation, runs in its section: a
//      lock that one thread may take several times. A fiber in it cannot park. The
//      initiating function is not in it, for user code may park there; a cancellation
//      is kept until that has returned.
// OP4  Once its fiber has asked it to end, it is asked again after each of its steps:
//      one may have begun just then. A step inside another is a part of that. Steps
//      inside the asking are its answer: it is asked again a few times after them.
// OP5  The handler and the copies of the associated executor keep the executor. If
//      none is left at the end it is released before the fiber knows, for its context
//      may go then. Copies that are left count no work there.
#pragma once

#include "base/atomic.hpp"
#include "base/spinlock.hpp"
#include "sched/wait/waiter.hpp"

#include <vigil/io/detail/operation.hpp>

#include <exception>
#include <mutex>

namespace vigil::inline VIGIL_ABI::detail {

class io_watch;
class scheduler;

}  // namespace vigil::inline VIGIL_ABI::detail

namespace vigil::io::inline VIGIL_ABI::detail {

// All of it is operation.cpp's.
struct operation {
  vigil::detail::scheduler& sched;
  // Where what it waits for may happen; nullptr: in no io_context of the runtime's.
  vigil::detail::io_watch* const watch;
  const bool anywhere;  // its handlers run where they are called
  const bool outside;
  // Empty: any. OP5
  boost::asio::any_io_executor executor VIGIL_GUARDED_BY(lock);

  vigil::detail::atomic<int> references{1};
  vigil::detail::atomic<int> executors{0};  // as long as there are any, they are one reference
  vigil::detail::atomic<bool> end_wanted{false};

  std::recursive_mutex section{};
  int depth = 0;          // guarded by section
  bool answered = false;  // guarded by section: a section inside another has ended
  boost::asio::cancellation_signal signal{};

  // Written by its handler before `done`, read by its fiber afterwards.
  std::exception_ptr thrown{};
  bool dropped = false;

  vigil::detail::spinlock lock{vigil::detail::lock_rank::io};
  bool done VIGIL_GUARDED_BY(lock) = false;
  bool looks_again VIGIL_GUARDED_BY(lock) = false;
  bool begun VIGIL_GUARDED_BY(lock) = false;  // the initiating function has returned
  boost::asio::cancellation_type_t asked VIGIL_GUARDED_BY(lock) =
      boost::asio::cancellation_type::none;  // before it was begun
  vigil::detail::waiter* waiter VIGIL_GUARDED_BY(lock) = nullptr;
  vigil::detail::ticket ticket VIGIL_GUARDED_BY(lock) = 0;

  vigil::detail::waiter* claimed = nullptr;  // by end(), to be delivered
  operation* next_ready = nullptr;           // in io_watch's list, from end() to deliver()
};

// The rest of end(): readies the fiber, releases the handler's reference.
void deliver(operation& o) noexcept;

// Its fiber looks at its limit again. By anybody who has a reference.
void look_again(operation& o) noexcept;

}  // namespace vigil::io::inline VIGIL_ABI::detail
