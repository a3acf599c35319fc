#include "io/io_watch.hpp"

#include "base/assert.hpp"
#include "base/clock_source.hpp"
#include "io/operation.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <new>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>
#include <boost/system/system_error.hpp>

#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace vigil::internal {
namespace {

// How many handlers are run before the worker looks at its fibers again.
constexpr int batch = 64;
constexpr nanos look_for_restart = 10'000'000;
constexpr nanos longest_hold = 1'000'000;

// Calls that must not be lost: without them a worker sleeps on. The kernel has no
// error for them that could pass; what sits between it and us (a sandbox, a tracer)
// may.
template <class F>
bool insist(F call) noexcept {
  constexpr int tries = 3;
  for (int i = 0; i < tries; ++i) {
    if (call() >= 0) return true;
  }
  return false;
}

// The memory of an operation of which there is one at a time. Who allocates has
// seen, through an atomic, that the one before is over.
struct one_operation {
  static constexpr std::size_t room = 256;
  alignas(std::max_align_t) std::byte bytes[room];
  bool used = false;
};

template <class T>
class one_operation_allocator {
 public:
  using value_type = T;

  explicit one_operation_allocator(one_operation& m) noexcept : memory_(&m) {}

  template <class U>
  one_operation_allocator(const one_operation_allocator<U>& other) noexcept
      : memory_(other.memory_) {}

  T* allocate(std::size_t n) {
    const std::size_t bytes = n * sizeof(T);
    if (memory_->used || bytes > one_operation::room) {
      return static_cast<T*>(::operator new(bytes));
    }
    memory_->used = true;
    return reinterpret_cast<T*>(memory_->bytes);
  }

  void deallocate(T* p, std::size_t) noexcept {
    if (reinterpret_cast<std::byte*>(p) == memory_->bytes) {
      memory_->used = false;
    } else {
      ::operator delete(static_cast<void*>(p));
    }
  }

  template <class U>
  friend bool operator==(const one_operation_allocator& a,
                         const one_operation_allocator<U>& b) noexcept {
    return a.memory_ == b.memory_;
  }

  one_operation* memory_;
};

// Its own file descriptor until a stream_descriptor has it.
class owned_fd {
 public:
  owned_fd(int fd, const char* what) : fd_(fd) {
    if (fd < 0) {
      throw boost::system::system_error(
          boost::system::error_code(errno, boost::system::system_category()), what);
    }
  }

  ~owned_fd() {
    if (fd_ >= 0) ::close(fd_);
  }

  owned_fd(const owned_fd&) = delete;
  owned_fd& operator=(const owned_fd&) = delete;

  int get() const noexcept { return fd_; }

  int give_away() noexcept { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

}  // namespace

struct io_watch::shared_part : std::enable_shared_from_this<shared_part> {
  explicit shared_part(boost::asio::io_context& c) noexcept : context(c) {}

  // --- by handlers, on any thread that runs the io_context
  void ring();
  void rouse();

  boost::asio::io_context& context;
  atomic<bool> gone{false};         // the io_context has been destroyed
  atomic<bool> rung{false};         // the worker is to come out
  atomic<bool> waiting{false};      // it is in run_one(), or about to go there
  atomic<bool> timer_armed{false};  // a wait is outstanding
  atomic<bool> event_armed{false};
  atomic<bool> timer_fired{false};
  atomic<bool> rousing{false};  // a posted handler is on its way
  one_operation timer_memory;
  one_operation event_memory;
  one_operation rouse_memory;
};

namespace {

using shared_part = io_watch::shared_part;

// What the calling thread is in, and what its handlers have left to be done.
struct thread_part {
  const shared_part* inside = nullptr;
  bool collects = false;
  io::detail::operation* first = nullptr;
  io::detail::operation* last = nullptr;
};

// Read on fibers' stacks, too, by functions that are never inlined there
// (deliver_later()): the fiber may come back on another thread.
thread_local thread_part this_thread;

struct timer_handler {
  using allocator_type = one_operation_allocator<void>;

