#include "core/sched/call/caller.hpp"
#include "core/sched/run_core.hpp"
#include "core/sched/worker/unhandled.hpp"

#include <vigil/error.hpp>
#include <vigil/io/serve.hpp>
#include <vigil/time.hpp>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <new>
#include <stdexcept>
#include <system_error>

namespace VIGIL_IO_DETAIL {

using namespace vigil::detail;

namespace {

constexpr std::chrono::nanoseconds longest_wait = std::chrono::seconds(1);

// After a connection that is gone the next one may be fine, so the next accept comes at
// once; a kernel that reports this for ever must not make serve spin.
constexpr int most_in_a_row = 16;

// The network errors of a waiting connection, as accept(2) lists them, except EOPNOTSUPP,
// which a socket that cannot accept at all reports as well.
bool connection_is_gone(int code) noexcept {
  switch (code) {
    case ECONNABORTED:
    case ECONNRESET:
    case EINTR:
    case EPERM:  // a firewall's rule
    case EPROTO:
    case ENOPROTOOPT:
    case ENETDOWN:
    case ENETUNREACH:
    case EHOSTDOWN:
    case EHOSTUNREACH:
    case ENONET:
    case ETIMEDOUT:
      return true;
    default:
      return false;
  }
}

bool lacks_resources(int code) noexcept {
  switch (code) {
    case EAGAIN:  // for a fiber's stack: the limit of locked memory
    case EMFILE:
    case ENFILE:
    case ENOBUFS:
    case ENOMEM:
    case ENOSPC:  // the limit of descriptors that epoll may watch
      return true;
    default:
      return false;
  }
}

// Returns 0 if the code is not an errno.
int errno_of(const boost::system::error_code& e) noexcept {
  const auto& c = e.category();
  return c == boost::system::system_category() || c == boost::system::generic_category() ? e.value()
                                                                                         : 0;
}

int errno_of(const std::error_code& e) noexcept {
  const auto& c = e.category();
  return c == std::system_category() || c == std::generic_category() ? e.value() : 0;
}

std::int64_t checked_places(const serve_limits& limits) {
  if (limits.connections == 0) {
    throw std::invalid_argument("vigil::io::serve: limits.connections is 0; it must be at least 1");
  }
  if (limits.backoff <= std::chrono::nanoseconds(0)) {
    throw std::invalid_argument(
        "vigil::io::serve: limits.backoff must be more than zero, or accept would spin when "
        "descriptors run out");
  }
  constexpr auto most = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(std::min(limits.connections, most));
}

// Returns the grace to ask the shutdown for. The shutdown counts it from its own
// beginning, and serve counts from the end of its accept, which comes later. The surplus
// lets serve itself cut what is left, and return; the request is then withdrawn as a
// whole.
std::chrono::nanoseconds with_surplus(std::chrono::nanoseconds grace) {
  constexpr std::chrono::nanoseconds surplus = std::chrono::seconds(1);
  if (grace <= std::chrono::nanoseconds(0)) return grace;
  return std::min(grace, std::chrono::nanoseconds::max() - surplus) + surplus;
}

// The caller's line without a name: the acceptor takes the room for a connection, whose
// own fiber gives it back, so that its users would tell nothing.
site birth_of_room(const site& from) noexcept {
  return {from.file, from.line};
}

// The caller's line, for the context of the connections.
site birth_of_parts(const site& from) noexcept {
  return from.name == 0 ? named("io::serve", from) : from;
}

}  // namespace

struct announced_grace::part {
  scheduler& sched;
  grace_request request;
};

announced_grace::announced_grace(std::chrono::nanoseconds length)
    : part_(new part{*require_fiber("io::serve").sched, {length.count(), {}}}) {
  run_of(part_->sched).end.announce_grace(part_->request);
}

announced_grace::~announced_grace() {
  run_of(part_->sched).end.withdraw_grace(part_->request);
}

server::server(const vigil::context& stopping, const serve_limits& limits, const site& from)
    : announced_(with_surplus(limits.grace)),
      stopping_(stopping),
      limits_(limits),
      from_(from),
      places_(checked_places(limits), birth_of_room(from)),
      next_wait_(limits.backoff),
      fibers_(without_cancel(stopping), {}, birth_of_parts(from)) {}

void server::keep_connections() {
  if (limits_.idle <= std::chrono::nanoseconds(0)) {
    throw std::invalid_argument(
        "vigil::io::serve_each: limits.idle must be more than zero; for connections that may "
        "be idle for ever use std::chrono::nanoseconds::max()");
  }
  kept_.emplace(limits_.idle, limits_.backoff, from_);
  fibers_.go([this] { kept_->start_fibers(fibers_); }, from_);
}

bool server::has_room() {
  // An accept that is served at once does not ask.
  caller().throw_if_stopped();
  try {
    if (waits_) {
      waits_ = false;
      sleep_for(next_wait_, stopping_);
      const auto doubled = std::min(next_wait_, longest_wait / 2) * 2;
      next_wait_ = std::max(limits_.backoff, doubled);
    }
    if (!has_place_) places_.acquire(stopping_);
    has_place_ = true;
  } catch (const cancelled&) {
    return false;
  }
  return !stopping_.is_done();
}

server::place server::take_place() noexcept {
  has_place_ = false;
  return place(places_);
}

void server::has_started() noexcept {
  next_wait_ = limits_.backoff;
  in_a_row_ = 0;
}

bool server::goes_on(bool (*is_open)(const void* acceptor), const void* acceptor) {
  try {
    throw;
  } catch (const boost::system::system_error& e) {
    // The acceptor was closed, between two accepts or during one, or its descriptor was.
    const bool is_aborted = e.code() == boost::asio::error::operation_aborted;
    const bool has_none = e.code() == boost::asio::error::bad_descriptor;
    ended_by_others_ = is_aborted || has_none;
    if (is_aborted || (has_none && !is_open(acceptor))) return false;
    return passes(errno_of(e.code()));
  } catch (const cancelled&) {
    return false;
  } catch (const limit_reached&) {
    waits_ = true;
  } catch (const std::bad_alloc&) {
    waits_ = true;
  } catch (const std::system_error& e) {
    return passes(errno_of(e.code()));  // no stack, or the acceptor's own error
  }
  return true;
}

// Called in a catch block.
bool server::passes(int code) {
  if (connection_is_gone(code)) {
    if (++in_a_row_ > most_in_a_row) waits_ = true;
    return true;
  }
  if (lacks_resources(code)) {
    waits_ = true;
    return true;
  }
  broken_ = std::current_exception();
  return false;
}

void server::finish() {
  const clock::time_point end = deadline_in(limits_.grace);
  tell_stop();
  if (kept_.has_value()) kept_->end_idle();
  static_cast<void>(fibers_.wait_until(end));
  if (broken_ != nullptr) std::rethrow_exception(broken_);
}

namespace {

// Rethrows a lock's `deadlock` error in a deadlocked run: it unwinds the fiber, as
// `stopped` does.
void throw_on_if_it_unwinds(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const deadlock& e) {
    if (current_fiber()->sched->state.ends_silently(e)) throw;
  } catch (...) {
  }
}

}  // namespace

void server::tell_stop() const {
  if (!limits_.on_stop) return;
  std::exception_ptr error;
  try {
    limits_.on_stop();
  } catch (const stopped&) {
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  if (error != nullptr) report(std::move(error));
}

void server::report(std::exception_ptr error) const {
  throw_on_if_it_unwinds(error);
  if (limits_.on_error) {
    try {
      limits_.on_error(std::move(error));
      return;
    } catch (const stopped&) {
      throw;
    } catch (...) {
      error = std::current_exception();  // on_error's own; the other connections go on
      throw_on_if_it_unwinds(error);
    }
  }
  report_unhandled(*current_fiber(), std::move(error));
}

}  // namespace VIGIL_IO_DETAIL
