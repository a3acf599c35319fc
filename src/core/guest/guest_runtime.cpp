#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/guest/guest_watch.hpp"
#include "core/machine/process_state.hpp"
#include "core/runtime/runtime_core.hpp"

#include <vigil/error.hpp>
#include <vigil/guest.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {

thread_local bool thread_is_ending = false;

// A number that no other thread of the process has or will have.
std::uint64_t number_of_thread() noexcept {
  static atomic<std::uint64_t> last{0};

  struct number {
    ~number() { thread_is_ending = true; }

    const std::uint64_t own = last.fetch_add(1) + 1;
  };

  thread_local const number one;
  return one.own;
}

// True if a guest that is being destroyed has static storage: at the end of the program
// the objects of the thread go before the static ones. A guest that is an object of the
// thread goes before its number, since the constructor has asked for that.
bool is_at_exit() noexcept {
  return thread_is_ending || process_is_exiting();
}

class guest_core {
 public:
  explicit guest_core(const scheduler_options& o)
      : guest_core(o, std::make_unique<guest_watch>(o)) {}

  ~guest_core();
  guest_core(const guest_core&) = delete;
  guest_core& operator=(const guest_core&) = delete;

  void begin(callback main);
  // Throws wrong_place.
  void check_caller(const char* call) const;
  // Lets the run go on until it has nothing to do, or until about that time. Returns
  // whether it has not ended.
  bool run(nanos until);

  // Changes whenever a fiber has run.
  std::uint64_t switches() const noexcept { return worker_.counters.switches.get(); }

  bool is_running() const noexcept { return state_.load() != state::idle; }

  guest_watch& watch() noexcept { return watch_; }

  runtime& of_host() noexcept { return runtime_; }

 private:
  enum class state : std::uint8_t { idle, started, running };

  guest_core(const scheduler_options& o, std::unique_ptr<guest_watch> w)
      : on_unhandled_(o.on_unhandled),
        watch_(*w),
        runtime_(runtime_access::over(std::make_unique<runtime_core>(o, std::move(w)))),
        worker_(*runtime_access::core_of(runtime_).sched.workers()[0]) {
    number_of_thread();  // see is_at_exit()
  }

  static void on_own_stack(void* core) noexcept;

  const shared_call<void(std::exception_ptr)> on_unhandled_;
  guest_watch& watch_;
  runtime runtime_;
  worker& worker_;
  callback main_;
  std::exception_ptr error_;
  atomic<std::uint64_t> host_{0};  // the thread
  atomic<state> state_{state::idle};
};

// The whole run is on the side stack.
void guest_core::on_own_stack(void* core) noexcept {
  auto& self = *static_cast<guest_core*>(core);
  try {
    self.runtime_.run(self.main_);
  } catch (...) {
    self.error_ = std::current_exception();
  }
  self.state_.store(state::idle);
  self.watch_.stack().leave_for_ever();
}

void guest_core::begin(callback main) {
  if (is_running()) {
    throw wrong_place(
        "vigil::guest_runtime::start: the main fiber of an earlier call has not ended; use "
        "runtime().go(), or wait until poll() returns false");
  }
  if (worker_.sched.state.phase() != run_phase::idle) {
    throw wrong_place(
        "vigil::guest_runtime::start: the runtime is in runtime().run() on another thread; wait "
        "until that has returned");
  }
  host_.store(number_of_thread());
  check_caller("start");
  main_ = std::move(main);
  watch_.begin();
  watch_.stack().prepare(&on_own_stack, this);
  state_.store(state::started);
}

void guest_core::check_caller(const char* call) const {
  if (current_worker() != nullptr || watch_.stack().is_inside() || is_handlers_thread()) {
    throw wrong_place((std::string("vigil::guest_runtime::") + call +
                       ": the caller is a fiber, or a handler of the library; only the host's "
                       "loop may call this")
                          .c_str());
  }
  if (!is_running() || host_.load() == number_of_thread()) return;
  throw wrong_place((std::string("vigil::guest_runtime::") + call +
                     ": the runtime lives on the thread that has called start()")
                        .c_str());
}

