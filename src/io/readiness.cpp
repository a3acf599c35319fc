#include "io/readiness.hpp"

#include "core/sched/call/caller.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "io/io_watch.hpp"
#include "io/operation.hpp"
#include "io/outside_wait.hpp"

#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/detail/readiness.hpp>

#include <cstdint>
#include <new>
#include <utility>

#include <boost/asio/execution_context.hpp>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

waiter* readiness::look_again() noexcept {
  const lock_guard guard(lock);
  looks_again = true;
  return claim();
}

waiter* readiness::claim() noexcept {
  open_wait* const w = std::exchange(waiting, nullptr);
  return w != nullptr && w->claim(outcome::value) ? w->whose : nullptr;
}

void retain(readiness* r) noexcept {
  r->references.fetch_add(1, order::relaxed);  // ordering: the caller has one
}

void release(readiness* r) noexcept {
  // Pairs with itself: the last release sees what all others did.
  if (r->references.fetch_sub(1, order::acq_rel) == 1) delete r;
}

one_operation_of<room_of_wait>& memory_of(readiness& r) noexcept {
  return r.memory;
}

void make_readiness(readiness_ref& r) {
  if (!r) r = readiness_ref(new readiness);
}

namespace {

bool is_outstanding_elsewhere(readiness& r, const boost::asio::execution_context& in) noexcept {
  const lock_guard guard(r.lock);
  return r.armed && r.armed_in != &in;
}

// `to`: the arrival that stands for the fiber; one step with the look at `armed` (RD1).
bool begins(readiness_ref& ref, const boost::asio::any_io_executor& by, arrival* to) {
  const boost::asio::execution_context& in = by.context();
  if (!ref || is_outstanding_elsewhere(*ref.get(), in)) ref = readiness_ref(new readiness);
  readiness& r = *ref.get();
  const lock_guard guard(r.lock);
  r.come = false;
  r.looks_again = false;
  r.armed_in = &in;
  r.tells = to;
  return !std::exchange(r.armed, true);
}

}  // namespace

bool begins_wait(readiness_ref& r, const boost::asio::any_io_executor& by) {
  return begins(r, by, nullptr);
}

bool begins_arrival(readiness_ref& r, const boost::asio::any_io_executor& by, arrival& to) {
  return begins(r, by, &to);
}

void has_not_begun(readiness& r) noexcept {
  const lock_guard guard(r.lock);
  r.armed = false;
  r.tells = nullptr;
}

void ends_arrival(const readiness_ref& ref) noexcept {
  if (!ref) return;
  const lock_guard guard(ref.get()->lock);
  ref.get()->tells = nullptr;
}

bool is_outstanding(readiness& r) noexcept {
  const lock_guard guard(r.lock);
  return r.armed;
}

void has_come(readiness& r, const boost::system::error_code& error) noexcept {
  waiter* claimed = nullptr;
  {
    const lock_guard guard(r.lock);
    r.armed = false;
    r.come = true;
    r.error = error;
    arrival* const told = std::exchange(r.tells, nullptr);
    claimed = told != nullptr ? told->arrived() : r.claim();
  }
  if (claimed != nullptr) deliver_in_order(*claimed);
}

bool came_with(readiness& r, boost::system::error_code& error) noexcept {
  const lock_guard guard(r.lock);
  if (r.come) error = r.error;
  return r.come;
}

namespace {

// Waits until the handler has come, the deadline has, or the limit is to be looked at
// again.
outcome wait_once(readiness& r,
                  const wait_limit& limit,
                  const void* object) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  caller self(limit);
  const bool refused = self.may_not_wait();
  r.lock.lock();
  if (r.come || std::exchange(r.looks_again, false) || refused) {
    const bool stops = !r.come && refused;
    r.lock.unlock();
    return stops ? outcome::stopped : outcome::value;
  }
  open_wait own;
  self.open(own);
  r.waiting = &own;
  r.lock.unlock();
  return self.wait(own.opened, {wait_reason::io, object}, [&r] {
    const lock_guard guard(r.lock);
    r.waiting = nullptr;
  });
}

enum class wait_end : std::uint8_t { come, cut, stopped };

// Waits until the handler has come, or the wait is cut by its deadline, by close() or by
// a stop.
wait_end wait_until_ended(readiness& r,
                          movable_deadline& until,
                          const void* object,
                          boost::system::error_code& error) {
  for (;;) {
    const std::int64_t limit = until.begin_wait(r);
    const outcome result =
        limit == 0 ? outcome::timeout : wait_once(r, vigil::detail::until(limit), object);
    if (came_with(r, error)) return wait_end::come;
    if (result == outcome::stopped) return wait_end::stopped;
    if (until.is_closed() || (result == outcome::timeout && until.is_over())) return wait_end::cut;
  }
}

}  // namespace

boost::system::error_code wait(readiness& r,
                               movable_deadline& until,
                               const boost::asio::any_io_executor& by,
                               const void* object) {
  fiber& self = fiber_that_may_wait();
  check_is_not_run_here(by);
  const outside_wait counted(*self.sched, by);
  boost::system::error_code error;
  auto ended = wait_end::come;
  try {
    ended = wait_until_ended(r, until, object, error);
  } catch (const std::bad_alloc&) {  // no memory for a timer
    until.end_wait(false);
    throw;
  }
  const boost::system::error_code cut = until.end_wait(ended == wait_end::cut);
  if (ended == wait_end::stopped) throw_stopped(self);
  return ended == wait_end::cut ? cut : error;
}

}  // namespace VIGIL_IO_DETAIL
