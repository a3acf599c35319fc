#include "sched/stop_tree.hpp"

#include "sched/scheduler.hpp"

#include <vigil/error.hpp>

#include <system_error>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::fiber;
using internal::lock_guard;
using internal::outcome;
using internal::stop_callback;
using internal::stop_state;
using internal::stop_waiter;
using internal::waiter;

// What a cancel has collected under the locks, to be dealt with without them.
struct stop_node::spoils {
  internal::list<stop_waiter, &stop_waiter::hook> waiters;
  internal::list<stop_callback, &stop_callback::hook> callbacks;
  stop_node* told = nullptr;
  stop_node** last_told = &told;

  void deal() noexcept;

 private:
  void ready_waiters() noexcept;
};

namespace {

// Who waits lies on a stack of his own, long out of the cache: asks for the entry
// after the next one, and for what will be touched of the next one's owner.
void prefetch_after(const stop_waiter* next) noexcept {
  if (next == nullptr) return;
  __builtin_prefetch(next->hook.after, 1);
  __builtin_prefetch(next->who, 1);
  if (next->who->what() == waiter::kind::of_fiber)
    __builtin_prefetch(&next->who->as_fiber().park_state, 1);
}

}  // namespace

// The fibers of this thread's runtime a few dozen at a time, the others one by one.
void stop_node::spoils::ready_waiters() noexcept {
  constexpr std::size_t at_once = 64;
  internal::fiber_chain here;
  const internal::worker* const w = internal::current_worker();
  while (stop_waiter* const s = waiters.pop_front()) {
    waiter& who = *s->who;  // the last look at s: its owner goes on
    prefetch_after(waiters.front());
    if (here.size() == at_once) here.front()->sched->ready_all(here);
    if (w != nullptr && who.what() == waiter::kind::of_fiber && who.as_fiber().sched == &w->sched) {
      here.push_back(who.as_fiber());
    } else {
      who.deliver(internal::turn::in_order);
    }
  }
  if (!here.empty()) here.front()->sched->ready_all(here);
}

void stop_node::spoils::deal() noexcept {
  ready_waiters();
  while (stop_node* const n = told) {
    told = n->next_told_;
    n->told();
    n->let_go();
  }
  while (stop_callback* const c = callbacks.pop_front())
    c->run(*c);
}

void stop_node::mark(stop_state how, const std::exception_ptr& cause, spoils& s) noexcept {
  cause_ = cause;
  state_.store(how);  // N6; who sees it sees the cause
  while (stop_waiter* const w = waiters_.pop_front()) {
    if (const stop_waiter* const next = waiters_.front()) {
      __builtin_prefetch(next->hook.after, 1);
      __builtin_prefetch(next->who, 1);
    }
    if (w->who->claim(w->which, outcome::cancelled)) s.waiters.push_back(*w);
  }
  while (stop_callback* const c = callbacks_.pop_front())
    s.callbacks.push_back(*c);
  if (to_be_told_ && try_keep()) {
    *s.last_told = this;
    s.last_told = &next_told_;
  }
}

void stop_node::cancel(stop_state how,
                       const std::exception_ptr& cause) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  spoils s;
  lock_.lock();
  if (is_done()) {  // N2
    lock_.unlock();
    return;
  }
  mark(how, cause, s);
  for (stop_node* at = this;;) {
    if (stop_node* const child = at->children_.front()) {
      child->lock_.lock_beside();
      if (!child->is_done()) {
        child->mark(how, cause, s);
        at = child;
        continue;
      }
      // Cancelled by itself, and not yet gone.
      child->lock_.unlock();
      at->children_.remove(*child);
      continue;
    }
    if (at == this) break;
    // N3: until it is out of the list it cannot die.
    stop_node* const above = at->above_;
    at->lock_.unlock();
    above->children_.remove(*at);
    at = above;
  }
  lock_.unlock();
  leave();
  s.deal();
}

bool stop_node::link(stop_waiter& w) noexcept {
  const lock_guard guard(lock_);
  if (is_done()) return false;  // N1
  waiters_.push_back(w);
  return true;
}

void stop_node::unlink(stop_waiter& w) noexcept {
  const lock_guard guard(lock_);
  if (w.hook.linked) waiters_.remove(w);
}

bool stop_node::link(stop_callback& c) noexcept {
  const lock_guard guard(lock_);
  if (is_done()) return false;
  callbacks_.push_back(c);
  return true;
}

bool stop_node::unlink(stop_callback& c) noexcept {
  const lock_guard guard(lock_);
  // Once it is done, the callback is in the hand of who cancelled.
  if (is_done() || !c.hook.linked) return false;
  callbacks_.remove(c);
  return true;
}

void stop_node::hang_below(stop_node& above) noexcept {
  const lock_guard guard(above.lock_);
  if (above.is_done()) {
    cause_ = above.cause_;
    state_.store(above.state());
    return;
  }
  above_ = &above;
  above.children_.push_back(*this);
}

void stop_node::leave() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  if (above_ == nullptr) return;
  const lock_guard guard(above_->lock_);
  if (among_children_.linked) above_->children_.remove(*this);
}

void stop_node::ask_to_be_told() noexcept {
  const lock_guard guard(lock_);
  to_be_told_ = true;
}

std::size_t stop_node::children() const noexcept {
  const lock_guard guard(lock_);
  return children_.size();
}

std::size_t stop_node::waiters() const noexcept {
  const lock_guard guard(lock_);
  return waiters_.size();
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil

namespace vigil::internal {

void throw_cancelled(const stop_node& node) {
  switch (node.state()) {
    case stop_state::timed_out:
      throw cancelled(std::make_error_code(std::errc::timed_out),
                      "vigil: the wait's context has passed its deadline",
                      node.cause());
    case stop_state::shutdown:
      throw cancelled(std::make_error_code(std::errc::operation_canceled),
                      "vigil: the runtime is shutting down",
                      node.cause(),
                      true);
    default:
      throw cancelled(std::make_error_code(std::errc::operation_canceled),
                      "vigil: the wait's context was cancelled",
                      node.cause());
  }
}

}  // namespace vigil::internal
