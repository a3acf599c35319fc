#include "core/sched/wait/cancel_tree.hpp"

#include "core/sched/wait/wake_list.hpp"

#include <vigil/error.hpp>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

namespace VIGIL_DETAIL {

void cancel_node::tell(marked& all) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  for (cancel_node* n = all.front(); n != nullptr; n = n->next_marked_)
    n->end_waits();
  for (cancel_node* n = all.front(); n != nullptr; n = n->next_marked_) {
    if (n->wants_on_done_) n->on_done();  // CN1: the flag changes no more
  }
  while (cancel_node* const n = all.pop_front()) {
    while (cancel_callback* const c = n->callbacks_.pop_front())  // CN1: ours alone
      c->run(*c);
    n->release();
  }
}

void cancel_node::mark(cancel_state state, const std::exception_ptr& cause, marked& all) noexcept {
  cause_ = cause;
  state_.store(state);  // CN6: the cause is seen with it
  // CN7: if it cannot be kept, nothing waits under it.
  const bool heard_of = wants_on_done_ || !waiters_.empty() || !callbacks_.empty();
  if (heard_of && try_retain()) all.push_back(*this);
}

void cancel_node::end_waits() noexcept {
  for (bool more = true; more;) {
    wake_list claimed;
    {
      const lock_guard guard(lock_);
      claimed.take(waiters_, [](queued_waiter& w) { return w.claim(outcome::cancelled); });
      more = !waiters_.empty();
    }
    claimed.deliver_together();
  }
}

void cancel_node::cancel(cancel_state state,
                         const std::exception_ptr& cause) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  marked all;
  lock_.lock();
  if (is_done()) {  // CN2
    lock_.unlock();
    return;
  }
  mark(state, cause, all);
  for (cancel_node* at = this;;) {
    if (cancel_node* const child = at->children_.front()) {
      child->lock_.lock_beside();
      if (!child->is_done()) {
        child->mark(state, cause, all);
        at = child;
        continue;
      }
      // The child was cancelled by itself, and is not gone yet.
      child->lock_.unlock();
      at->children_.remove(*child);
      continue;
    }
    if (at == this) break;
    // CN3: until it is out of the list it cannot die.
    cancel_node* const above = at->above_;
    at->lock_.unlock();
    above->children_.remove(*at);
    at = above;
  }
  lock_.unlock();
  leave();
  tell(all);
}

bool cancel_node::begin_wait(queued_waiter& w) noexcept {
  {
    const lock_guard guard(lock_);
    if (!is_done()) {  // CN1
      waiters_.push_back(w);
      return true;
    }
  }
  return !w.claim(outcome::cancelled);
}

// CN4. The thread that cancels takes the waiter out before it delivers.
void cancel_node::end_wait(queued_waiter& w) noexcept {
  if (w.whose->outcome() == outcome::cancelled) return;
  const lock_guard guard(lock_);
  if (w.hook.linked) waiters_.remove(w);
}

bool cancel_node::link(cancel_callback& c) noexcept {
  const lock_guard guard(lock_);
  if (is_done()) return false;
  callbacks_.push_back(c);
  return true;
}

bool cancel_node::unlink(cancel_callback& c) noexcept {
  const lock_guard guard(lock_);
  // Once the node is done, the callback is in the hands of the thread that cancelled.
  if (is_done() || !c.hook.linked) return false;
  callbacks_.remove(c);
  return true;
}

void cancel_node::hang_below(cancel_node& above) noexcept {
  const lock_guard guard(above.lock_);
  if (above.is_done()) {
    cause_ = above.cause_;
    state_.store(above.state());
    return;
  }
  above_ = &above;
  above.children_.push_back(*this);
}

void cancel_node::leave() noexcept {
  if (above_ == nullptr) return;
  const lock_guard guard(above_->lock_);
  if (among_children_.linked) above_->children_.remove(*this);
}

void cancel_node::want_on_done() noexcept {
  const lock_guard guard(lock_);
  if (!is_done()) wants_on_done_ = true;
}

void cancel_node::token_is_given() noexcept {
  const lock_guard guard(lock_);
  has_token_ = true;
}

// Walks from the top down, as cancel() does, with the locks on the path (CN3).
bool cancel_node::is_waited_for() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  lock_.lock();
  bool found = false;
  cancel_node* at = this;
  for (;;) {
    cancel_node* next = nullptr;
    if (!at->is_done()) {  // else its waits are being ended
      // ordering: all threads that change it are asleep, and changed it before.
      found = !at->waiters_.empty() || !at->callbacks_.empty() || at->has_token_ ||
              at->waited_in_channel_.load(order::relaxed);
      next = at->children_.front();
    }
    while (at != this && (found || next == nullptr)) {
      next = child_list::next(*at);
      cancel_node* const above = at->above_;
      at->lock_.unlock();
      at = above;
    }
    if (found || next == nullptr) break;
    next->lock_.lock_beside();
    at = next;
  }
  lock_.unlock();
  return found;
}

cancel_node::inside cancel_node::look_inside() const noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  inside i;
  i.is_at_rest = lock_.try_lock();
  if (i.is_at_rest) lock_.unlock();
  i.above = above_;
  i.first_child = children_.front();
  i.links[0] = &above_;
  i.links[1] = &callbacks_;
  i.children[0] = &children_;
  i.children[1] = &children_ + 1;
  return i;
}

std::size_t cancel_node::children() const noexcept {
  const lock_guard guard(lock_);
  return children_.size();
}

std::size_t cancel_node::waiters() const noexcept {
  const lock_guard guard(lock_);
  return waiters_.size();
}

void retain(cancel_node* node) noexcept {
  node->retain();
}

void release(cancel_node* node) noexcept {
  node->release();
}

namespace {

// The generic category in all but the message.
class context_category final : public std::error_category {
 public:
  const char* name() const noexcept override { return "vigil.context"; }

  std::string message(int code) const override {
    return code == ETIMEDOUT ? "the context has passed its deadline"
                             : std::generic_category().message(code);
  }

  std::error_condition default_error_condition(int code) const noexcept override {
    return {code, std::generic_category()};
  }
};

}  // namespace

std::error_code deadline_passed() noexcept {
  static const context_category category;
  return {ETIMEDOUT, category};
}

void throw_cancelled(const cancel_node& node) {
  switch (node.state()) {
    case cancel_state::timed_out:
      throw cancelled(deadline_passed(), "vigil: the wait is cancelled", node.cause());
    case cancel_state::shutdown:
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

}  // namespace VIGIL_DETAIL
