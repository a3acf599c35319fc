// The trace on request, and on the events that inspect::record_on names.
#include "core/base/assert.hpp"
#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/ticks.hpp"
#include "core/sched/record/record_trigger.hpp"
#include "core/sched/wait/note.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/asking_signal.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/perfetto_trace.hpp"
#include "inspect/recording.hpp"
#include "inspect/trace_file.hpp"

#include <vigil/inspect.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

using inspect::record_options;

void write_file(std::FILE* out, const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), out) != bytes.size() || std::fflush(out) != 0) {
    throw std::system_error(
        errno, std::generic_category(), "vigil::inspect::write_trace: the file cannot be written");
  }
}

struct reason {
  char text[96];
};

reason reason_of(trigger_kind kind, nanos by) noexcept {
  reason r{};
  const double ms = static_cast<double>(by) / 1e6;
  switch (kind) {
    case trigger_kind::timer_late:
      std::snprintf(r.text, sizeof r.text, "a timer fired %.3f ms late", ms);
      break;
    case trigger_kind::ran_long:
      std::snprintf(r.text, sizeof r.text, "a fiber ran for %.3f ms", ms);
      break;
    case trigger_kind::deadline_missed:
      std::snprintf(r.text, sizeof r.text, "a context ended by its deadline");
      break;
  }
  return r;
}

// Writes the files of record_on(). Lives for ever: a worker, or a handler, may be in it.
// Each process has its own. That of the parent is left as fork() found it: without its
// thread, and perhaps with its lock held.
//
// A worker that has seen an event takes the claim, writes the event down, marks the claim
// as filled and wakes the thread, which gives it back after the file. While it is taken
// other events pass. On virtual time the worker itself has the file written, and the
// claim is never filled.
class trace_writer {
 public:
  static void set(const record_options& o, const record_triggers::limits& limits) {
    of_process().take(o, limits);
  }

 private:
  explicit trace_writer(trace_writer* before) noexcept
      : before_(before), signal_(before != nullptr ? before->signal_.load() : 0) {}

  static trace_writer& of_process() {
    trace_writer* present = the.load();
    while (present == nullptr || present->process_ != ::getpid()) {
      std::unique_ptr<trace_writer> made(new trace_writer(present));
      if (the.compare_exchange_strong(present, made.get())) return *made.release();
    }
    return *present;
  }

  void take(const record_options& o, const record_triggers::limits& limits) {
    const std::lock_guard guard(lock_);
    const bool is_wanted =
        o.signal != 0 || o.deadline_missed || limits.timer_late != never || limits.ran_for != never;
    if (o.signal != 0) check_asking_signal("record_on", o.signal, &on_signal);
    if (is_wanted && !has_thread_) start_thread();
    take_asking_signal(o.signal, signal_.exchange(o.signal), &on_signal);
    options_ = o;
    written_ = 0;
    last_number_ = 0;
    last_failure_.clear();
    calls_.fetch_add(1);
    // ordering: a limit that is looked at in the moment of an event.
    not_before_.store(o.files == 0 ? never : 0, order::relaxed);
    triggers.set(limits, &trace_writer::happened);
  }

  static void happened(trigger_kind kind, nanos by, event_clock clock) noexcept {
    trace_writer& w = *the.load();
    // ordering: as above.
    if (monotonic_now() < w.not_before_.load(order::relaxed)) return;
    const unsigned call = w.calls_.load();
    int expected = free_claim;
    if (!w.claim_.compare_exchange_strong(expected, taken_claim)) return;
    if (w.process_ != ::getpid()) return;  // the claim stays taken
    w.kind_ = kind;
    w.by_ = by;
    w.call_ = call;
    if (clock != event_clock::is_virtual) {
      w.claim_.store(filled_claim);  // publishes the event
      w.wake_.wake();
      return;
    }
    try {
      on_own_thread(never, [&w] { w.write_event(); });
    } catch (const std::exception& e) {
      const std::lock_guard guard(w.lock_);
      w.tell_failure(reason_of(kind, by).text, e);
      w.put_off();
    }
    w.claim_.store(free_claim);
  }

  static void on_signal(int number) {
    const int error_number = errno;
    trace_writer& w = *the.load();
    if (w.signal_.load() != number) {
      act_by_default(number, &on_signal);
    } else if (w.process_ != ::getpid()) {
      warn(
          "record_on: signal %d writes no trace in a child of fork() that has not called record_on",
          number);
    } else {
      w.signalled_.store(true);
      w.wake_.wake(waker::signal_handler);
    }
    errno = error_number;
  }

