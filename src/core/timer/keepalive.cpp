#include "core/timer/keepalive.hpp"

namespace VIGIL_DETAIL {

void keepalive::change::begin(keepalive& k,
                              timer_record& t) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  k.owner_.outside.lock();
  of_ = &k;
  timer_ = &t;
  entered_ = nullptr;
  // A timer that neither is referenced nor holds the program gives up no hold. It may be
  // changed under locks under which the main fiber must not be told.
  if (counts_ && k.owner_.is_this_run(t.generation) && (t.referenced.load() || t.keeps_alive)) {
    entered_ = k.owner_.sched();
    entered_->outside.enter();
  }
}

void keepalive::change::end() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  if (counts_ && of_->owner_.is_this_run(timer_->generation)) {
    const bool keeps = timer_->when.load() > 0 && timer_->referenced.load();
    if (keeps && !timer_->keeps_alive) of_->held_.fetch_add(1);
    if (!keeps && timer_->keeps_alive) of_->held_.fetch_sub(1);
    timer_->keeps_alive = keeps;
  }
  of_->owner_.outside.unlock();
  if (entered_ != nullptr) entered_->outside.leave();
}

}  // namespace VIGIL_DETAIL
