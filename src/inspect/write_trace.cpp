// The trace on request, and on the events that inspect::record_on names.
#include "base/assert.hpp"
#include "base/atomic.hpp"
#include "base/clock_source.hpp"
#include "base/ticks.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/perfetto_trace.hpp"
#include "inspect/recording.hpp"
#include "sched/record/record_trigger.hpp"
#include "sched/run/process_threads.hpp"
#include "sched/wait/note.hpp"

#include <vigil/inspect.hpp>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <pthread.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

using inspect::record_options;

void write_file(std::FILE* out, const std::string& bytes) {
  if (std::fwrite(bytes.data(), 1, bytes.size(), out) != bytes.size() || std::fflush(out) != 0) {
    throw std::system_error(
        errno, std::generic_category(), "vigil::inspect::write_trace: the file cannot be written");
  }
}

std::string reason_of(trigger_kind kind, nanos by) {
  char text[96];
  const double ms = static_cast<double>(by) / 1e6;
  switch (kind) {
    case trigger_kind::timer_late:
      std::snprintf(text, sizeof text, "a timer fired %.3f ms late", ms);
      return text;
    case trigger_kind::ran_long:
      std::snprintf(text, sizeof text, "a fiber ran for %.3f ms", ms);
      return text;
    case trigger_kind::deadline_missed:
      return "a context ended by its deadline";
  }
  return {};
}

// Writes the files of record_on(). Lives for ever: a worker, or a handler, may be in it.
//
// A worker that has seen an event takes the claim, leaves the event and wakes the thread,
// which gives the claim back after the file. While it is taken other events pass.
class trace_writer {
 public:
  static trace_writer& the() {
    static auto& made = *new trace_writer;
    return made;
  }

  void set(const record_options& o, const record_triggers::limits& limits) {
    const std::lock_guard guard(lock_);
    const bool is_wanted =
        o.signal != 0 || o.deadline_missed || limits.timer_late != never || limits.ran_for != never;
    if (is_wanted && !has_thread_) start_thread();
    take_signal(o.signal);
    options_ = o;
    written_ = 0;
    orders_.fetch_add(1);
    // ordering: a limit that is looked at in the moment of an event.
    not_before_.store(o.files == 0 ? never : 0, order::relaxed);
    triggers.set(limits, &trace_writer::happened);
  }

 private:
  static void happened(trigger_kind kind, nanos by, event_clock clock) noexcept {
    trace_writer& w = the();
    // ordering: as above.
    if (monotonic_now() < w.not_before_.load(order::relaxed)) return;
    const unsigned order = w.orders_.load();
    if (w.claimed_.exchange(true)) return;
    w.kind_ = kind;
    w.by_ = by;
    w.order_ = order;
    if (clock != event_clock::is_virtual) {
      w.wake_.wake();  // publishes the event
      return;
    }
    try {
      on_own_thread(never, [&w] { w.write_event(); });
    } catch (const std::exception& e) {
      warn("record_on: no trace is written: %s", e.what());
    }
    w.claimed_.store(false);
  }

  static void on_signal(int) {
    const int error_number = errno;
    trace_writer& w = the();
    w.signalled_.store(true);
    w.wake_.wake(waker::signal_handler);
    errno = error_number;
  }

  // Caller: holds the lock.
  void take_signal(int number) {
    if (number == options_.signal) return;
    if (number != 0) {
      struct sigaction before = {};
      if (::sigaction(number, nullptr, &before) != 0 || number == SIGKILL || number == SIGSTOP) {
        throw std::invalid_argument("vigil::inspect::record_on: there is no signal " +
                                    std::to_string(number) + " that a program may handle");
      }
      if ((before.sa_flags & SA_SIGINFO) != 0 || before.sa_handler != SIG_DFL) {
        throw std::invalid_argument("vigil::inspect::record_on: the program handles signal " +
                                    std::to_string(number) + " already; name another one");
      }
      struct sigaction mine = {};
      mine.sa_handler = &trace_writer::on_signal;
      mine.sa_flags = SA_RESTART | SA_ONSTACK;
      ::sigaction(number, &mine, nullptr);
    }
    if (options_.signal != 0) std::signal(options_.signal, SIG_DFL);
    options_.signal = number;
  }

  // Caller: holds the lock.
  void start_thread() {
    process_count_quiet_threads(1);  // it starts nothing
    try {
      std::thread([this] {
        process_is_quiet_thread();
        ::pthread_setname_np(::pthread_self(), "vigil/trace");
        body();
      }).detach();
    } catch (...) {
      process_count_quiet_threads(-1);
      throw;
    }
    has_thread_ = true;
  }

  [[noreturn]] void body() noexcept {
    for (;;) {
      wake_.clear();
      if (signalled_.exchange(false)) write_next("a signal asked for it", orders_.load());
      if (claimed_.load()) {
        write_event();
        claimed_.store(false);
        continue;
      }
      wake_.sleep_until(never);
    }
  }

  void write_event() noexcept {
    try {
      write_next(reason_of(kind_, by_), order_);
    } catch (const std::bad_alloc&) {
      warn("record_on: no memory for a trace");
    }
  }

  void write_next(const std::string& why, unsigned order) noexcept {
    const std::lock_guard guard(lock_);
    if (order != orders_.load() || written_ >= options_.files) return;
    try {
      const std::string name = options_.path + std::to_string(written_ + 1) + ".pftrace";
      const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(name.c_str(), "wb"),
                                                                 &std::fclose);
      if (file == nullptr) {
        warn("record_on: %s: %s; no trace is written", name.c_str(), std::strerror(errno));
      } else {
        write_file(file.get(), to_perfetto(collect_recordings(never)));
        warn("record_on: %s; the trace is in %s", why.c_str(), name.c_str());
      }
    } catch (const std::exception& e) {
      warn("record_on: no trace is written: %s", e.what());
    }
    ++written_;
    const nanos next = saturating_add(monotonic_now(), options_.spacing.count());
    not_before_.store(written_ >= options_.files ? never : next,
                      order::relaxed);  // ordering: as above
  }

  std::mutex lock_;
  record_options options_;
  std::size_t written_ = 0;
  bool has_thread_ = false;

  note wake_;
  atomic<bool> signalled_{false};
  atomic<bool> claimed_{false};
  atomic<nanos> not_before_{never};
  atomic<unsigned> orders_{0};  // calls of set(); an event of an earlier one is dropped
  // The event: written by the holder of the claim, read after its wake().
  trigger_kind kind_{};
  nanos by_ = 0;
  unsigned order_ = 0;
};

}  // namespace
}  // namespace vigil::inline VIGIL_ABI::detail

namespace vigil::inline VIGIL_ABI::inspect {

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
  detail::trace_writer::the().set(options, limits);
}

}  // namespace vigil::inline VIGIL_ABI::inspect
