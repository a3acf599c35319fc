// The end of an operation, and the fiber's wait for it: OP1 and OP2 of operation.hpp.
// This file knows no executor, so that the explorer can run it.
#include "core/sched/call/caller.hpp"
#include "io/operation.hpp"

#include <new>
#include <utility>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;

namespace {

// The comment on `ending` says why it is a type of its own.
ending ending_of(outcome result) noexcept {
  switch (result) {
    case outcome::timeout:
      return ending::cut;
    case outcome::cancelled:
      return ending::cancelled;
    case outcome::stopped:
      return ending::stopped;
    default:
      return ending::completed;
  }
}

}  // namespace

bool is_done(operation& o) noexcept {
  const lock_guard guard(o.lock);
  return o.done;
}

waiter* claim(operation& o) noexcept {
  open_wait* const w = std::exchange(o.waiting, nullptr);
  return w != nullptr && w->claim(outcome::value) ? w->whose : nullptr;
}

void set_done(operation& o) noexcept {
  waiter* claimed = nullptr;
  {
    const lock_guard guard(o.lock);
    o.done = true;
    claimed = claim(o);
  }
  if (claimed != nullptr) deliver_in_order(*claimed);
}

namespace {

// As shown_object.hpp has it: a later step may have another object.
const void* shown_place(const operation& o) noexcept {
  if (o.object.load(order::relaxed) == nullptr) return nullptr;  // ordering: for dumps alone
  return reinterpret_cast<const std::byte*>(&o.object) + 2;
}

}  // namespace

ending wait_once(operation& o, const wait_limit& limit) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  caller self(limit);
  const bool refused = self.may_not_wait();
  o.lock.lock();
  if (o.done || refused || std::exchange(o.looks_again, false)) {
    const bool stops = !o.done && refused;
    o.lock.unlock();
    return stops ? ending::stopped : ending::completed;
  }
  open_wait own;
  self.open(own);
  o.waiting = &own;
  o.lock.unlock();
  ending result = ending::completed;
  try {
    result = ending_of(self.wait(own.opened, {wait_reason::io, shown_place(o)}));
  } catch (const std::bad_alloc&) {
    // No memory for a timer; a limit that is already over does not need one.
    result = limit.is_over() ? ending::cut : ending::no_memory;
  }
  const lock_guard guard(o.lock);
  o.waiting = nullptr;
  o.looks_again = false;
  return result;
}

void wait_for_handler(operation& o) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  for (;;) {
    caller self(caller::unstoppable);
    o.lock.lock();
    if (o.done) {
      o.lock.unlock();
      return;
    }
    open_wait own;
    self.open(own);
    o.waiting = &own;
    o.lock.unlock();
    self.wait(own.opened, {wait_reason::io, shown_place(o)});
  }
}

void throw_ended(ending result, ::vigil::detail::cancel_node* under) {
  switch (result) {
    case ending::stopped:
      throw_stopped(*current_fiber());
    case ending::no_memory:
      throw std::bad_alloc();
    default:
      throw_cancelled(*under);
  }
}

}  // namespace VIGIL_IO_DETAIL
