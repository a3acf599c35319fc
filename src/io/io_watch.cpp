#include "io/io_watch.hpp"

#include "core/base/clock_source.hpp"
#include "core/sched/wait/wake_list.hpp"
#include "core/sched/worker/worker.hpp"
#include "io/watch_service.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

// The number of handlers that run before the worker looks at its fibers again.
constexpr int batch = 64;
constexpr nanos look_for_restart = 10'000'000;
constexpr nanos often = 200'000;                // at most this far apart
constexpr nanos rings_within = 4'000'000;       // IW8
constexpr std::chrono::milliseconds moment{1};  // IW9

// Work that the handlers run by the calling thread leave to be done.
struct thread_part {
  bool collects = false;
  wake_list claimed;
};

// Also read on fibers' stacks, by functions that are never inlined there
// (deliver_later()), since the fiber may come back on another thread.
thread_local thread_part this_thread;

// The unwinder finds no caller of this function, so it looks for no catch below. IW7
[[gnu::noinline]] void bottom_of_handlers(void (*call)(void*), void* argument) {
#if defined(__x86_64__)
  asm volatile(".cfi_undefined rip");
#elif defined(__aarch64__)
  asm volatile(".cfi_undefined x30");
#endif
  call(argument);
  asm volatile("" ::: "memory");  // not the end of the function: that would be a jump
}

// Makes the service before the alarm's descriptors, so that it is destroyed after them.
boost::asio::io_context& with_service(boost::asio::io_context& context) {
  if (context.stopped()) {
    throw std::invalid_argument(
        "vigil::io::attach: the io_context is stopped, or has run out of work; call its restart() "
        "before the runtime is made");
  }
  static_cast<void>(watch_service::of(context));
  return context;
}

}  // namespace

io_watch::io_watch(boost::asio::io_context& given) : io_watch(nullptr, &given) {}

io_watch::io_watch() : io_watch(std::make_unique<boost::asio::io_context>(), nullptr) {}

io_watch::io_watch(std::unique_ptr<boost::asio::io_context> own, boost::asio::io_context* given)
    : own_(std::move(own)),
      context_(with_service(given != nullptr ? *given : *own_)),
      alarm_(std::make_shared<io_alarm>(context_)) {
  watch_service::of(context_).add(*this);
}

io_watch::~io_watch() {
  if (!alarm_->is_context_gone()) watch_service::of(context_).remove(*this);
  alarm_->close();
}

// --- the run

// IW10
void io_watch::run_begins() noexcept {
  if (alarm_->is_context_gone() || alarm_->holds()) return;
  alarm_->hold();
  if (!was_stopped_ && context_.stopped()) watch_service::of(context_).restart();
}

void io_watch::run_ends() noexcept {
  if (alarm_->is_context_gone()) return;
  was_stopped_ = context_.stopped();
  alarm_->let_go();
}

// --- the worker

void io_watch::prepare() noexcept {
  {
    const lock_guard guard(timer_lock_);
    earliest_ = never;
    usable_ = true;
  }
  note_.clear();
  alarm_->prepare();
  // seq_cst: before the worker publishes its sleep.
  interrupted_.store(false);
}

void io_watch::wait_until(nanos deadline) noexcept {
  if (alarm_->is_context_gone() || !enter()) {
    sleep_outside(deadline);
    return;
  }
  set_timer(deadline);
  const bool armed = alarm_->arm();
  const bool has_run = armed && wait_inside();
  const bool stopped = !has_run && context_.stopped();
  if (stopped && cancelled() != 0) end_cancelled();
  leave();
  if (!this_thread.claimed.empty() || alarm_->has_rung()) return;
  if (!armed) {
    constexpr nanos until_next_try = 1'000'000;
    note_.sleep_until(std::min(deadline, monotonic_now() + until_next_try));
  } else if (stopped) {
    sleep_outside(deadline);
  }
}

bool io_watch::enter() noexcept {
  bool taken = false;
  return inside_.compare_exchange_strong(taken, true);
}

void io_watch::leave() noexcept {
  inside_.store(false);
  look_again();  // IW2
}

void io_watch::set_timer(nanos deadline) noexcept {
  const lock_guard guard(timer_lock_);
  if (deadline < earliest_) earliest_ = deadline;  // earlier() may have been called first
  // A timer that has fired stays readable until it is set again, even to nothing.
  const bool has_fired = alarm_->take_fired();
  if (!has_fired && earliest_ == set_to_) return;
  const nanos now = monotonic_now();
  const nanos soon = saturating_add(now, rings_within);
  if (!has_fired && set_to_ > now && set_to_ < std::min(earliest_, soon)) return;  // IW8
  const bool moves_often = now - moved_at_ < often;
  moved_at_ = now;
  write_timer(moves_often ? std::min(earliest_, soon) : earliest_);
}

