#include "base/assert.hpp"
#include "io/io_watch.hpp"
#include "io/operation_record.hpp"
#include "sched/caller.hpp"
#include "sched/process.hpp"
#include "sched/scheduler.hpp"

#include <vigil/error.hpp>
#include <vigil/io/memory_executor.hpp>

#include <cerrno>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>
#include <utility>

#include <boost/asio/experimental/channel_error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/prefer.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/system/errc.hpp>
#include <boost/system/system_error.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

using internal::lock_guard;
using internal::outcome;

namespace {

operation_record& record_of(operation& o) noexcept {
  return static_cast<operation_record&>(o);
}

ending ending_of(outcome how) noexcept {
  switch (how) {
    case outcome::timeout:
      return ending::timed_out;
    case outcome::cancelled:
      return ending::cancelled;
    case outcome::stopped:
      return ending::stopped;
    default:
      return ending::completed;
  }
}

}  // namespace

bool means_cancelled(const boost::system::error_code& code) noexcept {
  return code == boost::system::errc::operation_canceled ||  // operation_aborted, too
         code == boost::asio::experimental::channel_errc::channel_cancelled;
}

bool means_cancelled(const std::exception_ptr& error) noexcept {
  if (error == nullptr) return false;
  try {
    std::rethrow_exception(error);
  } catch (const boost::system::system_error& e) {
    return means_cancelled(e.code());
  } catch (const std::system_error& e) {
    return e.code() == std::errc::operation_canceled;
  } catch (...) {
    return false;
  }
}

namespace {

// Boost's base classes have destructors that are not virtual, on purpose.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wnon-virtual-dtor"

// The system's in all but the message, and equal to it: Boost.System compares
// categories by their id. So who asks for timed_out, or for errc::timed_out, need not
// know of it.
class time_category final : public boost::system::detail::system_error_category {
 public:
  explicit constexpr time_category(const char* what) noexcept : what_(what) {}

  std::string message(int code) const override {
    return code == ETIMEDOUT ? what_ : system_error_category::message(code);
  }

  const char* message(int code, char* buffer, std::size_t size) const noexcept override {
    if (code != ETIMEDOUT) return system_error_category::message(code, buffer, size);
    std::snprintf(buffer, size, "%s", what_);
    return buffer;
  }

 private:
  const char* what_;
};

#pragma GCC diagnostic pop

// Never destroyed in effect: they have nothing to give back.
constinit const time_category categories[] = {
    time_category("vigil: the time given to use_fiber.within is over"),
    time_category("vigil: the deadline given to use_fiber.until has passed"),
    time_category("vigil: the read deadline of the deadline_stream has passed"),
    time_category("vigil: the write deadline of the deadline_stream has passed"),
    time_category("vigil: nothing was read or written for as long as the idle_list allows"),
};

}  // namespace

boost::system::error_code timed_out_by(time_of which) noexcept {
  return {ETIMEDOUT, categories[static_cast<std::size_t>(which)]};
}

// --- the record

operation_record::operation_record(internal::fiber& f) noexcept
    : sched_(*f.sched), watch_(f.sched->present_watch().as_io_watch()) {}

bool operation_record::is_done() noexcept {
  const lock_guard guard(lock_);
  return done_;
}

// In the section.
void operation_record::emit(boost::asio::cancellation_type_t type) noexcept {
  if (is_done()) return;
  try {
    signal_.emit(type);
  } catch (const std::bad_alloc&) {
    // Whoever wants it to end asks again after its next step.
  } catch (...) {
    internal::fatal("an exception has left a cancellation handler of an operation of Asio's");
  }
}

// O4
void operation_record::ask_again() noexcept {
  constexpr int answers = 16;  // each of which begins another step
  for (int i = 0; i < answers && end_wanted_.load(); ++i) {
    answered_ = false;
    emit(boost::asio::cancellation_type::terminal);
    if (!answered_) return;
  }
}

// What the operation has left in its slot may have a copy of the executor, and so keep
// itself. Outside any emission of it.
void operation_record::clear_slot() noexcept {
  if (executors_.load() == 0) return;
  const section inside(*this);
  signal_.slot().clear();
}

// Copies of the associated executor need it still, but it counts no work: who is to
// run out of that may do so once the operation is over.
void operation_record::untrack() noexcept {
  boost::asio::any_io_executor ex;
  {
    const lock_guard guard(lock_);
    ex = executor_;
  }
  if (!ex) return;
  try {
    ex = boost::asio::prefer(ex, boost::asio::execution::outstanding_work.untracked);
  } catch (...) {  // no memory: it counts until the last copy has gone
    return;
  }
  const lock_guard guard(lock_);
  if (executor_) std::swap(ex, executor_);
}

