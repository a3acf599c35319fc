#include "core/chan/channel_core.hpp"

#include "core/sched/call/caller.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/turn_budget.hpp"

#include <vigil/channel.hpp>
#include <vigil/error.hpp>

#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

namespace VIGIL_DETAIL {

namespace {

void move_value(const element_ops& ops, void* to, void* from) noexcept {
  if (ops.move != nullptr) {
    ops.move(to, from);
    return;
  }
  switch (ops.size) {  // only the other sizes cost a call
    case 0:
      return;
    case 4:
      std::memcpy(to, from, 4);
      return;
    case 8:
      std::memcpy(to, from, 8);
      return;
    default:
      std::memcpy(to, from, ops.size);
  }
}

void destroy_value(const element_ops& ops, void* value) noexcept {
  if (ops.destroy != nullptr) ops.destroy(value);
}

}  // namespace

channel_core::channel_core(const element_ops& operations, std::size_t capacity, const site& from)
    : ops(operations), made_at(from), capacity_(capacity) {
  constexpr std::size_t most = std::numeric_limits<std::ptrdiff_t>::max();
  std::size_t bytes = 0;
  if (__builtin_mul_overflow(capacity, ops.size, &bytes) || capacity > most || bytes > most) {
    throw std::length_error(
        "vigil::make_channel: no machine has memory for a buffer of that capacity; give the number "
        "of values that may wait, 0 for none");
  }
  if (bytes != 0) {
    ring_ = static_cast<std::byte*>(::operator new(bytes, std::align_val_t(ops.align)));
  }
}

channel_core::~channel_core() {
  for (std::size_t i = 0; i < size_; ++i)
    destroy_value(ops, slot(i));
  if (ring_ != nullptr) ::operator delete(ring_, std::align_val_t(ops.align));
}

// The i-th value from the front, or the i-th place behind it.
std::byte* channel_core::slot(std::size_t i) const noexcept {
  std::size_t at = first_ + i;
  if (at >= capacity_) at -= capacity_;
  return ring_ + at * ops.size;
}

queued_case* channel_core::claim_first(case_queue& queue) noexcept {
  while (queued_case* const c = queue.pop_front()) {
    if (c->claim(outcome::value)) return c;
  }
  return nullptr;
}

last_users& channel_core::users() noexcept {
  return static_cast<named_channel*>(this)->users;
}

attempt channel_core::send_now(void* value) noexcept {
  if ((marks_ & (closed | remembers)) != 0) [[unlikely]]
    return send_noted(value);
  return send_open(value);
}

attempt channel_core::send_noted(void* value) noexcept {
  if ((marks_ & closed) != 0) return {channel_status::closed};
  const attempt done = send_open(value);
  if (done.status == channel_status::ok) users().gave(nullptr);
  if (done.peer != nullptr) users().took(done.peer);
  return done;
}

attempt channel_core::send_open(void* value) noexcept {
  if (!receivers_.empty()) {
    if (queued_case* const c = claim_first(receivers_)) {
      move_value(ops, c->value, value);
      return {channel_status::ok, c->whose};
    }
  }
  if (size_ == capacity_) return {channel_status::not_ready};
  move_value(ops, slot(size_), value);
  ++size_;
  return {channel_status::ok};
}

attempt channel_core::recv_now(void* into) noexcept {
  if (size_ != 0) {
    std::byte* const front = slot(0);
    move_value(ops, into, front);
    destroy_value(ops, front);
    if (++first_ == capacity_) first_ = 0;
    --size_;
    if (marks_ == 0) return {channel_status::ok};
    return let_sender_in();
  }
  return recv_empty(into);
}

// The same if no value is there.
attempt channel_core::recv_empty(void* into) noexcept {
  if (!senders_.empty() && marks_ == crowded) {
    if (queued_case* const c = claim_first(senders_)) {
      move_value(ops, into, c->value);
      return {channel_status::ok, c->whose};
    }
  }
  if (source != nullptr) {
    if (source->take(into)) return {channel_status::ok};
    if (source->has_ended()) return {channel_status::closed};
  }
  if ((marks_ & (closed | remembers)) == 0) return {channel_status::not_ready};
  return recv_noted(into);
}

// Ends a receive that has made room for the first sender, if one waits and no close is
// ending its wait.
attempt channel_core::let_sender_in() noexcept {
  attempt done{channel_status::ok};
  if (queued_case* const c = first_sender()) {
    move_value(ops, slot(size_), c->value);
    ++size_;
    done.peer = c->whose;
  }
  if (senders_.empty()) marks_ &= static_cast<std::uint8_t>(~crowded);
  if ((marks_ & remembers) != 0) [[unlikely]]
    note_recv(done.peer);
  return done;
}

attempt channel_core::recv_noted(void* into) noexcept {
  if (queued_case* const c = first_sender()) {
    move_value(ops, into, c->value);
    note_recv(c->whose);
    return {channel_status::ok, c->whose};
  }
  return {(marks_ & closed) != 0 ? channel_status::closed : channel_status::not_ready};
}

// The first sender whose wait is not being ended by a close.
queued_case* channel_core::first_sender() noexcept {
  return (marks_ & closed) != 0 ? nullptr : claim_first(senders_);
}

void channel_core::note_recv(const waiter* sender) noexcept {
  users().took(nullptr);
  if (sender != nullptr) users().gave(sender);
}

bool channel_core::enqueue(direction d, queued_case& c) {
  const bool is_first = d == direction::recv && receivers_.empty();
  try {
    if (is_first && source != nullptr) source->somebody_waits();
  } catch (const runtime_gone&) {
    return false;
  }
  if (d == direction::send) marks_ |= crowded;
  (d == direction::send ? senders_ : receivers_).push_back(c);
  return true;
}

void channel_core::dequeue(direction d, queued_case& c) noexcept {
  if (!c.hook.linked) return;
  (d == direction::send ? senders_ : receivers_).remove(c);
  const bool was_last = d == direction::recv && receivers_.empty();
  if (was_last && source != nullptr) source->nobody_waits();
}

bool channel_core::close() noexcept {
  {
    const lock_guard guard(lock);
    if ((marks_ & closed) != 0) return false;
    marks_ |= closed;
  }
  dismiss_all();
  return true;
}

void channel_core::dismiss_all() noexcept {
  const auto claim = [](queued_case& c) { return c.claim(outcome::closed); };
  for (bool more = true; more;) {
    wake_list claimed;
    {
      const lock_guard guard(lock);
      claimed.take(receivers_.empty() ? senders_ : receivers_, claim);
      more = !receivers_.empty() || !senders_.empty();
      if (!more && source != nullptr) source->nobody_waits();
    }
    claimed.deliver_together();
  }
}

std::size_t channel_core::size() const noexcept {
  const lock_guard guard(lock);
  return size_;
}

// --- the operations on one channel

namespace {

channel_status finish(channel_core& c, attempt done) noexcept VIGIL_RELEASE(c.lock) {
  c.lock.unlock();
  if (done.peer != nullptr) done.peer->deliver();
  return done.status;
}

// Waits as one case of one channel. Caller: holds the lock, which is released.
[[gnu::noinline]] channel_status wait_for_peer(channel_core& c,
                                               direction d,
                                               void* value,
                                               const wait_limit& limit) VIGIL_RELEASE(c.lock) {
  if (limit.is_relative()) {
    if (limit.is_over()) return finish(c, {channel_status::timeout});
  } else if (limit.is_timed()) {  // reads the clock, so not under the lock: another look follows
    c.lock.unlock();
    const bool over = limit.is_over();
    c.lock.lock();
    attempt done = c.try_now(d, value);
    if (over && done.status == channel_status::not_ready) done.status = channel_status::timeout;
    if (done.status != channel_status::not_ready) return finish(c, done);
  }
  caller self(limit);
  if (self.may_not_wait()) {
    c.lock.unlock();
    self.refuse(d == direction::send ? "channel::send" : "channel::recv");
  }
  const channel_handle kept = channel_handle::to(&c);  // CH5
  queued_case own;
  own.value = value;
  try {
    if (!c.enqueue(d, own)) return finish(c, {channel_status::closed});
  } catch (...) {
    c.lock.unlock();
    throw;
  }
  self.open(own);  // no thread sees the case before the lock is released
  c.lock.unlock();
  const auto reason = d == direction::send ? wait_reason::send : wait_reason::recv;
  const outcome result = self.wait(own.opened, {reason, &c}, [&]() noexcept {
    const lock_guard guard(c.lock);
    c.dequeue(d, own);
  });
  if (own.has_won) return own.ended_with();
  self.throw_if_ended(result);
  return channel_status::timeout;
}

channel_status operate_now(channel_core* c, direction d, void* value, const wait_limit& limit)
    VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  if (c == nullptr)
    return detail::wait_on_nothing(
        d == direction::send ? wait_reason::send_nil : wait_reason::recv_nil, limit);
  c->lock.lock();
  const attempt done = c->try_now(d, value);
  if (done.status != channel_status::not_ready) return finish(*c, done);
  return wait_for_peer(*c, d, value, limit);
}

// Gives way first. The caller's handle may be gone afterwards.
[[gnu::noinline]] channel_status operate_later(channel_core* c,
                                               direction d,
                                               void* value,
                                               const wait_limit& limit) {
  const channel_handle kept = channel_handle::to(c);
  const late_call late(limit);
  return operate_now(c, d, value, late.limit());
}

channel_status operate(channel_core* c, direction d, void* value, const wait_limit& limit) {
  if (spend_calls()) [[unlikely]]
    return operate_later(c, d, value, limit);
  return operate_now(c, d, value, limit);
}

}  // namespace

