// run_listeners: the objects that are told when a run ends. Each is told with no lock
// held, since that may take long (a list with many entries), and others come and go
// meanwhile.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/intrusive_list.hpp"
#include "core/base/spinlock.hpp"

namespace VIGIL_DETAIL {

class run_listener {
 public:
  // Called when is_in_run() is false: on the main fiber, which is the last user fiber, or
  // by the thread whose run could not begin (abort_open).
  virtual void run_ends() noexcept = 0;
  list_hook<run_listener> among_listeners;

 protected:
  ~run_listener() = default;
};

class run_listeners {
 public:
  void add(run_listener& l) noexcept VIGIL_EXCLUDES(lock_);
  // Waits until a call of l.run_ends() that is under way has returned. Must not be called
  // inside it.
  void remove(run_listener& l) noexcept VIGIL_EXCLUDES(lock_);
  // Caller: is_in_run() is false by now, so a listener that is added from now on may be
  // left out: it finds the run over.
  void tell_all() noexcept VIGIL_EXCLUDES(lock_);

 private:
  using listener_list = list<run_listener, &run_listener::among_listeners>;

  run_listener* take_next() noexcept VIGIL_REQUIRES(lock_);

  spinlock lock_{lock_rank::run_listeners};
  listener_list all_ VIGIL_GUARDED_BY(lock_);
  run_listener* next_ VIGIL_GUARDED_BY(lock_) = nullptr;  // the next to be told
  atomic<run_listener*> notified_{nullptr};               // being told; set under the lock
};

}  // namespace VIGIL_DETAIL
