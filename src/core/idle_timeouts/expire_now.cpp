#include "core/idle_timeouts/spare_rooms.hpp"
#include "core/idle_timeouts/timeout_core.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/worker/unhandled.hpp"

#include <vigil/error.hpp>

#include <exception>

namespace VIGIL_DETAIL {

bool timeout_core::batch::sort_some() noexcept {
  for (unsigned moves = moves_at_once; moves > 0; --moves) {
    const timeout_order::found f = unsorted.first(list.now(), moves);
    if (f.more) return true;
    // Entries that were touched in the future come last.
    timeout_node* const n = f.first != nullptr ? f.first : unsorted.any();
    if (n == nullptr) return false;
    timeout_order::unlink(*n);
    timeout_order::append(entries, *n);
    if (moves == 0) return true;
  }
  return true;
}

timeout_core::batch::batch(timeout_core& of) : list(of) {
  timeout_order::make_empty(entries);
  unsorted.give_room(detail::rooms().take());
  list.retain();
  {
    const lock_guard guard(list.lock_);
    list.batches_.push_back(*this);
    unsorted.begin_at(list.now());
    unsorted.swap(list.order_);
  }
  for (bool is_done = false; !is_done;) {
    const lock_guard guard(list.lock_);
    is_done = list.closed_ || !sort_some();
  }
}

timeout_core::batch::~batch() {
  for (bool is_done = false; !is_done;) {
    const lock_guard guard(list.lock_);
    for (unsigned i = 0; i < moves_at_once && !is_done; ++i) {
      timeout_node* const n = any();
      is_done = n == nullptr;
      if (is_done) {
        list.batches_.remove(*this);
        list.spare_room();
      } else if (list.closed_) {
        list.take_out_here(*n);  // TL6
      } else {
        list.put_off(*n);
      }
    }
  }
  if (unsorted.has_room()) detail::rooms().give(unsorted.take_room());
  list.release();
}

std::size_t timeout_core::expire_now() {
  fiber& self = require_fiber("timeout_list::expire_now");
  if (size_.load() == 0) return 0;  // needs no room
  batch now_due(*this);
  for (std::size_t called = 0;;) {
    timeout_run r(this, &self);
    {
      const lock_guard guard(lock_);
      timeout_node* const n = now_due.first();
      if (closed_ || n == nullptr) return called;
      if (!begin(r, *n, n->touched.load())) continue;
      if (size_.load() == 0) disarm();
      spare_room();
    }
    ++called;
    try {
      call(r);
    } catch (const stopped&) {
      throw;
    } catch (const cancelled& e) {
      if (!self.sched->state.ends_silently(self, e))
        report_unhandled(self, std::current_exception());
    } catch (const deadlock& e) {
      if (!self.sched->state.ends_silently(e)) report_unhandled(self, std::current_exception());
    } catch (...) {
      report_unhandled(self, std::current_exception());
    }
  }
}

}  // namespace VIGIL_DETAIL
