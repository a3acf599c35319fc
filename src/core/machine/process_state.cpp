#include "core/machine/process_state.hpp"

#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"

namespace VIGIL_DETAIL {
namespace {

atomic<bool> forked{false};  // set in a child that lacks threads
atomic<bool> exiting{false};
atomic<bool> end_is_named{false};

}  // namespace

void process_check_fork(const char* call) noexcept {
  if (forked.load()) {
    fatal(
        "%s in a forked child: the threads of the library stayed in the parent. After fork() call "
        "exec or _exit, or fork while no runtime runs and no thread of a side pool is there "
        "(before the first vigil::run, for example)",
        call);
  }
}

void process_note_fork() noexcept {
  forked.store(true);
}

bool process_is_exiting() noexcept {
  return exiting.load() || forked.load();
}

void process_note_exit() noexcept {
  exiting.store(true);
}

bool process_note_end_named() noexcept {
  return end_is_named.exchange(true);
}

}  // namespace VIGIL_DETAIL
