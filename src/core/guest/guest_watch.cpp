#include "core/guest/guest_watch.hpp"

#include "core/base/clock_source.hpp"
#include "core/machine/without_signals.hpp"
#include "core/sched/process/process_fork.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <system_error>
#include <utility>

#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

timespec as_timespec(nanos t) noexcept {
  return {t / 1'000'000'000, t % 1'000'000'000};
}

void watch_in(int set, int fd) {
  epoll_event e{};
  e.events = EPOLLIN;
  if (::epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) != 0) {
    throw std::system_error(errno, std::generic_category(), "vigil::guest_runtime: epoll_ctl");
  }
}

}  // namespace

owned_fd::owned_fd(int fd, const char* call) : fd_(fd) {
  if (fd < 0) throw std::system_error(errno, std::generic_category(), call);
}

owned_fd::~owned_fd() {
  ::close(fd_);
}

event_fd::event_fd()
    : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "vigil::guest_runtime: eventfd") {}

// Also called by signal handlers, whose thread keeps its errno.
void event_fd::write() noexcept {
  const int error = errno;
  const std::uint64_t one = 1;
  // A full counter is readable already.
  while (::write(fd_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  errno = error;
}

void event_fd::take() noexcept {
  std::uint64_t ignored = 0;
  while (::read(fd_.get(), &ignored, sizeof ignored) < 0 && errno == EINTR) {
  }
}

guest_watch::guest_watch(const options& settings)
    : on_unhandled_(settings.on_unhandled),
      stack_(settings.main_stack_size),
      timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
             "vigil::guest_runtime: timerfd"),
      set_(::epoll_create1(EPOLL_CLOEXEC), "vigil::guest_runtime: epoll") {
  watch_in(set_.get(), timer_.get());
  watch_in(set_.get(), wake_.event().get());
  if (settings.watch.make == nullptr) return;
  std::unique_ptr<watch> io(settings.watch.make(*settings.watch.context));
  take_in(io);
}

guest_watch::~guest_watch() = default;

// --- the host

void guest_watch::begin() {
  {
    const std::lock_guard guard(lock_);
    if (io_owner_ != nullptr) start_io_thread();
  }
  next_ = 0;
  wake_.leave_work();
}

// The worker of a run() sets the phase first, and looks at is_ending_ afterwards; here it
// is the other way round. All sequentially consistent, so one sees the other.
void guest_watch::end(const run_state& runs) noexcept {
  if (runs.phase() != run_phase::idle) return;
  if (io_thread_.joinable()) {
    io_ends_.store(true);
    io_owner_->interrupt();
    io_thread_.join();
    process_count_own_threads(-1);
    io_owner_->run_ends();
  }
  is_ending_.store(true);
  if (runs.phase() == run_phase::idle) {
    set_timer(never);
    wake_.reset();
  }
  is_ending_.store(false);
}

void guest_watch::run(nanos until) noexcept {
  leaves_at_ = until;
  stack_.enter();
}

void guest_watch::wait_for_descriptor(nanos until) noexcept {
  const nanos now = monotonic_now();
  if (until <= now) return;
  const timespec length = as_timespec(until == never ? 0 : until - now);
  pollfd one{set_.get(), POLLIN, 0};
  ::ppoll(&one, 1, until == never ? nullptr : &length, nullptr);
}

// --- the worker

void guest_watch::prepare() noexcept {
  while (is_ending_.load())
    std::this_thread::yield();
  wake_.clear();
}

// Whether the caller is the worker, in a run that the host has started. Another thread
// may be in runtime().run() meanwhile.
bool guest_watch::is_hosted() const noexcept {
  return stack_.has(__builtin_frame_address(0));
}

void guest_watch::wait_until(nanos deadline) noexcept {
  if (!wake_.may_wait()) return;
  set_timer(deadline);
  next_ = deadline;
  if (is_hosted()) {
    stack_.leave();
  } else {
    // In a run() without a host. If no thread can be started, the next wait tries, soon.
    constexpr nanos next_try = 1'000'000;
    nanos until = never;
    try {
      const std::lock_guard guard(lock_);
      if (io_owner_ != nullptr) start_io_thread();
    } catch (const std::system_error&) {
      until = monotonic_now() + next_try;
    }
    wait_for_descriptor(until);
  }
}

// A timerfd that has fired stays readable until it is set again, even to nothing.
void guest_watch::set_timer(nanos deadline) noexcept {
  const bool has_fired = set_to_ != never && set_to_ <= monotonic_now();
  if (deadline == set_to_ && !has_fired) return;
  set_to_ = deadline;
  itimerspec when{};  // zero disarms it
  if (deadline != never) when.it_value = as_timespec(std::max<nanos>(deadline, 1));
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

void guest_watch::poll() noexcept {
  if (!is_hosted() || monotonic_now() < leaves_at_) return;
  wake_.leave_work();
  stack_.leave();
}

// --- I/O

bool guest_watch::take_in(std::unique_ptr<watch>& io) {
  const std::lock_guard guard(lock_);
  if (io_owner_ != nullptr) return false;
  io_owner_ = std::move(io);
  if (stack_.is_inside()) {  // otherwise begin() starts it
    try {
      start_io_thread();
    } catch (...) {
      io = std::move(io_owner_);
      throw;
    }
  }
  // Pairs with the acquire in as_io_watch().
  io_.store(io_owner_.get(), order::release);
  return true;
}

// Caller: holds the lock.
void guest_watch::start_io_thread() {
  if (io_thread_.joinable()) return;
  io_ends_.store(false);
  io_owner_->run_begins();
  process_count_own_threads(1);
  try {
    const without_signals blocked;
    io_thread_ = std::thread([this] { wait_for_io(); });
  } catch (...) {
    process_count_own_threads(-1);
    io_owner_->run_ends();
    throw;
  }
}

// The thread.
void guest_watch::wait_for_io() noexcept {
  thread_runs_handlers(on_unhandled_.box());
  ::pthread_setname_np(::pthread_self(), "vigil/io");
  while (!io_ends_.load()) {
    io_owner_->prepare();
    if (io_ends_.load()) break;
    io_owner_->wait_until(never);
    io_owner_->after_wait();
  }
}

}  // namespace VIGIL_DETAIL
