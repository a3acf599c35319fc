// dump_note: what a part outside the scheduler adds to the dump of its runtime.
//
// A dump may run in a signal handler, on any thread, so it walks the list without a lock.
// DN1 A note leaves the list under the lock, and its remover then waits until no dump is
//     under way (handlers_inside): a reader that has counted itself may use what it
//     finds.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"

#include <vigil/detail/config.hpp>

#include <mutex>

namespace VIGIL_DETAIL {

class dump_writer;

class dump_note {
 public:
  // Writes its lines; `time` is the runtime's. Async-signal-safe.
  virtual void dump(dump_writer& out, nanos time) const noexcept = 0;

  atomic<dump_note*> next{nullptr};  // the list's

 protected:
  dump_note() = default;
  dump_note(const dump_note&) = delete;
  dump_note& operator=(const dump_note&) = delete;
  ~dump_note() = default;
};

class dump_notes {
 public:
  VIGIL_FOR_IO void add(dump_note& n) noexcept;
  VIGIL_FOR_IO void remove(dump_note& n) noexcept;
  // Async-signal-safe. Caller: is counted in handlers_inside.
  void dump(dump_writer& out, nanos time) const noexcept;

 private:
  std::mutex lock_;  // never held across a wait
  atomic<dump_note*> first_{nullptr};
};

}  // namespace VIGIL_DETAIL