  // Caller: holds the lock.
  void start_thread() {
    start_own_thread([this] {
      ::pthread_setname_np(::pthread_self(), "vigil/trace");
      body();
    });
    has_thread_ = true;
  }

  [[noreturn]] void body() noexcept {
    for (;;) {
      wake_.clear();
      if (signalled_.exchange(false)) write_next("a signal asked for it", calls_.load());
      if (claim_.load() == filled_claim) {
        write_event();
        claim_.store(free_claim);
        continue;
      }
      wake_.sleep_until(never);
    }
  }

  void write_event() noexcept { write_next(reason_of(kind_, by_).text, call_); }

  void write_next(const char* why, unsigned call) noexcept {
    const std::lock_guard guard(lock_);
    // ordering: as above.
    const nanos not_before = not_before_.load(order::relaxed);
    if (call != calls_.load() || monotonic_now() < not_before) return;
    try {
      const std::vector<recording> all = collect_recordings(never);
      if (all.empty()) {
        warn("record_on: %s; no trace is written, since no runtime runs that records", why);
        return;
      }
      const numbered_file file =
          write_trace_file(options_.path, last_number_ + 1, to_perfetto(all));
      warn("record_on: %s; the trace is in %s", why, file.name.c_str());
      last_number_ = file.number;
      ++written_;
      last_failure_.clear();
    } catch (const std::exception& e) {
      tell_failure(why, e);
    }
    put_off();
  }

  // Tells a trouble once, since it may last for days, until there is another or a file.
  // Caller: holds the lock.
  void tell_failure(const char* why, const std::exception& e) noexcept {
    const auto* const with_code = dynamic_cast<const std::system_error*>(&e);
    const std::error_code failure = with_code != nullptr
                                        ? with_code->code()
                                        : std::make_error_code(std::errc::not_enough_memory);
    if (failure == last_failure_) return;
    last_failure_ = failure;
    warn("record_on: %s; no trace is written: %s", why, e.what());
  }

  // Caller: holds the lock.
  void put_off() noexcept {
    const nanos next = saturating_add(monotonic_now(), options_.spacing.count());
    not_before_.store(written_ >= options_.files ? never : next,
                      order::relaxed);  // ordering: as above
  }

  static constinit atomic<trace_writer*> the;

  [[maybe_unused]] trace_writer* const before_;  // the parent's, which a leak checker finds here
  const pid_t process_ = ::getpid();
  std::mutex lock_;
  record_options options_;
  std::size_t written_ = 0;       // files of the last call
  std::size_t last_number_ = 0;   // of those; later files have larger ones
  std::error_code last_failure_;  // told, and no file has been written since then
  atomic<int> signal_;            // 0: none
  bool has_thread_ = false;

  note wake_;
  atomic<bool> signalled_{false};
  static constexpr int free_claim = 0;
  static constexpr int taken_claim = 1;
  static constexpr int filled_claim = 2;
  atomic<int> claim_{free_claim};
  atomic<nanos> not_before_{never};
  atomic<unsigned> calls_{0};  // calls of set(); an event of an earlier one is dropped
  // The event: written by the holder of the claim, read when that is filled.
  trigger_kind kind_{};
  nanos by_ = 0;
  unsigned call_ = 0;
};

constinit atomic<trace_writer*> trace_writer::the{nullptr};

}  // namespace
}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC::inspect {

void write_trace(std::FILE* out, std::chrono::nanoseconds last) {
  const detail::nanos span = last.count() > 0 ? last.count() : -1;
  detail::write_file(out, detail::to_perfetto(detail::collect_recordings(span)));
}

void record_on(const record_options& options) {
  const auto limit = [](std::chrono::nanoseconds d) {
    return d.count() > 0 ? d.count() : detail::never;
  };
  detail::record_triggers::limits limits;
  limits.timer_late = limit(options.timer_late);
  limits.ran_for = limit(options.ran_for);
  limits.ran_for_ticks = detail::ticks_in(limits.ran_for);
  limits.deadline_missed = options.deadline_missed;
  detail::trace_writer::set(options, limits);
  // The overseers see the new limits.
  const detail::handler_scope inside;
  detail::for_each_running(
      [](detail::scheduler& s, detail::runtime_slot&) { s.idle().overseen.ring(); });
}

}  // namespace VIGIL_PUBLIC::inspect