bool guest_core::run(nanos until) {
  if (is_running()) {
    process_check_fork("vigil::guest_runtime::poll");
    state_.store(state::running);
    // ordering: the worker's, which runs on this thread.
    worker_.sched.next_poll.store(until, order::relaxed);
    watch_.run(until);
    if (is_running()) return true;
    watch_.stack().finish();
  }
  watch_.end(worker_.sched.state);
  const std::exception_ptr error = std::exchange(error_, nullptr);
  main_.reset();
  if (error != nullptr) std::rethrow_exception(error);
  return false;
}

guest_core::~guest_core() {
  if (state_.load() == state::started) {
    watch_.stack().finish();
    watch_.end(worker_.sched.state);
    return;
  }
  if (!is_running()) {
    watch_.end(worker_.sched.state);  // after a run() without a host
    return;
  }
  if (current_worker() != nullptr || host_.load() != number_of_thread()) {
    fatal(
        "a vigil::guest_runtime is destroyed while it runs, in a fiber or on a thread other than "
        "the host's; end it there first: runtime().request_stop(), then poll() until it is false");
  }
  runtime_.request_stop();
  try {
    while (run(never))
      watch_.wait_for_descriptor(never);
  } catch (...) {
    if (on_unhandled_ == nullptr) std::terminate();
    on_unhandled_(std::current_exception());
  }
}

}  // namespace detail

namespace {

constexpr detail::nanos longest_poll = 1'000'000;

detail::scheduler_options of_guest(const options& settings) {
  detail::scheduler_options o = detail::checked(settings);
  if (settings.workers > 1) {
    throw std::invalid_argument(
        "vigil::guest_runtime: options::workers is " + std::to_string(settings.workers) +
        "; a guest has one worker, the host's thread, so leave it 0. For more work at once use "
        "blocking(), or a runtime on another thread");
  }
  o.workers = 1;
  o.is_guest = true;
  o.stuck_limit = std::chrono::nanoseconds(0);  // it stands still whenever the host does
  return o;
}

}  // namespace

guest_runtime::guest_runtime(const options& settings)
    : core_(new detail::guest_core(of_guest(settings))) {}

guest_runtime::~guest_runtime() {
  // The objects that its fibers use may be gone: as with a runtime, it is left alone.
  if (core_->is_running() && detail::is_at_exit()) return;
  delete core_;
}

void guest_runtime::begin(detail::callback main) {
  core_->begin(std::move(main));
}

bool guest_runtime::poll() {
  core_->check_caller("poll");
  return core_->run(detail::saturating_add(detail::monotonic_now(), longest_poll));
}

bool guest_runtime::run_one() {
  core_->check_caller("run_one");
  const std::uint64_t before = core_->switches();
  while (core_->run(detail::saturating_add(detail::monotonic_now(), longest_poll))) {
    if (core_->switches() != before) return true;
    core_->watch().wait_for_descriptor(detail::never);
  }
  return false;
}

bool guest_runtime::run_for_nanos(std::int64_t length) {
  if (length <= 0) return poll();
  core_->check_caller("run_for");
  const detail::nanos end = detail::saturating_add(detail::monotonic_now(), length);
  while (core_->run(end)) {
    if (detail::monotonic_now() >= end) return true;
    core_->watch().wait_for_descriptor(end);
  }
  return false;
}

clock::time_point guest_runtime::next_deadline() const noexcept {
  if (!core_->is_running()) return clock::time_point::max();
  return clock::time_point(std::chrono::nanoseconds(core_->watch().wants_to_run_at()));
}

int guest_runtime::descriptor() const noexcept {
  return core_->watch().descriptor();
}

runtime& guest_runtime::runtime() noexcept {
  return core_->of_host();
}

}  // namespace VIGIL_PUBLIC
