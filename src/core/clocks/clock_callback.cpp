#include "core/clocks/clock_callback.hpp"

#include "core/sched/worker/worker.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace VIGIL_DETAIL {

// The function of the ordinary timer.
struct clock_callback::function {
  function(clock_callback& of, callback f) noexcept : deadline(&of), call(std::move(f)) {}

  function(function&&) noexcept = default;
  function& operator=(function&&) = delete;

  ~function() {
    if (deadline) deadline.get()->ends();
  }

  void operator()() {
    if (deadline.get()->begins()) call();
  }

  handle<clock_callback> deadline;
  callback call;
};

clock_callback& clock_callback::make(const std::shared_ptr<clock_hub>& hub,
                                     clock_kind kind,
                                     callback f,
                                     const site& from,
                                     timer_record*& record) {
  auto* const made = new clock_callback(hub, kind);
  callback wrapped(function(*made, std::move(f)));  // owns it
  record = hub->service().make_record(std::move(wrapped), 0, false, from);
  record->on_clock = made;
  const lock_guard guard(made->lock_);
  made->record_ = record;
  return *made;
}

// CB1: a run is counted before it takes the claim of the ordinary timer.
bool clock_callback::is_pending() const noexcept {
  return when_ != never && (record_->when.load() > 0 || record_->is_running());
}

void clock_callback::end_pending() noexcept {
  if (when_ == never) return;
  when_ = never;
  hub_->remove(*this);
  hub_->end_pending();
}

bool clock_callback::stop() noexcept {
  const lock_guard guard(lock_);
  if (record_ == nullptr) return false;  // the runtime has ended
  const bool was_pending = is_pending();
  end_pending();
  hub_->service().stop(*record_);
  return was_pending;
}

bool clock_callback::reset(nanos when) {
  pending_mark mark(*hub_);
  const lock_guard guard(lock_);
  if (record_ == nullptr) throw runtime_gone("vigil: reset of a timer whose runtime has ended");
  const bool was_pending = is_pending();
  const bool was_counted = when_ != never;
  if (!was_counted) hub_->add(*this);
  const nanos deadline = std::min(when, never - 1);
  try {
    if (hub_->service().reset_at(*record_, hub_->image(kind_, deadline)) ==
        timer_service::armed::held_back) {
      // Nothing changes: an arming by others is not that of a run that was given up.
      if (!was_counted) hub_->remove(*this);
      return false;
    }
  } catch (...) {
    if (!was_counted) hub_->remove(*this);
    throw;
  }
  when_ = deadline;
  if (!was_counted) mark.commit();
  return was_pending;
}

nanos clock_callback::deadline() const noexcept {
  const lock_guard guard(lock_);
  return is_pending() && when_ < never - 1 ? when_ : never;
}

// Files the ordinary timer at the present image; false if there is no memory. If a run
// that was given up makes the step, its reset is held back, but not what others armed.
bool clock_callback::file() noexcept {
  try {
    timer_service& service = hub_->service();
    const nanos image = hub_->image(kind_, when_);
    if (service.reset_at(*record_, image) != timer_service::armed::held_back) return true;
    if (record_->when.load() > 0) {
      service.arm_at(*record_, image);
      if (service.stop_waiters_.lets_stand(*record_)) return true;
    }
    end_pending();
  } catch (const std::bad_alloc&) {
    return false;
  } catch (const runtime_gone&) {
    end_pending();
  }
  return true;
}

bool clock_callback::begins() {
  for (;;) {
    {
      const lock_guard guard(lock_);
      if (when_ == never) return false;
      if (hub_->now(kind_) >= when_) {
        end_pending();
        // A step may have filed it anew meanwhile.
        if (record_->when.load() > 0) hub_->service().stop(*record_);
        return true;
      }
      if (file()) return false;
    }
    // No memory: the callback waits here, and is late rather than lost.
    this_fiber::yield();
  }
}

void clock_callback::ends() noexcept {
  const lock_guard guard(lock_);
  end_pending();
  record_ = nullptr;
}

// Called by the hub, which has it among its followers: ends() has not come yet.
bool clock_callback::keep() noexcept {
  retain();
  return true;
}

// The last handle, or the end of the run, may be about to destroy the captures: then
// there is nothing to file. Otherwise a run keeps them meanwhile.
bool clock_callback::clock_changed() noexcept {
  bool filed = true;
  timer_record* kept = nullptr;
  {
    const lock_guard guard(lock_);
    if (when_ != never && !is_pending()) {
      end_pending();
    } else if (when_ != never && record_->begin_run() != timer_record::begun::no) {
      kept = record_;
      // ordering: made from the one that the callback has while it is there.
      kept->references.fetch_add(1, order::relaxed);
      filed = file();
    }
  }
  if (kept != nullptr) {
    hub_->service().stop_waiters_.end_run(*kept);
    release_record(*kept);
  }
  release();
  return filed;
}

}  // namespace VIGIL_DETAIL
