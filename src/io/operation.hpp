// operation: an asynchronous operation that a fiber has begun, and its handler.
//
// The danger. The handler may run while the fiber is still beginning the operation, while
// it waits, after a deadline has ended its wait, or never. The result and the buffer lie
// in the fiber's frame, so it must not go on before the handler has run. A cancellation
// on another thread, between two steps, would touch what the next step builds.
//
//   fiber      begin_operation() ─ the initiating function ─ await_end() ─ takes the result
//   handler    puts the result into the fiber's frame ─ end()
//
// OP1  Setting `done` and claiming the fiber's ticket are one step under `lock`; a fiber
//      that finds `done` does not park. After that step the frame is not touched.
// OP2  A fiber whose wait ends in another way cancels the operation and waits again, for
//      `done` alone. So the frame and the buffer outlive the operation. A deadline that
//      moves to an earlier time readies the fiber (`looks_again`).
// OP3  Everything that Asio runs for the operation, and each cancellation, runs in its
//      section: a recursive lock. A fiber inside it cannot park. The initiating function
//      runs outside, because user code may park there; a cancellation waits until that
//      function has returned.
// OP4  Once its fiber has asked it to end, it is asked again after each of its steps,
//      since one may have begun just then. A step inside another is part of that one.
//      Steps inside the asking are its answer: it is asked again a few times after them.
// OP5  The handler and the copies of the associated executor keep the executor. If none
//      is left at the end, it is released before the fiber learns of the end, since its
//      context may go then. Copies that are left count no work there.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/io/detail/operation.hpp>

#include <cstdint>
#include <exception>
#include <mutex>

namespace VIGIL_DETAIL {

class io_watch;
class scheduler;

}  // namespace VIGIL_DETAIL

namespace VIGIL_IO_DETAIL {

// A cancellation signal that is used again (operation_memory.cpp).
class spare_signal {
 public:
  spare_signal();  // throws std::bad_alloc
  ~spare_signal();
  spare_signal(const spare_signal&) = delete;
  spare_signal& operator=(const spare_signal&) = delete;

  boost::asio::cancellation_signal* operator->() const noexcept { return signal_; }

 private:
  boost::asio::cancellation_signal* signal_;
};

// Its members are private to operation.cpp.
struct operation {
  // Each thread keeps the memory of one that has ended.
  static void* operator new(std::size_t size);
  static void operator delete(void* p) noexcept;

  // The object of its waits, for dumps, which read it here: the first member. A later
  // step may change it on another thread.
  vigil::detail::atomic<const void*> object;
  const void* const given;  // the object of those steps that tell no descriptor
  vigil::detail::scheduler& sched;
  const std::uint64_t run;  // the scheduler's number: another may have its address later
  // The watch whose io_context may complete it; nullptr if none of the runtime's can.
  vigil::detail::io_watch* const watch;
  const bool anywhere;  // its handlers run where they are called
  const bool outside;
  // Empty means any executor. OP5
  boost::asio::any_io_executor executor VIGIL_GUARDED_BY(lock);

  vigil::detail::atomic<int> references{1};
  vigil::detail::atomic<int> executors{0};  // while nonzero, they hold one reference
  vigil::detail::atomic<bool> end_wanted{false};

  one_operation memory{};

  std::recursive_mutex section{};
  int depth = 0;          // guarded by section
  bool answered = false;  // guarded by section: a nested section has ended
  spare_signal signal{};

  // Written by the handler before `done`, read by the fiber afterwards.
  std::exception_ptr thrown{};
  bool dropped = false;

  vigil::detail::spinlock lock{vigil::detail::lock_rank::io};
  bool done VIGIL_GUARDED_BY(lock) = false;
  bool looks_again VIGIL_GUARDED_BY(lock) = false;
  bool begun VIGIL_GUARDED_BY(lock) = false;  // the initiating function has returned
  boost::asio::cancellation_type_t asked VIGIL_GUARDED_BY(lock) =
      boost::asio::cancellation_type::none;  // kept until `begun`
  vigil::detail::open_wait* waiting VIGIL_GUARDED_BY(lock) = nullptr;
  // The next two are for a `pending`.
  bool awaited VIGIL_GUARDED_BY(lock) = false;  // by a select, or by a wait of its own
  bool taken VIGIL_GUARDED_BY(lock) = false;
};

bool is_done(operation& o) noexcept;
// OP1: the handler has left the result, or is gone.
void set_done(operation& o) noexcept;
// Ends the fiber's present wait, if it waits. Returns the waiter to be delivered.
vigil::detail::waiter* claim(operation& o) noexcept VIGIL_REQUIRES(o.lock);
// The initiating function has returned.
void has_begun(operation& o) noexcept;
// Waits until the operation is done, the limit or a stop ends the wait, or the limit is
// to be looked at again (which returns `completed` as well).
ending wait_once(operation& o, const wait_limit& limit) VIGIL_NO_THREAD_SAFETY_ANALYSIS;
// Asks it to end, until it does (OP4).
void ask_to_end(operation& o) noexcept;
// OP2
void wait_for_handler(operation& o) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS;
// Clears the slot, outside any emission: the function that the operation left there may
// hold a copy of the executor, and so keep itself alive.
void clear_slot(operation& o) noexcept;

// A wait for an operation, which counts as outside work unless that is in memory.
class counted_wait {
 public:
  explicit counted_wait(operation& o) noexcept : operation_(o) { begin(o); }

  ~counted_wait() { end(operation_, cancelled_); }

  counted_wait(const counted_wait&) = delete;
  counted_wait& operator=(const counted_wait&) = delete;

  // The operation has been asked to end.
  void is_cancelled() noexcept;

  static void begin(operation& o) noexcept;
  static void end(operation& o, bool was_cancelled) noexcept;

 private:
  operation& operation_;
  bool cancelled_ = false;
};

// Called by a thread that has ended a fiber's wait, perhaps inside a handler.
void deliver_in_order(vigil::detail::waiter& claimed) noexcept;

// The fiber whose call this is. Throws wrong_place outside a fiber; ends the program
// under no_park.
vigil::detail::fiber& fiber_that_may_wait();

// Throws wrong_place if the calling fiber runs that io_context itself.
void check_is_not_run_here(const boost::asio::any_io_executor& ex);
// The same for the one on which the operation's handlers run.
void check_is_not_run_here(operation& o);
bool is_run_here(operation& o);

}  // namespace VIGIL_IO_DETAIL
