#include "core/cancel/context_core.hpp"
#include "core/sched/call/record_here.hpp"
#include "core/sched/run_core.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>
#include <vigil/time.hpp>
#include <vigil/timer.hpp>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace VIGIL_DETAIL {

namespace {

// The background of plain threads, which is never done.
context_core& plain_background() {
  static auto& made = *new value_context(nullptr, nullptr, never);
  return made;
}

context_core* kept(context_core& c) noexcept {
  c.retain();
  return &c;
}

struct released {
  void operator()(cancel_context* c) const noexcept { c->release(); }
};

using owned_context = std::unique_ptr<cancel_context, released>;

cancel_context* new_child(context_core& parent, const site& from) {
  auto* const made = new cancel_context(&parent, from);
  parent.retain();  // CX1
  if (parent.node != nullptr) made->hang_below(*parent.node);
  return made;
}

}  // namespace

// --- handles

void throw_nil_context(const char* call) {
  throw std::invalid_argument(
      std::string("vigil::") + call +
      ": the context is nil (default-constructed or moved from); begin with background(), or with "
      "the context that the caller was given");
}

// Goes up one by one, not by recursion (CX1).
void context_core::release() noexcept {
  for (context_core* c = this; c != nullptr && c->release_one();) {
    context_core* const above = std::exchange(c->parent, nullptr);
    c->destroy();
    c = above;
  }
}

void value_context::retain() noexcept {
  // ordering: made from a handle that the caller holds.
  handles_.fetch_add(1, order::relaxed);
}

bool value_context::release_one() noexcept {
  // Pairs with the other decrements: the last one sees all that was done.
  return handles_.fetch_sub(1, order::acq_rel) == 1;
}

void value_context::destroy() noexcept {
  if (destroy_value != nullptr) destroy_value(value);
  delete this;
}

void weak_context::cancel(cancel_state state, const std::exception_ptr& cause) noexcept {
  cancel_context* found = nullptr;
  {
    const lock_guard guard(lock);
    if (target != nullptr && target->try_retain()) found = target;
  }
  if (found == nullptr) return;
  if (state == cancel_state::timed_out && !found->is_done()) record_missed_deadline();
  found->cancel_node::cancel(state, cause);
  found->release();
}

void cancel_from_token::operator()() const noexcept {
  // A copy: the cancel may end the context, and this function with it.
  const std::shared_ptr<weak_context> mine = link;
  mine->cancel(cancel_state::cancelled, nullptr);
}

deadline_clock deadline_clock::read_in(scheduler* s) noexcept {
  if (s == nullptr || !s->clock.is_virtual()) return {};
  return {&s->timers(), static_cast<const timer_service&>(s->timers()).generation()};
}

cancel_context::cancel_context(context_core* above, const site& from)
    : context_core(above, this, above != nullptr ? above->deadline : never),
      cancel_node(from),
      channel_core(ops_of<void>, 0, from) {
  source = this;
  if (above == nullptr) return;
  clock = above->clock;
  timed_by = above->timed_by;
}

void cancel_context::release() noexcept {
  context_core::release();
}

bool cancel_context::try_retain() noexcept {
  // ordering: the compare-exchange decides, and takes part in the decrements'
  // release sequence; what is touched with the handle is under locks.
  std::size_t seen = handles.load(order::relaxed);
  while (seen != 0) {
    if (handles.compare_exchange_weak(seen, seen + 1)) return true;
  }
  return false;
}

bool cancel_context::release_one() noexcept {
  // Pairs with the other decrements: the last one sees all that was done.
  return handles.fetch_sub(1, order::acq_rel) == 1;
}

void cancel_context::end() noexcept {
  context_core* const above = std::exchange(parent, nullptr);
  destroy();
  if (above != nullptr) above->release();
}

void cancel_context::destroy() noexcept {
  leave();  // CN3 of cancel_tree.hpp
  if (link_ != nullptr) {
    const lock_guard guard(link_->lock);
    link_->target = nullptr;
  }
  heard_.reset();
  if (timer_ != nullptr) {
    detail::stop(timer_);
    detail::release(timer_);
  }
  delete token_.load();
  delete this;
}

