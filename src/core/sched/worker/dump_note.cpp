#include "core/sched/worker/dump_note.hpp"

#include "core/sched/worker/running_runtimes.hpp"

#include <sched.h>

namespace VIGIL_DETAIL {

void dump_notes::add(dump_note& n) noexcept {
  const std::lock_guard guard(lock_);
  n.next.store(first_.load());
  first_.store(&n);
}

void dump_notes::remove(dump_note& n) noexcept {
  {
    const std::lock_guard guard(lock_);
    atomic<dump_note*>* at = &first_;
    while (at->load() != &n)
      at = &at->load()->next;
    at->store(n.next.load());
  }
  while (handlers_inside.load() != 0)
    ::sched_yield();
}

void dump_notes::dump(dump_writer& out, nanos time) const noexcept {
  for (const dump_note* n = first_.load(); n != nullptr; n = n->next.load())
    n->dump(out, time);
}

}  // namespace VIGIL_DETAIL
