// stop_tree: what can be cancelled, and who waits under it.
//
//              a                 cancel(b) marks b, d, e from the top down,
//            /   \               then ends the waits under them, a few dozen under
//           b     c              each hold of a lock, and at last, without any,
//          / \                   tells those who want to hear of it
//         d   e
//
// The danger. Two threads cancel overlapping parts at the same moment, a third
// hangs a new child or a waiter below, a fourth lets a child die. A child that
// is missed never ends; a waiter that is missed sleeps for ever; a waiter that
// is touched after its wait is over is somebody else's stack; and who returned
// from cancel() while another is still at work below would find a part of the
// tree alive that it has cancelled.
//
// The rule. Each node has a lock. The walk holds the locks on the path from the
// node that is cancelled down to where it is, parents before children, and lets
// go of a node's lock only when all below is marked.
//
// N1  `state` changes from open once, under the node's lock. Whoever holds the
//     lock and finds it open may link a child, a waiter or a callback; whoever
//     finds it done links nothing, and is done himself. So who marked it has the
//     callbacks for himself.
// N2  A node that is found done under its lock is done with all below it: who
//     marked it had the lock until then. So cancel() takes the lock also to
//     learn that there is nothing to do.
// N3  A child leaves its parent's list under the parent's lock before it dies,
//     and the walk holds that lock while it is below: no freed node is met. A
//     child keeps its parent alive.
// N4  A waiter is claimed under the lock and readied without it. Between the two
//     its owner cannot go on (W2 of waiter.hpp); one that was not claimed is
//     unlinked by its owner under the lock.
// N5  User code, destructors included, runs under no lock here.
// N6  `state` is changed before told() is called, and looked at by who leaves
//     something for told() to find, after he has left it (cancel_context::token).
//     All sequentially consistent: one of the two sees the other.
// N7  Who waits, has a callback or wants to be told keeps the node, or is about to
//     let the node die with it.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"
#include "sched/waiter.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <exception>
#include <system_error>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

class stop_node;

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil

namespace vigil::internal {

using detail::stop_node;

enum class stop_state : std::uint8_t {
  open,
  cancelled,
  timed_out,
  shutdown,  // of the runtime that it belongs to
};

// Something to be done when a node ends, by whoever cancels, without a lock.
struct stop_callback {
  list_hook<stop_callback> hook;
  // May free the callback; must not wait.
  void (*run)(stop_callback&) noexcept = nullptr;
};

}  // namespace vigil::internal

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

class stop_node {
 public:
  stop_node() noexcept = default;
  stop_node(const stop_node&) = delete;
  stop_node& operator=(const stop_node&) = delete;

  // --- any thread that keeps the node
  internal::stop_state state() const noexcept { return state_.load(); }  // N6

  bool is_done() const noexcept { return state() != internal::stop_state::open; }

  // As it was given to the cancel that came first. Caller: has seen it done.
  const std::exception_ptr& cause() const noexcept { return cause_; }

  // When it returns, this node and all below are done, whoever did it.
  void cancel(internal::stop_state state, const std::exception_ptr& cause) noexcept
      VIGIL_EXCLUDES(lock_);

  // The wait ends with the node from now on. False: it has ended so already.
  bool begin_wait(internal::queued_waiter& w) noexcept VIGIL_EXCLUDES(lock_);
  // Its owner goes on, however it ended.
  void end_wait(internal::queued_waiter& w) noexcept VIGIL_EXCLUDES(lock_);

  // False if the node is done: nothing was linked.
  bool link(internal::stop_callback& c) noexcept VIGIL_EXCLUDES(lock_);
  // True if that prevented it.
  bool unlink(internal::stop_callback& c) noexcept VIGIL_EXCLUDES(lock_);

  // Hangs it below `above`, which it keeps until it has left; if that is done it
  // is done as well. Caller: its maker, before anybody else has it.
  void hang_below(stop_node& above) noexcept;
  // Before it dies.
  void leave() noexcept;

  // told() is to be called when it ends. Any thread; no effect afterwards.
  void ask_to_be_told() noexcept VIGIL_EXCLUDES(lock_);

  // A std::stop_token of it has been given out: who has that is not known here.
  void token_is_given() noexcept VIGIL_EXCLUDES(lock_);

  // Whether somebody waits for its end or for that of a node below: in a wait under
  // it, in the channel of its end, with a function that the end calls, or perhaps with
  // a token.
  bool is_waited_for() noexcept VIGIL_EXCLUDES(lock_);

  // For tests.
  std::size_t children() const noexcept VIGIL_EXCLUDES(lock_);
  std::size_t waiters() const noexcept VIGIL_EXCLUDES(lock_);

  virtual void keep() noexcept = 0;
  virtual void let_go() noexcept = 0;

 protected:
  ~stop_node() = default;

  // Somebody waits in the channel of its end, or nobody does any more. Caller: holds
  // the channel's lock.
  void channel_is_waited_in(bool now) noexcept {
    // ordering: read by who has seen all workers asleep.
    waited_in_channel_.store(now, internal::relaxed);
  }

 private:
  class marked;

  // False if the last who kept it has let go: it is about to leave.
  virtual bool try_keep() noexcept = 0;
  // It has ended. Called once, without a lock, by who cancelled.
  virtual void told() noexcept = 0;

  void mark(internal::stop_state state, const std::exception_ptr& cause, marked& all) noexcept
      VIGIL_REQUIRES(lock_);
  void end_waits() noexcept VIGIL_EXCLUDES(lock_);

  internal::atomic<internal::stop_state> state_{internal::stop_state::open};
  internal::atomic<bool> waited_in_channel_{false};
  bool to_be_told_ VIGIL_GUARDED_BY(lock_) = false;
  bool has_token_ VIGIL_GUARDED_BY(lock_) = false;
  mutable internal::spinlock lock_{internal::lock_rank::stop_tree};
  stop_node* above_ = nullptr;
  internal::list_hook<stop_node> among_children_;  // guarded by the lock of above_
  stop_node* next_marked_ = nullptr;
  internal::far_list<internal::queued_waiter> waiters_ VIGIL_GUARDED_BY(lock_);
  internal::list<internal::stop_callback, &internal::stop_callback::hook>
      callbacks_ VIGIL_GUARDED_BY(lock_);
  std::exception_ptr cause_;  // written once, before state_

 public:
  using child_list = internal::list<stop_node, &stop_node::among_children_>;

 private:
  child_list children_ VIGIL_GUARDED_BY(lock_);
};

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil

namespace vigil::internal {

// Of a node whose deadline has passed: equivalent to errc::timed_out, whose own text,
// "Connection timed out", is TCP's.
std::error_code deadline_passed() noexcept;

// What a wait under a node that is done does: throws `cancelled`.
[[noreturn]] VIGIL_FOR_IO void throw_cancelled(const stop_node& node);

}  // namespace vigil::internal
