#include "core/sync/wait_queue.hpp"

#include <stdexcept>
#include <string>

namespace VIGIL_DETAIL {

void queue_ref::push_back(queued_wait& w) const noexcept {
  w.before = last;
  w.after = nullptr;
  w.linked = true;
  (last != nullptr ? last->after : first) = &w;
  last = &w;
}

void queue_ref::push_front(queued_wait& w) const noexcept {
  w.before = nullptr;
  w.after = first;
  w.linked = true;
  (first != nullptr ? first->before : last) = &w;
  first = &w;
}

void queue_ref::remove(queued_wait& w) const noexcept {
  (w.before != nullptr ? w.before->after : first) = w.after;
  (w.after != nullptr ? w.after->before : last) = w.before;
  w.before = w.after = nullptr;
  w.linked = false;
}

queued_wait* queue_ref::claim_first() const noexcept {
  while (first != nullptr) {
    queued_wait& w = *first;
    remove(w);
    if (w.claim(outcome::value)) return &w;
  }
  return nullptr;
}

void queue_ref::claim_all(wake_list& claimed) const noexcept {
  while (queued_wait* const w = claim_first())
    claimed.add(*w->whose);
}

void wait_in(
    wait_queue& q, caller& self, wait_reason reason, const char* call, queue_guard& guard) {
  if (self.may_not_wait()) {
    guard.unlock();
    self.refuse(call);
  }
  const queue_ref all = all_of(q);
  queued_wait own;
  self.open(own);  // nobody sees the record before the guard is released
  all.push_back(own);
  guard.unlock();
  self.throw_if_ended(self.wait(own.opened, {reason, &q}, [&]() noexcept {
    guard.lock();
    if (own.linked) all.remove(own);
    guard.unlock();
  }));
}

void throw_negative(const char* name, std::int64_t n) {
  throw std::invalid_argument(std::string(name) + " is negative (" + std::to_string(n) + ")");
}

}  // namespace VIGIL_DETAIL