  allocator_type get_allocator() const noexcept { return allocator_type(shared->timer_memory); }

  void operator()(const boost::system::error_code& error) const {
    if (!error) shared->timer_fired.store(true);
    shared->timer_armed.store(false);
    shared->ring();
  }

  std::shared_ptr<shared_part> shared;
};

struct event_handler {
  using allocator_type = one_operation_allocator<void>;

  allocator_type get_allocator() const noexcept { return allocator_type(shared->event_memory); }

  void operator()(const boost::system::error_code&) const {
    shared->event_armed.store(false);
    shared->ring();
  }

  std::shared_ptr<shared_part> shared;
};

struct rouse_handler {
  using allocator_type = one_operation_allocator<void>;

  allocator_type get_allocator() const noexcept { return allocator_type(shared->rouse_memory); }

  void operator()() const {
    shared->rousing.store(false);
    if (this_thread.inside != shared.get() && shared->waiting.load()) shared->rouse();
  }

  std::shared_ptr<shared_part> shared;
};

// One for each io_context: hears of its end, and of who restarts it.
class watch_service final : public boost::asio::execution_context::service {
 public:
  using key_type = watch_service;
  static boost::asio::execution_context::id id;

  explicit watch_service(boost::asio::execution_context& context) : service(context) {}

  void add(io_watch& w) {
    const std::lock_guard guard(lock_);
    watches_.push_back(&w);
  }

  void remove(io_watch& w) noexcept {
    const std::lock_guard guard(lock_);
    std::erase(watches_, &w);
  }

  void restart() {
    const std::lock_guard guard(lock_);
    asked_for_ = true;
    own().restart();
    for (io_watch* const w : watches_)
      w->context_restarted();
  }

  // False if it is not stopped any more. W6
  bool restart_for_a_moment() {
    const std::lock_guard guard(lock_);
    if (!own().stopped()) return false;
    asked_for_ = false;
    own().restart();
    return true;
  }

  void moment_is_over() {
    const std::lock_guard guard(lock_);
    if (!asked_for_) own().stop();
  }

 private:
  boost::asio::io_context& own() noexcept {
    return static_cast<boost::asio::io_context&>(context());
  }

  void shutdown() override {
    const std::lock_guard guard(lock_);
    for (io_watch* const w : watches_)
      w->context_gone();
    watches_.clear();
  }

  std::mutex lock_;
  std::vector<io_watch*> watches_;
  bool asked_for_ = false;  // by restart(), since the last moment began
};

boost::asio::execution_context::id watch_service::id;

}  // namespace

void restart_context(boost::asio::io_context& context) {
  boost::asio::use_service<watch_service>(context).restart();
}

void io_watch::context_gone() noexcept {
  shared_->gone.store(true);
}

void io_watch::shared_part::ring() {
  rung.store(true);
  if (this_thread.inside != this && waiting.load()) rouse();
}

void io_watch::shared_part::rouse() {
  if (rousing.exchange(true)) return;
  boost::asio::post(context, rouse_handler{shared_from_this()});
  // A worker of another runtime comes out by itself: it runs this handler.
  if (this_thread.inside != nullptr) return;
  const nanos until = monotonic_now() + longest_hold;
  while (waiting.load() && monotonic_now() < until)
    std::this_thread::yield();
}

namespace {

// The unwinder finds no caller of this function, so it does not look for one who
// catches. W7
[[gnu::noinline]] void bottom_of_handlers(void (*call)(void*), void* argument) {
#if defined(__x86_64__)
  asm volatile(".cfi_undefined rip");
#elif defined(__aarch64__)
  asm volatile(".cfi_undefined x30");
#endif
  call(argument);
  asm volatile("" ::: "memory");  // not the end of the function: that would be a jump
}

}  // namespace

struct io_watch::descriptors {
  using stream =
      boost::asio::posix::basic_stream_descriptor<boost::asio::io_context::executor_type>;