void operation_record::end() noexcept {
  let_go_executor();  // before anybody knows: O5
  if (executors_.load() != 0) untrack();
  {
    const lock_guard guard(lock_);
    done_ = true;
    if (who_ != nullptr && who_->claim(which_, outcome::value)) claimed_ = who_;
    who_ = nullptr;
  }
  // W4 of io_watch.hpp.
  if (claimed_ != nullptr && internal::io_watch::deliver_later(*this)) return;
  deliver();
}

void operation_record::deliver() noexcept {
  if (internal::waiter* const w = std::exchange(claimed_, nullptr)) {
    w->deliver(internal::turn::in_order);
  }
  let_go();
}

void operation_record::wait_for_end() noexcept {
  for (;;) {
    internal::caller self;
    static_cast<void>(self.may_not_wait(false));
    lock_.lock();
    if (done_) {
      lock_.unlock();
      return;
    }
    which_ = self.open();
    who_ = &self.self();
    self.wait(which_, internal::wait_reason::io, lock_);
  }
}

// --- the interface

operation& operation::begin() {
  internal::fiber* const f = internal::current_fiber();
  if (f == nullptr) {
    internal::process_check_fork("vigil::io::use_fiber");
    if (internal::current_worker() != nullptr) {
      throw wrong_place(
          "vigil::io::use_fiber: it would have to wait inside a handler, on a worker's own stack; "
          "start a fiber with go, and wait there");
    }
    throw wrong_place(
        "vigil::io::use_fiber needs a fiber to wait: call it inside vigil::run, go or spawn, not "
        "on a plain thread nor in a handler");
  }
  internal::check_may_park(*f);
  return *new operation_record(*f);
}

void operation::keep() noexcept {
  // ordering: who keeps it has a reference already.
  record_of(*this).kept_.fetch_add(1, internal::relaxed);
}

void operation::let_go() noexcept {
  operation_record& r = record_of(*this);
  // Pairs with itself: the last one sees what all others did.
  if (r.kept_.fetch_sub(1, internal::acq_rel) == 1) delete &r;
}

// From none to one: by its handler at first, later by who emits (enter()) when the
// operation has just ended, and then finds that it has.
void operation::keep_executor() noexcept {
  // ordering: as keep().
  if (record_of(*this).executors_.fetch_add(1, internal::relaxed) == 0) keep();
}

void operation::let_go_executor() noexcept {
  operation_record& r = record_of(*this);
  // Pairs with itself, as let_go().
  if (r.executors_.fetch_sub(1, internal::acq_rel) != 1) return;
  {
    boost::asio::any_io_executor over;
    const lock_guard guard(r.lock_);
    std::swap(over, r.executor_);
  }
  let_go();
}

void operation::run_by(boost::asio::any_io_executor own, boost::asio::any_io_executor bound) {
  const auto is_system = [](const boost::asio::any_io_executor& ex) {
    return !ex || ex.target<boost::asio::system_executor>() != nullptr;
  };
  operation_record& r = record_of(*this);
  if (own.target<memory_executor>() != nullptr) is_inside();
  // A fiber may run an io_context itself, but not leave it in the middle of a handler.
  const auto is_run_here = [](const boost::asio::any_io_executor& ex) {
    const auto* const of = ex.target<boost::asio::io_context::executor_type>();
    return of != nullptr && of->running_in_this_thread();
  };
  if (is_run_here(own) || is_run_here(bound)) {
    throw wrong_place(
        "vigil::io::use_fiber: it would have to wait inside a handler of an io_context that this "
        "very fiber runs (run, poll); start a fiber with go, and wait there");
  }
  const auto is_elsewhere = [&](const boost::asio::any_io_executor& ex) {
    return &boost::asio::query(ex, boost::asio::execution::context) != &r.watch_->context();
  };
  if (r.watch_ != nullptr && !is_system(own) && is_elsewhere(own) &&
      (!bound || is_elsewhere(bound))) {
    r.watch_ = nullptr;
  }
  boost::asio::any_io_executor ex;
  if (bound) {
    anywhere_ = is_system(bound);
    // Its context has something to run until the operation is over.
    ex = boost::asio::prefer(bound, boost::asio::execution::outstanding_work.tracked);
  } else {
    anywhere_ = is_system(own) || own.target<boost::asio::io_context::executor_type>() != nullptr;
    ex = std::move(own);
  }
  const lock_guard guard(r.lock_);
  r.executor_ = std::move(ex);
}