void io_watch::write_timer(nanos deadline) noexcept {
  set_to_ = deadline;
  alarm_->set_timer(deadline);
}

bool io_watch::earlier(nanos deadline) noexcept {
  const lock_guard guard(timer_lock_);
  if (!usable_) return false;
  if (deadline < earliest_) {
    earliest_ = deadline;
    if (deadline < set_to_) write_timer(deadline);
  }
  return true;
}

bool io_watch::wait_inside() noexcept {
  bool has_run = false;
  alarm_->begin_wait();
  if (!is_called_out()) {  // IW1 of io_alarm.hpp
    this_thread.collects = true;
    has_run = run([&] { return context_.run_one(); }) != 0;
    if (has_run && !is_called_out() && !has_something_to_do()) {  // IW9
      run([&] { return context_.run_one_for(moment); });
    }
    alarm_->got_out();
    if (!this_thread.claimed.empty()) take_more();
    this_thread.collects = false;
  }
  alarm_->end_wait();
  return has_run;
}

bool io_watch::is_called_out() const noexcept {
  return interrupted_.load() || alarm_->has_rung();
}

// Called after a handler.
bool io_watch::has_something_to_do() noexcept {
  const worker* const here = current_worker();  // none in a test of the watch alone
  return !this_thread.claimed.empty() || (here != nullptr && here->has_ready());
}

// Where one operation has ended there may be more. To find that there are no more costs a
// system call, so the worker takes as many as there were of late, and all of them now and
// then. The others are taken when the worker comes here next, or by the worker that takes
// over.
void io_watch::take_more() noexcept {
  constexpr std::uint32_t look_closer = 64;
  const int most = ++looks_ % look_closer == 0 ? batch : expected_;
  int taken = 0;
  while (taken < most && run([&] { return context_.poll_one(); }) != 0)
    ++taken;
  if (taken < most || most == batch) expected_ = taken;
}

// Returns how many handlers have run. IW7
template <class F>
std::size_t io_watch::run(F f) noexcept {
  if (!handlers_are_caught()) {
    std::size_t n = 0;
    auto call = [&] { n = f(); };
    bottom_of_handlers([](void* c) { (*static_cast<decltype(call)*>(c))(); }, &call);
    return n;
  }
  try {
    return f();
  } catch (...) {
    report_of_handler(std::current_exception());
    return 1;
  }
}

// Sleeps on the note: the io_context is stopped, gone, or held by a worker that polls it.
void io_watch::sleep_outside(nanos deadline) noexcept {
  {
    const lock_guard guard(timer_lock_);
    usable_ = false;
    if (earliest_ < deadline) deadline = earliest_;
  }
  on_note_.store(true);
  if (!interrupted_.load()) {
    if (alarm_->is_context_gone()) {
      note_.sleep_until(deadline);
    } else if (context_.stopped()) {
      if (operations_.load() != 0) {
        deadline = std::min(deadline, monotonic_now() + look_for_restart);
      }
      note_.sleep_until(deadline);
    } else if (inside_.load()) {
      note_.sleep_until(deadline);
    }
  }
  on_note_.store(false);
}

void io_watch::run_ready() noexcept {
  for (int i = 0; i < batch; ++i) {
    if (run([&] { return context_.poll_one(); }) == 0) break;
  }
}

// Ends the operations cancelled in a stopped io_context. The caller's threads that have
// not yet seen the stop see it afterwards. IW6
void io_watch::end_cancelled() noexcept {
  auto& service = watch_service::of(context_);
  if (!service.restart_for_a_moment()) return;
  this_thread.collects = true;
  run_ready();
  this_thread.collects = false;
  service.moment_is_over();
}

void io_watch::after_wait() noexcept {
  this_thread.claimed.deliver();
}

// Not inlined, because handlers also run on fibers' stacks.
[[gnu::noinline]] bool io_watch::deliver_later(waiter& claimed) noexcept {
  thread_part& here = this_thread;
  if (here.collects) here.claimed.add(claimed);
  return here.collects;
}

// --- other threads

bool io_watch::interrupt(waker origin) noexcept {
  if (interrupted_.exchange(true)) return false;
  return note_.wake(origin) || alarm_->interrupt();
}

bool io_watch::needs_poll() const noexcept {
  return !inside_.load() && !alarm_->is_context_gone();
}

void io_watch::poll() noexcept {
  if (!enter()) return;
  if (!context_.stopped()) {
    run_ready();
  } else if (cancelled() != 0) {
    end_cancelled();
  }
  leave();
  after_wait();
}

}  // namespace VIGIL_DETAIL