// --- making a context

const std::shared_ptr<weak_context>& cancel_context::weak() {
  if (link_ == nullptr) {
    link_ = std::make_shared<weak_context>();
    const lock_guard guard(link_->lock);
    link_->target = this;
  }
  return link_;
}

void cancel_context::arm(nanos at, std::exception_ptr cause) {
  timer_service& service = current_service(
      "with_deadline",
      "a context with a deadline needs the timers of one; make it on a fiber, or use with_cancel");
  // The function is the library's, but the waits and functions that it ends may destroy
  // the user's objects: so it is a callback, for a fiber.
  const auto passed = [link = weak(), cause] { link->cancel(cancel_state::timed_out, cause); };
  timer_ = service.make_record(callback(passed), 0, false, site{"vigil::with_deadline", 0});
  timer_->referenced.store(false);
  deadline = at;
  clock = deadline_clock::read_in(service.sched());
  timed_by = this;
  late_ = std::move(cause);
  want_on_done();
  service.reset_at(*timer_, deadline);
  if (is_done()) detail::stop(timer_);  // ended by its parent, before it asked
}

bool cancel_context::is_pending_in(const scheduler* here) const noexcept {
  return here != nullptr && timer_->service->sched() == here &&
         timer_->service->is_of_this_run(*timer_) && timer_->when.load() > 0;
}

// False for a deadline on virtual time, which stands still, or is over, for callers that
// are not in it.
bool cancel_context::has_passed_elsewhere() const noexcept {
  return clock == deadline_clock() && deadline <= monotonic_now();
}

void cancel_context::listen(std::stop_token t) {
  heard_ = std::make_unique<std::stop_callback<cancel_from_token>>(std::move(t),
                                                                   cancel_from_token{weak()});
}

// --- ending a context

channel_core* cancel_context::done_channel() noexcept {
  want_on_done();
  retain();
  return this;
}

// Sets the flag, then the source, and then looks; on_done() is called after the node is
// done, and looks for the source (CN6 of cancel_tree.hpp).
std::stop_token cancel_context::token() {
  want_on_done();
  token_is_given();
  std::stop_source* made = token_.load();
  if (made == nullptr) {
    auto fresh = std::make_unique<std::stop_source>();
    if (token_.compare_exchange_strong(made, fresh.get())) made = fresh.release();
  }
  std::stop_token result = made->get_token();
  if (is_done()) made->request_stop();
  return result;
}

void cancel_context::on_done() noexcept {
  dismiss_all();
  if (timer_ != nullptr) detail::stop(timer_);
  if (std::stop_source* const source_of_token = token_.load()) source_of_token->request_stop();
}

// --- what the handles call

void retain(context_core* c) noexcept {
  c->retain();
}

void release(context_core* c) noexcept {
  c->release();
}

cancel_node* cancel_node_of(const context& ctx) {
  return checked(ctx.core(), "context").node;
}

channel_core* done_of(const context& ctx) {
  cancel_node* const node = checked(ctx.core(), "context::done").node;
  return node == nullptr ? nullptr : static_cast<cancel_context*>(node)->done_channel();
}

bool is_done(const context_core* c) {
  const cancel_node* const node = checked(c, "context::is_done").node;
  return node != nullptr && node->is_done();
}

std::error_code error_of(const context_core* c) {
  const cancel_node* const node = checked(c, "context::error").node;
  if (node == nullptr) return {};
  switch (node->state()) {
    case cancel_state::open:
      return {};
    case cancel_state::timed_out:
      return detail::deadline_passed();
    default:
      return std::make_error_code(std::errc::operation_canceled);
  }
}

std::exception_ptr cause_of(const context_core* c) {
  const cancel_node* const node = checked(c, "context::cause").node;
  if (node == nullptr || !node->is_done()) return nullptr;
  if (node->cause() != nullptr) return node->cause();
  try {
    detail::throw_cancelled(*node);
  } catch (...) {
    return std::current_exception();
  }
}

std::int64_t deadline_of_context(const context_core* c) {
  return checked(c, "context::deadline").deadline;
}

