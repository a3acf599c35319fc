// on_read and on_write: a select waits until a stream is ready, as a fiber that reads
// from it does (readiness.hpp), and transfers the bytes itself when it takes the case.
//
//   look ─ begin: the hold, Asio's wait ─ the select waits ─ take: the transfer ─ leave
//
// RW1  The side is held from begin() to leave(), so nothing else transfers
//      between the look that found the stream empty and the end of the wait for it.
// RW2  Asio's wait begins after a transfer has failed, or a poll has found nothing, and
//      before the select looks under its locks: what comes in between is found there
//      (RD1).
// RW3  The stream's deadline ends a round of the select; take() then finds it over. One
//      that moves, and close(), end the round by readiness::look_again().
#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "io/operation.hpp"
#include "io/outside_wait.hpp"
#include "io/readiness.hpp"

#include <vigil/io/detail/stream_case.hpp>

#include <utility>

#include <boost/asio/error.hpp>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;
using vigil::detail::fiber;  // not the handle

namespace {

using stage = stream_case::stage;

stream_case& stream_of(select_case& c) noexcept {
  return static_cast<stream_case&>(c);
}

readiness& readiness_of(void* object) noexcept {
  return *static_cast<shown_stream*>(object)->ready;
}

void is_over(stream_case& c, const boost::system::error_code& error) noexcept {
  c.error = error;
  c.at = stage::over;
}

// Takes hold of the side, unless the stream can transfer nothing now; then the case is
// over.
bool enter_stream(stream_case& c) {
  c.hold.emplace(c.side().calls);
  boost::system::error_code error = c.side().deadline.error();
  if (!error && !*c.hold) error = boost::asio::error::already_started;
  if (error) {
    is_over(c, error);
    c.hold.reset();
    return false;
  }
  c.set_up();
  return true;
}

// Whether the case is over: it has transferred something, or failed.
bool try_stream(stream_case& c) noexcept {
  boost::system::error_code error;
  const std::size_t n = c.transfer(error);
  if (error == boost::asio::error::would_block || error == boost::asio::error::try_again) {
    c.at = stage::empty;
    return false;
  }
  is_over(c, error);
  c.transferred = n;
  call_counts& counts = c.side().counts;
  ++counts.begun;
  if (n != 0) {
    ++counts.successful;
    c.idle_ends();
  }
  return true;
}

bool look_stream(select_case& of) noexcept {
  constexpr unsigned others_come_first = 64;
  stream_case& c = stream_of(of);
  if (!enter_stream(c)) return true;
  const bool done = try_stream(c);
  const fiber* const f = current_fiber();
  c.yields = done && ++c.side().at_once % others_come_first == 0 && f != nullptr &&
             f->guards.no_parks == 0;
  c.hold.reset();
  return done;
}

// For its lock: of the cases that are over before they have begun.
readiness& of_no_stream() {
  static readiness& none = *new readiness;
  return none;
}

void begin_wait_for(stream_case& c, const boost::asio::any_io_executor& by) {
  stream_side& side = c.side();
  side.at_once = 0;
  if (begins_wait(side.ready, by)) c.begin_wait();
  c.shown.ready = side.ready.get();
  if (!std::exchange(c.has_waited, true)) {
    side.ready.get()->counted.emplace(*current_scheduler(), by);
  }
  c.idle_begins();
  c.at = stage::awaited;
}

// The steps of begin() before the first round. Returns false if the case is over.
bool begin_first(stream_case& c, const boost::asio::any_io_executor& by, bool waits) {
  if (waits) {
    static_cast<void>(fiber_that_may_wait());
    check_is_not_run_here(by);
  }
  c.shown.ready = &of_no_stream();
  if (!enter_stream(c)) return false;
  make_readiness(c.side().ready);
  c.shown.ready = c.side().ready.get();
  return true;
}

// Those before each round.
nanos begin_round(stream_case& c, const boost::asio::any_io_executor& by, bool waits) {
  boost::system::error_code error;
  const bool has_come = c.at == stage::awaited && came_with(*c.shown.ready, error);
  if (error) {
    is_over(c, error);
  } else if (has_come || c.at == stage::fresh) {
    c.at = c.is_ready() ? stage::inviting : stage::empty;
  }
  if (c.at == stage::empty && waits) begin_wait_for(c, by);
  if (c.at != stage::awaited) return never;
  movable_deadline& until = c.side().deadline;
  const nanos end = until.begin_wait(*c.shown.ready);
  if (until.is_closed() || until.is_over()) c.at = stage::inviting;
  return end;
}

case_lock lock_of_stream(void* object) noexcept {
  return case_lock(readiness_of(object).lock);
}

bool poll_stream(select_case& of, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  const stream_case& c = stream_of(of);
  const readiness& r = readiness_of(c.object);
  return c.at == stage::over || c.at == stage::inviting ||
         (c.at == stage::awaited && (r.come || r.looks_again));
}

bool enqueue_stream(select_case& of) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  auto& place = make_place<open_wait>(of);
  readiness_of(of.object).waiting = &place;
  return true;
}

void retract_stream(select_case& of, wake_list&) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  readiness_of(of.object).waiting = nullptr;
}

// The deadline has come, or the stream is closed. If it was the idle list's time, bytes
// that have arrived by now come first, and no other error replaces this one.
void cut_stream(stream_case& c) noexcept {
  movable_deadline& until = c.side().deadline;
  const boost::system::error_code cut = until.end_wait(true);
  const bool by_list =
      c.has_idle_list() && cut == boost::asio::error::timed_out && !until.is_over();
  if (!by_list || !try_stream(c) || c.transferred == 0) is_over(c, cut);
}

bool take_stream(select_case& of) noexcept {
  stream_case& c = stream_of(of);
  if (c.at == stage::over) return true;
  if (c.has_waited) {
    const movable_deadline& until = c.side().deadline;
    boost::system::error_code error;
    const bool has_come = came_with(*c.shown.ready, error);
    if (error) {
      is_over(c, error);
    } else if (!has_come && (until.is_closed() || until.is_over())) {
      cut_stream(c);
    }
    if (c.at == stage::over) return true;
  }
  return try_stream(c);
}

void leave_stream(select_case& of) noexcept {
  stream_case& c = stream_of(of);
  if (std::exchange(c.has_waited, false)) {
    static_cast<void>(c.side().deadline.end_wait(false));
    c.end_wait();
    c.shown.ready->counted.reset();
  }
  c.hold.reset();
}

nanos begin_stream(select_case& of, bool waits) {
  stream_case& c = stream_of(of);
  const boost::asio::any_io_executor by = c.executor();
  const bool is_first = !c.hold;
  try {
    if (is_first && !begin_first(c, by, waits)) return never;
    return begin_round(c, by, waits);
  } catch (...) {
    if (is_first) leave_stream(of);
    throw;
  }
}

}  // namespace

constexpr case_table stream_case_table = {wait_reason::io,
                                          0,
                                          look_stream,
                                          lock_of_stream,
                                          poll_stream,
                                          enqueue_stream,
                                          retract_stream,
                                          end_nothing,
                                          begin_stream,
                                          take_stream,
                                          leave_stream};

}  // namespace VIGIL_IO_DETAIL
