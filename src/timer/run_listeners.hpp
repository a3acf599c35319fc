// run_listeners: what is told that a run ends. Each is told under no lock, which may
// take long (a list with many entries). Others come and go meanwhile.
#pragma once

#include "base/atomic.hpp"
#include "base/intrusive_list.hpp"
#include "base/spinlock.hpp"

namespace vigil::inline VIGIL_ABI::detail {

class run_listener {
 public:
  // On the main fiber, when it is the last user fiber, and is_in_run() is false.
  virtual void run_ends() noexcept = 0;
  list_hook<run_listener> among_listeners;

 protected:
  ~run_listener() = default;
};

class run_listeners {
 public:
  void add(run_listener& l) noexcept VIGIL_EXCLUDES(lock_);
  // Waits until a run_ends() of it has returned. Not inside that.
  void remove(run_listener& l) noexcept VIGIL_EXCLUDES(lock_);
  // Caller: is_in_run() is false by now, so whatever is added from now on, and may be
  // left out, finds the run over.
  void tell_all() noexcept VIGIL_EXCLUDES(lock_);

 private:
  using listener_list = list<run_listener, &run_listener::among_listeners>;

  run_listener* take_next() noexcept VIGIL_REQUIRES(lock_);

  spinlock lock_{lock_rank::run_listeners};
  listener_list all_ VIGIL_GUARDED_BY(lock_);
  run_listener* next_ VIGIL_GUARDED_BY(lock_) = nullptr;  // to be told
  atomic<run_listener*> being_told_{nullptr};             // set under the lock
};

}  // namespace vigil::inline VIGIL_ABI::detail
