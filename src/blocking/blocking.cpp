// The functions that the templates of blocking.hpp call.
#include "base/clock_source.hpp"
#include "blocking/side_pool.hpp"
#include "machine/process_state.hpp"
#include "sched/call/caller.hpp"
#include "sched/run_core.hpp"

#include <vigil/blocking.hpp>
#include <vigil/error.hpp>

#include <cstring>
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
  return detail::require_fiber("stats_of_blocking").sched->side_pool->stats();
}

namespace detail {
namespace {

// Holds the call and its record while the caller owns them.
class owned_job {
 public:
  owned_job(const blocking_table& table, void* record) noexcept : table_(table), record_(record) {}

  ~owned_job() {
    if (record_ != nullptr) table_.destroy(record_);
  }

  owned_job(const owned_job&) = delete;
  owned_job& operator=(const owned_job&) = delete;

  side_job& make() {
    job_ = std::make_unique<side_job>();
    job_->table = &table_;
    job_->record = record_;
    return *job_;
  }

  // From now on the pool's thread owns both.
  void give_away() noexcept {
    static_cast<void>(job_.release());
    record_ = nullptr;
  }

  void keep_record() noexcept { record_ = nullptr; }

 private:
  const blocking_table& table_;
  void* record_;
  std::unique_ptr<side_job> job_;
};

// Called when the wait has ended without a result, or never began. Returns true if the
// function has returned all the same. The pool may be gone.
bool leave(side_job& job, owned_job& owned) noexcept {
  const detail::call_fate fate = run_of(*job.sched).calls.leave(job);
  if (fate == detail::call_fate::left) owned.give_away();
  return fate == detail::call_fate::over;
}

}  // namespace

bool goes_to_side_pool(const wait_limit& limit) {
  const bool on_fiber = detail::current_fiber() != nullptr;
  if (!on_fiber) detail::process_check_fork("vigil::blocking");
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
  owned_job owned(table, record);
  detail::caller self(limit);
  if (self.may_not_wait()) self.refuse("blocking");
  detail::fiber& f = *detail::current_fiber();
  detail::scheduler& sched = *f.sched;
  side_pool& pool = given != nullptr ? *given : *sched.side_pool;
  side_job& job = owned.make();
  job.sched = &sched;
  job.pool = &pool;
  job.since = detail::monotonic_now();
  job.fiber_id = f.identity.id;
  std::memcpy(job.fiber_name, f.identity.name, sizeof job.fiber_name);
  job.from = from;
  pool.prepare();
  self.open(job.waits);
  run_of(sched).calls.begin(job);
  pool.submit(job);
  outcome result = outcome::value;
  try {
    result = self.wait(job.waits.ticket,
                       {detail::wait_reason::blocking, static_cast<detail::side_call*>(&job)});
  } catch (const std::bad_alloc&) {
    leave(job, owned);  // no memory for the deadline
    throw;
  }
  if (result != outcome::value && !leave(job, owned)) {
    self.throw_if_ended(result);
    return false;
  }
  // The function has returned all the same: a stop does not wait for the result.
  if (result == outcome::stopped) self.throw_if_ended(result);
  if (job.refused != nullptr) std::rethrow_exception(job.refused);
  owned.keep_record();
  return true;
}

}  // namespace detail
}  // namespace VIGIL_PUBLIC
