#include "cancel/context_core.hpp"
#include "sched/run/process.hpp"
#include "timer/timer_service.hpp"

#include <vigil/error.hpp>
#include <vigil/time.hpp>
#include <vigil/timer.hpp>

#include <algorithm>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

using detail::cancel_state;
using detail::current_fiber;
using detail::lock_guard;
using detail::nanos;
using detail::never;
using detail::run_phase;
using detail::scheduler;
using detail::timer_service;

namespace {

// The one that is never done.
context_core& plain_background() {
  static auto& made = *new value_context(nullptr, nullptr, never);
  return made;
}

context_core* kept(context_core& c) noexcept {
  c.keep();
  return &c;
}

// A handle that is given back unless it is released.
class owned_context {
 public:
  explicit owned_context(cancel_context* owned) noexcept : core_(owned) {}

  ~owned_context() {
    if (core_ != nullptr) core_->let_go();
  }

  owned_context(const owned_context&) = delete;
  owned_context& operator=(const owned_context&) = delete;

  cancel_context* operator->() const noexcept { return core_; }

  context_core* release() noexcept { return std::exchange(core_, nullptr); }

 private:
  cancel_context* core_;
};

cancel_context* new_child(context_core& parent) {
  auto* const made = new cancel_context(&parent);
  parent.keep();  // CX1
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

// CX1
void context_core::let_go() noexcept {
  for (context_core* c = this; c != nullptr && c->drop();) {
    context_core* const above = std::exchange(c->parent, nullptr);
    c->destroy();
    c = above;
  }
}

void value_context::keep() noexcept {
  // ordering: made from a handle that the caller holds.
  handles_.fetch_add(1, detail::relaxed);
}

bool value_context::drop() noexcept {
  // Pairs with the other decrements: the last one sees all that was done.
  return handles_.fetch_sub(1, detail::acq_rel) == 1;
}

void value_context::destroy() noexcept {
  if (destroy_value != nullptr) destroy_value(value);
  delete this;
}

void weak_context::cancel(cancel_state state, const std::exception_ptr& cause) noexcept {
  cancel_context* found = nullptr;
  {
    const lock_guard guard(lock);
    if (target != nullptr && target->try_keep()) found = target;
  }
  if (found == nullptr) return;
  found->cancel_node::cancel(state, cause);
  found->let_go();
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

cancel_context::cancel_context(context_core* above)
    : context_core(above, this, above != nullptr ? above->deadline : never),
      channel_core(ops_of<void>, 0) {
  source = this;
  if (above == nullptr) return;
  clock = above->clock;
  timed_by = above->timed_by;
}

bool cancel_context::try_keep() noexcept {
  // ordering: the compare-exchange decides, and takes part in the decrements'
  // release sequence; what is touched with the handle is under locks.
  std::size_t seen = handles.load(detail::relaxed);
  while (seen != 0) {
    if (handles.compare_exchange_weak(seen, seen + 1)) return true;
  }
  return false;
}

bool cancel_context::drop() noexcept {
  // Pairs with the other decrements: the last one sees all that was done.
  return handles.fetch_sub(1, detail::acq_rel) == 1;
}

void cancel_context::end() noexcept {
  context_core* const above = std::exchange(parent, nullptr);
  destroy();
  if (above != nullptr) above->let_go();
}

void cancel_context::destroy() noexcept {
  leave();  // N3 of cancel_tree.hpp
  if (link_ != nullptr) {
    const lock_guard guard(link_->lock);
    link_->target = nullptr;
  }
  heard_.reset();
  if (timer_ != nullptr) {
    detail::stop(timer_);
    drop_handle(timer_);
  }
  delete token_.load();
  delete this;
}

// --- its making

const std::shared_ptr<weak_context>& cancel_context::weak() {
  if (link_ == nullptr) {
    link_ = std::make_shared<weak_context>();
    const lock_guard guard(link_->lock);
    link_->target = this;
  }
  return link_;
}

void cancel_context::arm(nanos at, std::exception_ptr cause) {
  timer_service& service = detail::current_service(
      "with_deadline",
      "a context with a deadline needs a runtime's timer, and this thread has no runtime; make it "
      "on a fiber, or use with_cancel");
  // A function of ours, but what it ends may destroy the user's: so it is a
  // callback, for a fiber.
  timer_ = service.make_record(
      callback([link = weak(), why = cause] { link->cancel(cancel_state::timed_out, why); }),
      0,
      false,
      site{"vigil::with_deadline", 0});
  timer_->referenced.store(false);
  deadline = at;
  clock = deadline_clock::read_in(service.sched());
  timed_by = this;
  late_ = std::move(cause);
  want_on_done();
  service.reset_at(*timer_, deadline);
  if (is_done()) detail::stop(timer_);  // by its parent, before it asked
}

bool cancel_context::is_pending_in(const scheduler* here) const noexcept {
  return here != nullptr && timer_->service->sched() == here &&
         timer_->service->is_of_this_run(*timer_) && timer_->when.load() > 0;
}

// Virtual time stands still, or is over, for callers that are not in it.
bool cancel_context::has_passed_elsewhere() const noexcept {
  return clock == deadline_clock() && deadline <= detail::monotonic_now();
}

void cancel_context::listen(std::stop_token t) {
  heard_ = std::make_unique<std::stop_callback<cancel_from_token>>(std::move(t),
                                                                   cancel_from_token{weak()});
}

// --- its end

channel_core* cancel_context::done_channel() noexcept {
  want_on_done();
  keep();
  return this;
}

// The flag first, then the source, then the look; on_done() is called after the node is
// done, and looks for the source (N6 of cancel_tree.hpp).
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

void add_handle(context_core* c) noexcept {
  c->keep();
}

void drop_handle(context_core* c) noexcept {
  c->let_go();
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

// The first fiber that asks makes its runtime's. The runtime's end lets go of it
// when no fiber is left, so a fiber may take a handle.
context_core* background() {
  const detail::fiber* const self = current_fiber();
  if (self == nullptr) return kept(plain_background());
  scheduler& sched = *self->sched;
  cancel_node* root = sched.end.root.load();
  if (root == nullptr) {
    auto* const fresh = new cancel_context(nullptr);
    if (sched.end.root.compare_exchange_strong(root, fresh)) {
      root = fresh;
      // Who begins the shutdown changes the phase and then looks for the root.
      if (sched.state.phase() >= run_phase::ending) root->cancel(cancel_state::shutdown, nullptr);
    } else {
      fresh->let_go();
    }
  }
  return kept(*static_cast<cancel_context*>(root));
}

context_core* with_cancel(context_core* parent) {
  return new_child(checked(parent, "with_cancel"));
}

context_core* with_deadline(context_core* parent, std::int64_t deadline, std::exception_ptr cause) {
  context_core& above = checked(parent, "with_deadline");
  const cancel_context* const timed = above.timed_by;
  scheduler* const here = detail::current_scheduler();
  const auto clock = deadline_clock::read_in(here);
  const bool is_on_one_clock = above.deadline == never || above.clock == clock;  // CX4
  const bool has_own = deadline != never;
  owned_context made(new_child(above));
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
      if (timed->is_pending_in(here)) return made.release();
      deadline = above.deadline;
      cause = timed->cause_of_deadline();
    }
  }
  if (!is_late && deadline <= now()) {
    is_late = true;
    made->deadline = deadline;
    made->clock = clock;
  }
  if (is_late) {
    made->cancel_node::cancel(cancel_state::timed_out, cause);
  } else if (has_own || (deadline != never && here != nullptr)) {
    made->arm(deadline, std::move(cause));
  }
  return made.release();
}

context_core* with_timeout(context_core* parent, std::int64_t timeout, std::exception_ptr cause) {
  return with_deadline(parent, detail::saturating_add(now(), timeout), std::move(cause));
}

context_core* with_stop_token(context_core* parent, std::stop_token token) {
  owned_context made(new_child(checked(parent, "with_stop_token")));
  made->listen(std::move(token));
  return made.release();
}

context_core* without_cancel(context_core* parent) {
  context_core& above = checked(parent, "without_cancel");
  auto* const made = new value_context(&above, nullptr, never);
  above.keep();
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
    above.keep();
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

}  // namespace vigil::inline VIGIL_ABI::detail
