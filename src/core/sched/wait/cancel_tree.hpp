// cancel_tree: nodes that can be cancelled, and the waits that end with them.
//
//              a                 cancel(b) marks b, d, e from the top down,
//            /   \               then ends the waits under them, a few dozen under
//           b     c              each hold of a lock, and at last, without any lock,
//          / \                   calls on_done() of the nodes that asked for it
//         d   e
//
// The danger. Two threads cancel overlapping parts at the same moment, a third hangs a
// new child or a waiter below, a fourth lets a child die. A child that is missed never
// ends; a waiter that is missed sleeps for ever; a waiter that is touched after its wait
// is over is another's stack; and a thread that returned from cancel() while another is
// still at work below would find a part of the tree alive that it has cancelled.
//
// The rule. Each node has a lock. The walk holds the locks on the path from the node that
// is cancelled down to where it is, parents before children, and releases a node's lock
// only when all below is marked.
//
// The invariants, CN1 to CN7, stand at cancel_node.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/wait/waiter.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>

#include <cstdint>
#include <exception>
#include <system_error>

namespace VIGIL_PUBLIC {
namespace detail {

class cancel_node;

}  // namespace detail
}  // namespace VIGIL_PUBLIC

namespace VIGIL_DETAIL {

enum class cancel_state : std::uint8_t {
  open,
  cancelled,
  timed_out,
  shutdown,  // of the node's runtime
};

// A function that the thread that cancels calls when a node ends, without a lock.
struct cancel_callback {
  list_hook<cancel_callback> hook;
  // May free the callback; must not wait.
  void (*run)(cancel_callback&) noexcept = nullptr;
};

}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC {
namespace detail {

// CN1 `state` changes from open once, under the node's lock. A thread that holds the lock
//     and finds it open may link a child, a waiter or a callback; one that finds it done
//     links nothing, and its child or wait is done as well. So the thread that marked the
//     node has the callbacks to itself.
// CN2 A node that is found done under its lock is done with all below it: the thread that
//     marked it had the lock until then. So cancel() takes the lock even to learn that
//     there is nothing to do.
// CN3 A child leaves its parent's list under the parent's lock before it dies, and the
//     walk holds that lock while it is below: so it meets no freed node. A child keeps
//     its parent alive.
// CN4 A waiter is claimed under the lock and readied without it. Between the two its
//     owner cannot go on (WT2 of waiter.hpp). A waiter that was not claimed is unlinked
//     by its owner under the lock.
// CN5 User code, destructors included, runs under no lock here.
// CN6 `state` is changed before on_done() is called. A caller that leaves something for
//     on_done() to find looks at `state` afterwards (cancel_context::token). All of this
//     is sequentially consistent: one of the two sees the other.
// CN7 Whatever is left at a node (a waiter, a callback, a wish for on_done()) keeps the
//     node, or goes with it: once the last reference is gone, nothing there needs an end.
class cancel_node {
 public:
  explicit cancel_node(const site& from = {"a context", 0}) noexcept : made_at(from) {}

  cancel_node(const cancel_node&) = delete;
  cancel_node& operator=(const cancel_node&) = delete;

  // --- any thread that keeps the node
  detail::cancel_state state() const noexcept { return state_.load(); }  // CN6

  bool is_done() const noexcept { return state() != detail::cancel_state::open; }

  // The cause given to the cancel that came first. Caller: has seen the node done.
  const std::exception_ptr& cause() const noexcept { return cause_; }

  // When it returns, this node and all below are done, whichever thread did it.
  void cancel(detail::cancel_state state, const std::exception_ptr& cause) noexcept
      VIGIL_EXCLUDES(lock_);

  // Makes the wait end with the node from now on. False if it has ended so already.
  bool begin_wait(detail::queued_waiter& w) noexcept VIGIL_EXCLUDES(lock_);
  // Called by the wait's owner when it goes on, however the wait ended.
  void end_wait(detail::queued_waiter& w) noexcept VIGIL_EXCLUDES(lock_);

  // Has the end of the node call c. False if the node is done: nothing was linked.
  bool link(detail::cancel_callback& c) noexcept VIGIL_EXCLUDES(lock_);
  // Takes c back. True if that prevented the call.
  bool unlink(detail::cancel_callback& c) noexcept VIGIL_EXCLUDES(lock_);

  // Hangs this node below `above`, which it keeps until it has left. If `above` is done,
  // this node is done as well. Caller: its maker, before any other thread has it.
  void hang_below(cancel_node& above) noexcept;
  // Takes this node out of its parent's list. Caller: calls this before the node dies.
  void leave() noexcept;

  // Asks for on_done() to be called when the node ends. Any thread; no effect afterwards.
  void want_on_done() noexcept VIGIL_EXCLUDES(lock_);

  // Notes that a std::stop_token of the node has been given out: its holders are not
  // known here.
  void token_is_given() noexcept VIGIL_EXCLUDES(lock_);

  // Whether anything waits for the end of this node or of a node below: in a wait under
  // it, in the channel of its end, with a function that the end calls, or perhaps with a
  // token.
  bool is_waited_for() noexcept VIGIL_EXCLUDES(lock_);

  // Whether a fiber or thread waits in the channel of this node's end. It is exact while
  // all threads that change it are asleep.
  bool is_awaited() const noexcept {
    // ordering: they changed it before they fell asleep.
    return !is_done() && waited_in_channel_.load(detail::order::relaxed);
  }

  // For tests.
  std::size_t children() const noexcept VIGIL_EXCLUDES(lock_);
  std::size_t waiters() const noexcept VIGIL_EXCLUDES(lock_);

  // The node as the debugging tools see it while no other thread runs.
  struct inside {
    bool is_at_rest = false;  // no thread was about to change what follows
    const cancel_node* above = nullptr;
    const cancel_node* first_child = nullptr;
    // The parts of the node that link it to others and to waits: [first, last).
    const void* links[2] = {};
    const void* children[2] = {};
  };

  VIGIL_FOR_IO inside look_inside() const noexcept;

  struct places;  // of its parts, for debuggers (core/debug/layout.cpp)

  virtual void retain() noexcept = 0;
  virtual void release() noexcept = 0;

  const birth made_at;

 protected:
  ~cancel_node() = default;

  // Notes whether a fiber or thread waits in the channel of the node's end. Caller: holds
  // the channel's lock.
  void channel_is_waited_in(bool now) noexcept {
    // ordering: read by a worker that has seen all others asleep.
    waited_in_channel_.store(now, detail::order::relaxed);
  }

 private:
  // The nodes that a cancel has marked and that have something to end; each is kept.
  cancel_node* next_marked_ = nullptr;
  using marked = detail::chain<cancel_node, &cancel_node::next_marked_>;

  // False if the last reference is gone: the node is about to leave.
  virtual bool try_retain() noexcept = 0;
  // Called once when the node has ended, without a lock, by the thread that cancelled.
  virtual void on_done() noexcept = 0;

  void mark(detail::cancel_state state, const std::exception_ptr& cause, marked& all) noexcept
      VIGIL_REQUIRES(lock_);
  void end_waits() noexcept VIGIL_EXCLUDES(lock_);
  static void tell(marked& all) noexcept;  // caller: holds no lock

  detail::atomic<detail::cancel_state> state_{detail::cancel_state::open};
  detail::atomic<bool> waited_in_channel_{false};
  bool wants_on_done_ VIGIL_GUARDED_BY(lock_) = false;
  bool has_token_ VIGIL_GUARDED_BY(lock_) = false;
  mutable detail::spinlock lock_{detail::lock_rank::cancel_tree};
  cancel_node* above_ = nullptr;
  detail::list_hook<cancel_node> among_children_;  // guarded by the lock of above_
  detail::far_list<detail::queued_waiter> waiters_ VIGIL_GUARDED_BY(lock_);
  detail::list<detail::cancel_callback, &detail::cancel_callback::hook> callbacks_ VIGIL_GUARDED_BY(
      lock_);
  std::exception_ptr cause_;  // written once, before state_

 public:
  using child_list = detail::list<cancel_node, &cancel_node::among_children_>;

 private:
  child_list children_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace detail
}  // namespace VIGIL_PUBLIC

namespace VIGIL_DETAIL {

// The error of a node whose deadline has passed. It is equivalent to errc::timed_out,
// whose own text, "Connection timed out", is TCP's.
std::error_code deadline_passed() noexcept;

// Throws `cancelled`, as a wait under a node that is done does.
[[noreturn]] VIGIL_FOR_IO void throw_cancelled(const cancel_node& node);

}  // namespace VIGIL_DETAIL