boost::asio::any_io_executor operation::executor() {
  operation_record& r = record_of(*this);
  {
    const lock_guard guard(r.lock_);
    if (r.executor_) return r.executor_;
  }
  return boost::asio::system_executor();
}

boost::asio::execution_context& operation::context() {
  return boost::asio::query(executor(), boost::asio::execution::context);
}

boost::asio::any_io_executor operation::posting_executor() {
  return boost::asio::require(executor(), boost::asio::execution::blocking.never);
}

void operation::complete() noexcept {
  record_of(*this).end();
}

void operation::fail(std::exception_ptr error) noexcept {
  error_ = std::move(error);
  complete();
}

void operation::drop() noexcept {
  dropped_ = true;
  complete();
}

void operation::cancel(boost::asio::cancellation_type_t type) noexcept {
  operation_record& r = record_of(*this);
  {
    const lock_guard guard(r.lock_);
    if (r.done_) return;
    if (!r.begun_) {
      r.asked_ |= type;
      return;
    }
  }
  r.enter([&r, type] { r.emit(type); });
}

template <class F>
void operation_record::enter(F f) noexcept {
  try {
    operation_executor<false>(*this).execute(f);
  } catch (...) {
    // No memory for the way to its executor: here, as well as can be.
    const section inside(*this);
    f();
  }
}

operation::section::section(operation& o) noexcept : operation_(o) {
  o.keep();
  record_of(o).section_.lock();
  ++record_of(o).depth_;
  if (internal::fiber* const f = internal::current_fiber()) ++f->no_parks;
}

operation::section::~section() {
  operation_record& r = record_of(operation_);
  if (r.depth_ == 1) {
    r.ask_again();
  } else {
    r.answered_ = true;
  }
  if (internal::fiber* const f = internal::current_fiber()) --f->no_parks;
  --r.depth_;
  r.section_.unlock();
  r.let_go();
}

// Until it is done, the limit or a stop ends the wait, or the limit is to be looked
// at again (`completed`, too).
ending operation_record::wait_once(const wait_limit& limit) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  internal::caller self(limit);
  const bool refused = self.may_not_wait();
  lock_.lock();
  if (done_ || refused || std::exchange(look_again_, false)) {
    const bool stops = !done_ && refused;
    lock_.unlock();
    return stops ? ending::stopped : ending::completed;
  }
  which_ = self.open();
  who_ = &self.self();
  ending how = ending::completed;
  try {
    how = ending_of(self.wait(which_, internal::wait_reason::io, lock_));
  } catch (const std::bad_alloc&) {
    // For a timer, which a limit that is over already does not need.
    how = limit.is_over() ? ending::timed_out : ending::no_memory;
  }
  const lock_guard guard(lock_);
  who_ = nullptr;
  look_again_ = false;
  return how;
}

ending operation::wait(const wait_limit& limit, movable_deadline* moves) {
  const ending how = wait_begun(limit, moves);
  record_of(*this).clear_slot();
  return how;
}

ending operation::wait_begun(const wait_limit& limit, movable_deadline* moves) {
  operation_record& r = record_of(*this);
  auto asked = boost::asio::cancellation_type::none;
  {
    const lock_guard guard(r.lock_);
    if (r.done_) return ending::completed;
    r.begun_ = true;
    asked = r.asked_;
  }
  if (asked != boost::asio::cancellation_type::none) cancel(asked);
  if (outside_) {
    r.sched_.io_begins();
    if (r.watch_ != nullptr) r.watch_->operation_begins();
  }
  ending how = ending::completed;
  do {
    if (moves == nullptr) {
      how = r.wait_once(limit);
      continue;
    }
    how = r.wait_once(limit.until(moves->wait_to(*this)));
    if (moves->is_closed()) {
      if (how == ending::timed_out || !r.is_done()) how = ending::closed;
    } else if (how == ending::timed_out && !moves->is_over()) {
      how = ending::completed;  // it has moved just before it came
    }
  } while (how == ending::completed && !r.is_done());
  if (moves != nullptr) moves->waited();
  const bool cancelled = how != ending::completed && !r.is_done();
  if (cancelled) {
    r.end_wanted_.store(true);
    r.enter([] {});  // O4
    if (outside_ && r.watch_ != nullptr) r.watch_->operation_cancelled();
    r.wait_for_end();
  }
  if (outside_) {
    if (r.watch_ != nullptr) r.watch_->operation_ends(cancelled);
    r.sched_.io_ends();
  }
  return how;
}