channel_status try_operate(channel_core* c, direction d, void* value) noexcept {
  if (c == nullptr) return channel_status::not_ready;
  c->lock.lock();
  return finish(*c, c->try_now(d, value));
}

channel_status send(channel_core* c, void* value, const wait_limit& limit) {
  return operate(c, direction::send, value, limit);
}

channel_status try_send(channel_core* c, void* value) noexcept {
  return try_operate(c, direction::send, value);
}

channel_status recv(channel_core* c, void* into, const wait_limit& limit) {
  return operate(c, direction::recv, into, limit);
}

channel_status try_recv(channel_core* c, void* into) noexcept {
  return try_operate(c, direction::recv, into);
}

// --- handles

channel_core* make_channel(const element_ops& ops, std::size_t capacity, const site& from) {
  if (from.name != 0) return new named_channel(ops, capacity, from);
  return new channel_core(ops, capacity, from);
}

void retain(channel_core* c) noexcept {
  // ordering: made from a handle that the caller holds.
  c->handles.fetch_add(1, order::relaxed);
}

void release(channel_core* c) noexcept {
  // Pairs with the other decrements: the last one sees all that was done.
  if (c->handles.fetch_sub(1, order::acq_rel) == 1) c->end();
}

void check_closable(const channel_core* c) {
  if (c != nullptr) return;
  throw std::logic_error(
      "vigil::channel::close: the channel is nil (default-constructed or moved from); make one "
      "with make_channel");
}

void close_at_end(channel_core* c) noexcept {
  c->close();
}

void close(channel_core* c) {
  check_closable(c);
  if (!c->close()) {
    throw channel_closed(
        "vigil::channel::close: the channel is closed already; let one place own the closing");
  }
}

std::size_t size(const channel_core* c) noexcept {
  return c == nullptr ? 0 : c->size();
}

std::size_t capacity(const channel_core* c) noexcept {
  return c == nullptr ? 0 : c->capacity();
}

void throw_send_on_closed() {
  throw channel_closed(
      "vigil::channel::send: the channel is closed, and the value was not sent; senders must be "
      "done before close(), or use try_send");
}

channel_status wait_on_nothing(wait_reason reason, const wait_limit& limit) {
  if (limit.is_over()) return channel_status::timeout;
  caller self(limit);
  if (self.may_not_wait()) self.refuse("channel");
  const outcome result = self.wait(self.open(), reason);
  self.throw_if_ended(result);
  return channel_status::timeout;
}

}  // namespace VIGIL_DETAIL