const void* value_of(const context_core* c, const void* key) {
  for (const context_core* at = &checked(c, "context::value"); at != nullptr; at = at->parent) {
    if (at->key == key) return at->value;
  }
  return nullptr;
}

// The first fiber that asks makes its runtime's root. The runtime's end lets go of the
// root when no fiber is left, so a fiber may take a handle.
context_core* background() {
  const fiber* const self = current_fiber();
  if (self == nullptr) return kept(plain_background());
  scheduler& sched = *self->sched;
  cancel_node* root = run_of(sched).end.root.load();
  if (root == nullptr) {
    auto* const fresh = new cancel_context(nullptr, site{"vigil::background", 0});
    if (run_of(sched).end.root.compare_exchange_strong(root, fresh)) {
      root = fresh;
      // The thread that begins the shutdown changes the phase and then looks for the
      // root.
      if (sched.state.phase() >= run_phase::ending) root->cancel(cancel_state::shutdown, nullptr);
    } else {
      fresh->release();
    }
  }
  return kept(*static_cast<cancel_context*>(root));
}

context_core* with_cancel(context_core* parent, const site& from) {
  return new_child(checked(parent, "with_cancel"), from);
}

context_core* with_deadline(context_core* parent,
                            std::int64_t deadline,
                            std::exception_ptr cause,
                            const site& from) {
  context_core& above = checked(parent, "with_deadline");
  const cancel_context* const timed = above.timed_by;
  scheduler* const here = current_scheduler();
  const auto clock = deadline_clock::read_in(here);
  const bool is_on_one_clock = above.deadline == never || above.clock == clock;  // CX4
  const bool has_own = deadline != never;
  owned_context made(new_child(above, from));
  if (made->is_done()) {
    if (has_own) {
      made->deadline = is_on_one_clock ? std::min(deadline, above.deadline) : deadline;
      made->clock = clock;
    }
    return made.release();
  }
  bool is_late = false;
  if (timed != nullptr) {
    if (!is_on_one_clock) {
      is_late = timed->has_passed_elsewhere();
      if (is_late) cause = timed->cause_of_deadline();
    } else if (above.deadline <= deadline) {
      if (timed->is_pending_in(here) && above.deadline > now()) return made.release();
      deadline = above.deadline;
      cause = timed->cause_of_deadline();
    }
  }
  is_late = is_late || deadline <= now();
  if (is_late) {
    if (deadline != never) {
      made->deadline = deadline;
      made->clock = clock;
    }
    record_missed_deadline();
    made->cancel_node::cancel(cancel_state::timed_out, cause);
  } else if (has_own || (deadline != never && here != nullptr)) {
    made->arm(deadline, std::move(cause));
  }
  return made.release();
}

context_core* with_stop_token(context_core* parent, std::stop_token token, const site& from) {
  owned_context made(new_child(checked(parent, "with_stop_token"), from));
  made->listen(std::move(token));
  return made.release();
}

context_core* without_cancel(context_core* parent) {
  context_core& above = checked(parent, "without_cancel");
  auto* const made = new value_context(&above, nullptr, never);
  above.retain();
  return made;
}

context_core* with_value(context_core* parent,
                         const void* key,
                         void* value,
                         void (*destroy)(void*) noexcept) {
  value_context* made = nullptr;
  try {
    context_core& above = checked(parent, "with_value");
    made = new value_context(&above, above.node, above.deadline);
    made->clock = above.clock;
    made->timed_by = above.timed_by;
    above.retain();
  } catch (...) {
    destroy(value);
    throw;
  }
  made->key = key;
  made->value = value;
  made->destroy_value = destroy;
  return made;
}

void cancel(context_core* c, const std::exception_ptr& cause) noexcept {
  c->node->cancel(cancel_state::cancelled, cause);
}

std::stop_token stop_token_of(context_core* c) {
  cancel_node* const node = checked(c, "stop_token_of").node;
  return node == nullptr ? std::stop_token() : static_cast<cancel_context*>(node)->token();
}

}  // namespace VIGIL_DETAIL