  explicit descriptors(boost::asio::io_context& context)
      : timer(context.get_executor()), event(context.get_executor()), work(context.get_executor()) {
    owned_fd t(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK), "vigil::io: timerfd");
    owned_fd e(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "vigil::io: eventfd");
    timer.assign(t.get());
    timer_fd = t.give_away();
    event.assign(e.get());
    event_fd = e.give_away();
  }

  int timer_fd = -1;
  int event_fd = -1;
  stream timer;
  stream event;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  descriptors* next_left = nullptr;  // see ~io_watch()
};

io_watch::io_watch(boost::asio::io_context& given) : io_watch(nullptr, &given) {}

io_watch::io_watch() : io_watch(std::make_unique<boost::asio::io_context>(), nullptr) {}

io_watch::io_watch(std::unique_ptr<boost::asio::io_context> own, boost::asio::io_context* given)
    : own_(std::move(own)),
      context_(given != nullptr ? *given : *own_),
      shared_(std::make_shared<shared_part>(context_)) {
  if (context_.stopped()) {
    throw std::invalid_argument(
        "vigil::io::attach: the io_context is stopped, or has run out of work; call its restart() "
        "before the runtime is made");
  }
  auto& service = boost::asio::use_service<watch_service>(context_);
  descriptors_ = std::make_unique<descriptors>(context_);
  service.add(*this);
}

io_watch::~io_watch() {
  if (!shared_->gone.load()) {
    boost::asio::use_service<watch_service>(context_).remove(*this);
    return;
  }
  // W3. Their destructors would ask the io_context.
  ::close(descriptors_->timer_fd);
  ::close(descriptors_->event_fd);
  static std::mutex lock;
  static descriptors* left = nullptr;
  const std::lock_guard guard(lock);
  descriptors_->next_left = left;
  left = descriptors_.release();
}

// --- the worker

void io_watch::prepare() noexcept {
  {
    const lock_guard guard(timer_lock_);
    earliest_ = never;
    usable_ = true;
  }
  note_.clear();
  shared_->rung.store(false);
  // seq_cst: before the worker publishes its sleep.
  interrupted_.store(false);
}

void io_watch::wait_until(nanos deadline) noexcept {
  if (shared_->gone.load() || !enter()) {
    sleep_outside(deadline);
    return;
  }
  set_timer(deadline);
  const bool armed = arm();
  if (armed) wait_inside();
  const bool stopped = context_.stopped();
  if (stopped && cancelled() != 0) end_cancelled();
  leave();
  if (this_thread.first != nullptr || shared_->rung.load()) return;
  if (!armed) {
    constexpr nanos moment = 1'000'000;
    note_.sleep_until(std::min(deadline, monotonic_now() + moment));
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
  look_again();  // W2
}

// One wait outstanding for each of the two.
bool io_watch::arm() noexcept {
  if (written_.exchange(false)) {
    std::uint64_t ignored = 0;
    // Nothing there: the writer has not come to it yet. It ends a later wait early,
    // and no more than that one: who comes here next reads.
    if (::read(descriptors_->event_fd, &ignored, sizeof ignored) < 0) written_.store(true);
  }
  // Not all of the memory for them is ours.
  const auto wait = [](atomic<bool>& is_armed, descriptors::stream& d, auto handler) {
    if (is_armed.exchange(true)) return true;
    try {
      d.async_wait(boost::asio::posix::descriptor_base::wait_read, std::move(handler));
      return true;
    } catch (const std::bad_alloc&) {
      is_armed.store(false);
      return false;
    }
  };
  return wait(shared_->timer_armed, descriptors_->timer, timer_handler{shared_}) &&
         wait(shared_->event_armed, descriptors_->event, event_handler{shared_});
}

void io_watch::set_timer(nanos deadline) noexcept {
  const lock_guard guard(timer_lock_);
  if (deadline < earliest_) earliest_ = deadline;  // earlier() may have come first
  // One that has fired stays readable until it is set, be it to nothing.
  const bool has_fired = shared_->timer_fired.exchange(false);
  if (has_fired || earliest_ != set_to_) write_timer(earliest_);
}

void io_watch::write_timer(nanos deadline) noexcept {
  set_to_ = deadline;
  itimerspec when{};  // zero disarms it
  if (deadline != never) {
    const nanos at = deadline > 0 ? deadline : 1;
    when.it_value.tv_sec = at / 1'000'000'000;
    when.it_value.tv_nsec = at % 1'000'000'000;
  }
  insist(
      [&] { return ::timerfd_settime(descriptors_->timer_fd, TFD_TIMER_ABSTIME, &when, nullptr); });
}

bool io_watch::earlier(nanos deadline) noexcept {
  const lock_guard guard(timer_lock_);
  if (!usable_) return false;
  if (deadline < earliest_) {
    earliest_ = deadline;
    write_timer(deadline);
  }
  return true;
}

void io_watch::wait_inside() noexcept {
  shared_->waiting.store(true);
  if (!interrupted_.load() && !shared_->rung.load()) {  // W1
    this_thread.inside = shared_.get();
    this_thread.collects = true;
    run([&] { return context_.run_one(); });
    shared_->waiting.store(false);
    if (this_thread.first != nullptr) take_more();
    this_thread.collects = false;
    this_thread.inside = nullptr;
  }
  shared_->waiting.store(false);
}

// Where one operation has come to its end there may be more. To find that there
// are no more costs a system call: as many are taken as there were of late, and
// now and then all. What is left is taken in when the worker comes here next, or
// by the one that takes over.
void io_watch::take_more() noexcept {
  constexpr std::uint32_t look_closer = 16;
  const int most = ++looks_ % look_closer == 0 ? batch : expected_;
  int taken = 0;
  while (taken < most && run([&] { return context_.poll_one(); }) != 0)
    ++taken;
  if (taken < most || most == batch) expected_ = taken;
}

// Returns how many handlers have run. W7
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

// The io_context is stopped, gone, or held by a worker that polls it.
void io_watch::sleep_outside(nanos deadline) noexcept {
  {
    const lock_guard guard(timer_lock_);
    usable_ = false;
    if (earliest_ < deadline) deadline = earliest_;
  }
  on_note_.store(true);
  if (!interrupted_.load()) {
    if (shared_->gone.load()) {
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

// What was cancelled in a stopped io_context ends there nevertheless. Threads of
// the caller's that have not yet seen the stop see it afterwards.
void io_watch::end_cancelled() noexcept {
  auto& service = boost::asio::use_service<watch_service>(context_);
  if (!service.restart_for_a_moment()) return;
  this_thread.collects = true;
  for (int i = 0; i < batch; ++i) {
    if (run([&] { return context_.poll_one(); }) == 0) break;
  }
  this_thread.collects = false;
  service.moment_is_over();
}

void io_watch::got_up() noexcept {
  while (io::detail::operation* const o = this_thread.first) {
    this_thread.first = o->next_ready;
    deliver(*o);
  }
}

// Not inlined: handlers run on fibers' stacks, too.
[[gnu::noinline]] bool io_watch::deliver_later(io::detail::operation& o) noexcept {
  thread_part& here = this_thread;
  if (!here.collects) return false;
  o.next_ready = nullptr;
  if (here.first == nullptr) {
    here.first = &o;
  } else {
    here.last->next_ready = &o;
  }
  here.last = &o;
  return true;
}

// --- others

bool io_watch::interrupt(waker who) noexcept {
  if (interrupted_.exchange(true)) return false;
  if (note_.wake(who)) return true;
  written_.store(true);
  const std::uint64_t one = 1;
  return insist([&] { return ::write(descriptors_->event_fd, &one, sizeof one); });
}

bool io_watch::needs_poll() const noexcept {
  return !inside_.load() && !shared_->gone.load();
}

void io_watch::poll() noexcept {
  if (!enter()) return;
  if (!context_.stopped()) {
    for (int i = 0; i < batch; ++i) {
      if (run([&] { return context_.poll_one(); }) == 0) break;
    }
  } else if (cancelled() != 0) {
    end_cancelled();
  }
  leave();
  got_up();
}

}  // namespace vigil::internal
