#include "io/io_alarm.hpp"

#include "core/base/clock_source.hpp"

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

constexpr nanos longest_hold = 1'000'000;

// The alarm of the calling thread's worker, between begin_wait() and end_wait().
thread_local const io_alarm* inside = nullptr;

// Repeats a call that must not be lost: without it a worker sleeps on. The kernel has no
// passing error for such a call; what sits between it and us (a sandbox, a tracer) may
// have one.
template <class F>
bool insist(F call) noexcept {
  constexpr int tries = 3;
  for (int i = 0; i < tries; ++i) {
    if (call() >= 0) return true;
  }
  return false;
}

// Gives `to` a descriptor that has just been made, and returns it.
template <class Stream>
int registered_fd(Stream& to, int fd, const char* message) {
  boost::system::error_code error(errno, boost::system::system_category());
  if (fd >= 0) {
    to.assign(fd, error);
    if (!error) return fd;
    ::close(fd);
  }
  throw boost::system::system_error(error, message);
}

}  // namespace

// Both handlers keep the alarm alive. IW3
struct io_alarm::wait_handler {
  using allocator_type = io::detail::one_operation_allocator<void>;

  allocator_type get_allocator() const noexcept { return allocator_type(from->memory); }

  void operator()(const boost::system::error_code& error) const {
    if (!error) from->fired.store(true);
    from->armed.store(false);
    alarm->ring();
  }

  std::shared_ptr<io_alarm> alarm;
  source* from;
};

struct io_alarm::rouse_handler {
  using allocator_type = io::detail::one_operation_allocator<void>;

  allocator_type get_allocator() const noexcept { return allocator_type(alarm->rouse_memory_); }

  void operator()() const {
    alarm->rousing_.store(false);
    if (inside != alarm.get() && alarm->waiting_.load()) alarm->rouse();
  }

  std::shared_ptr<io_alarm> alarm;
};

io_alarm::io_alarm(boost::asio::io_context& context)
    : context_(context), registered_(std::make_unique<registered>(context)) {
  timer_.fd = registered_fd(registered_->timer,
                            ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK),
                            "vigil::io: timerfd");
  event_.fd = registered_fd(
      registered_->event, ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "vigil::io: eventfd");
}

void io_alarm::close() noexcept {
  if (!is_context_gone()) {
    registered_.reset();
    return;
  }
  ::close(timer_.fd);
  ::close(event_.fd);
  static std::mutex lock;
  static registered* left = nullptr;
  const std::lock_guard guard(lock);
  registered_->next_left = left;
  left = registered_.release();
}

// --- the run

void io_alarm::hold() noexcept {
  registered_->work.emplace(context_.get_executor());
}

// The handlers of the waits are work until they have run: on a thread of the program's,
// or else in the next run.
void io_alarm::let_go() noexcept {
  boost::system::error_code ignored;
  registered_->timer.cancel(ignored);
  registered_->event.cancel(ignored);
  registered_->work.reset();
}

// --- its handlers

void io_alarm::ring() {
  rung_.store(true);
  if (inside != this && waiting_.load()) rouse();
}

void io_alarm::rouse() {
  if (rousing_.exchange(true)) return;
  boost::asio::post(context_, rouse_handler{shared_from_this()});
  // A worker of another runtime runs this handler, and so comes out by itself.
  if (inside != nullptr) return;
  const nanos until = monotonic_now() + longest_hold;
  while (waiting_.load() && monotonic_now() < until)
    std::this_thread::yield();
}

// --- the worker

void io_alarm::begin_wait() noexcept {
  inside = this;
  waiting_.store(true);
}

void io_alarm::end_wait() noexcept {
  waiting_.store(false);
  inside = nullptr;
}

bool io_alarm::arm() noexcept {
  if (written_.load() && written_.exchange(false)) {
    std::uint64_t ignored = 0;
    // Nothing to read: the writer has not written yet. It ends one later wait early, and
    // only that one: the worker that comes here next reads.
    if (::read(event_.fd, &ignored, sizeof ignored) < 0) written_.store(true);
  }
  return arm(timer_, registered_->timer) && arm(event_, registered_->event);
}

bool io_alarm::arm(source& s, stream& d) noexcept {
  if (s.armed.load() || s.armed.exchange(true)) return true;
  try {
    d.async_wait(stream::wait_read, wait_handler{shared_from_this(), &s});
    return true;
  } catch (const std::bad_alloc&) {  // some of its memory is Asio's
    s.armed.store(false);
    return false;
  }
}

void io_alarm::set_timer(nanos deadline) noexcept {
  itimerspec when{};  // zero disarms it
  if (deadline != never) {
    const nanos at = deadline > 0 ? deadline : 1;
    when.it_value.tv_sec = at / 1'000'000'000;
    when.it_value.tv_nsec = at % 1'000'000'000;
  }
  insist([&] { return ::timerfd_settime(timer_.fd, TFD_TIMER_ABSTIME, &when, nullptr); });
}

bool io_alarm::interrupt() noexcept {
  written_.store(true);
  const std::uint64_t one = 1;
  return insist([&] { return ::write(event_.fd, &one, sizeof one); });
}

}  // namespace VIGIL_DETAIL
