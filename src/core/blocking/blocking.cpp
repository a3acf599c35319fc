// The functions that the templates of blocking.hpp call.
#include "core/base/clock_source.hpp"
#include "core/blocking/side_pool.hpp"
#include "core/sched/call/caller.hpp"
#include "core/sched/run_core.hpp"

#include <vigil/blocking.hpp>
#include <vigil/error.hpp>

#include <exception>
#include <memory>
#include <new>

namespace VIGIL_PUBLIC {

using detail::outcome;
using detail::side_job;
using detail::side_pool;

blocking_pool::blocking_pool(const blocking_options& settings)
    : core_(new side_pool(detail::side_pool_size(settings.threads), settings.name)) {}

blocking_pool::~blocking_pool() {
  side_pool::end(core_);
}

blocking_stats blocking_pool::stats() const {
  return core_->stats();
}

blocking_stats stats_of_blocking() {
  return detail::require_fiber("stats_of_blocking").sched->own_pool->stats();
}

namespace detail {
namespace {

using owned_record = std::unique_ptr<void, void (*)(void*) noexcept>;

// Called when the wait has ended without a result, or never began. Returns true if the
// function has returned all the same. The pool may be gone.
bool leave(std::unique_ptr<side_job>& job, owned_record& record) noexcept {
  const detail::call_fate fate = run_of(*job->sched).calls.leave(*job);
  if (fate == detail::call_fate::left) {  // the pool's thread owns both
    static_cast<void>(job.release());
    static_cast<void>(record.release());
  }
  return fate == detail::call_fate::over;
}

}  // namespace

bool goes_to_side_pool(const wait_limit& limit) {
  const bool on_fiber = detail::current_fiber() != nullptr;
  detail::caller self(limit);
  if (self.may_not_wait()) self.refuse("blocking");
  if (limit.cancelled_by != nullptr && limit.cancelled_by->is_done())
    detail::throw_cancelled(*limit.cancelled_by);
  return on_fiber;
}

bool run_blocking(side_pool* given,
                  const blocking_table& table,
                  void* record,
                  const wait_limit& limit,
                  const site& from) {
  owned_record owned(record, table.destroy);
  detail::caller self(limit);
  if (self.may_not_wait()) self.refuse("blocking");
  detail::fiber& f = *detail::current_fiber();
  detail::scheduler& sched = *f.sched;
  side_pool& pool = given != nullptr ? *given : *sched.own_pool;
  auto made = std::make_unique<side_job>();
  side_job& job = *made;
  job.table = &table;
  job.record = record;
  job.sched = &sched;
  job.pool = &pool;
  job.since = detail::monotonic_now();
  job.by = f.identity;
  job.from = from;
  pool.prepare();
  self.open(job.waits);
  run_of(sched).calls.begin(job);
  pool.submit(job);
  outcome result = outcome::value;
  try {
    result = self.wait(job.waits.opened,
                       {detail::wait_reason::blocking, static_cast<detail::side_call*>(&job)});
  } catch (const std::bad_alloc&) {
    leave(made, owned);  // no memory for the deadline
    throw;
  }
  if (result != outcome::value && !leave(made, owned)) {
    self.throw_if_ended(result);
    return false;
  }
  // The function has returned all the same: a stop does not wait for the result.
  if (result == outcome::stopped) self.throw_if_ended(result);
  if (job.refused != nullptr) std::rethrow_exception(job.refused);
  static_cast<void>(owned.release());
  return true;
}

}  // namespace detail
}  // namespace VIGIL_PUBLIC