void operation::look_again() noexcept {
  operation_record& r = record_of(*this);
  internal::waiter* w = nullptr;
  {
    const lock_guard guard(r.lock_);
    r.look_again_ = true;
    if (r.who_ != nullptr && r.who_->claim(r.which_, outcome::value)) w = r.who_;
    if (w != nullptr) r.who_ = nullptr;
  }
  if (w != nullptr) w->deliver();
}

// --- deadlines that move

struct movable_deadline::part {
  internal::spinlock lock{internal::lock_rank::sync};
  std::int64_t deadline VIGIL_GUARDED_BY(lock) = internal::never;
  std::int64_t waited_to VIGIL_GUARDED_BY(lock) = internal::never;
  bool closed VIGIL_GUARDED_BY(lock) = false;
  bool ended VIGIL_GUARDED_BY(lock) = false;         // the present wait
  bool was_ended_so VIGIL_GUARDED_BY(lock) = false;  // the last one
  operation_ref waiting VIGIL_GUARDED_BY(lock);

  // Under the lock; to be told without it.
  operation_ref to_tell(bool tell) VIGIL_REQUIRES(lock) { return tell ? waiting : operation_ref(); }

  bool has_passed() const VIGIL_REQUIRES(lock) { return vigil::detail::until(deadline).is_over(); }
};

movable_deadline::movable_deadline(time_of name) : part_(std::make_unique<part>()), name_(name) {}

movable_deadline::~movable_deadline() = default;

void movable_deadline::set(std::int64_t deadline) noexcept {
  operation_ref told;
  {
    const lock_guard guard(part_->lock);
    part_->deadline = deadline;
    // A later one is seen when the earlier one has come.
    told = part_->to_tell(deadline < part_->waited_to);
  }
  if (told.get() != nullptr) told->look_again();
}

std::int64_t movable_deadline::value() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->deadline;
}

void movable_deadline::close() noexcept {
  operation_ref told;
  {
    const lock_guard guard(part_->lock);
    part_->closed = true;
    told = part_->to_tell(true);
  }
  if (told.get() != nullptr) told->look_again();
}

// Bytes that have come since put the entry into a list again: then nothing is too long.
void movable_deadline::end_wait(const timeout_list::entry& expired) noexcept {
  operation_ref told;
  {
    const lock_guard guard(part_->lock);
    if (part_->waiting.get() == nullptr || expired.is_linked()) return;
    part_->ended = true;
    told = part_->to_tell(true);
  }
  told->look_again();
}

bool movable_deadline::is_over() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->ended || part_->has_passed();
}

bool movable_deadline::is_closed() const noexcept {
  const lock_guard guard(part_->lock);
  return part_->closed;
}

boost::system::error_code movable_deadline::error() const noexcept {
  const lock_guard guard(part_->lock);
  if (part_->closed) return boost::asio::error::bad_descriptor;
  if (part_->has_passed()) return timed_out_by(name_);
  if (part_->ended) return timed_out_by(time_of::idle);
  return {};
}

boost::system::error_code movable_deadline::wait_error() const noexcept {
  const lock_guard guard(part_->lock);
  return timed_out_by(part_->was_ended_so ? time_of::idle : name_);
}

std::int64_t movable_deadline::wait_to(operation& o) noexcept {
  const lock_guard guard(part_->lock);
  if (part_->waiting.get() == nullptr) {
    part_->waiting = operation_ref::to(o);
  }
  part_->waited_to = part_->closed || part_->ended ? std::int64_t{0} : part_->deadline;
  return part_->waited_to;
}

void movable_deadline::waited() noexcept {
  operation_ref was;  // let go without the lock
  const lock_guard guard(part_->lock);
  std::swap(was, part_->waiting);
  part_->was_ended_so = part_->ended && !part_->has_passed();
  part_->ended = false;
  part_->waited_to = internal::never;
}

void operation::throw_ended(ending how, const wait_limit& limit) {
  switch (how) {
    case ending::stopped:
      internal::throw_stopped(*internal::current_fiber());
    case ending::no_memory:
      throw std::bad_alloc();
    default:
      internal::throw_cancelled(*limit.under);
  }
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io
