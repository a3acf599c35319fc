#include "core/timer/run_listeners.hpp"

#include <thread>

namespace VIGIL_DETAIL {

void run_listeners::add(run_listener& l) noexcept {
  const lock_guard guard(lock_);
  all_.push_back(l);
}

void run_listeners::remove(run_listener& l) noexcept {
  {
    const lock_guard guard(lock_);
    if (next_ == &l) next_ = listener_list::next(l);
    all_.remove(l);
  }
  while (notified_.load() == &l)
    std::this_thread::yield();
}

run_listener* run_listeners::take_next() noexcept {
  run_listener* const l = next_;
  if (l != nullptr) next_ = listener_list::next(*l);
  notified_.store(l);
  return l;
}

void run_listeners::tell_all() noexcept {
  run_listener* l = nullptr;
  {
    const lock_guard guard(lock_);
    next_ = all_.front();
    l = take_next();
  }
  while (l != nullptr) {
    l->run_ends();
    const lock_guard guard(lock_);
    l = take_next();
  }
}

}  // namespace VIGIL_DETAIL
