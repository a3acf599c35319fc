#include "core/runtime/runtime_core.hpp"

#include "core/machine/process_state.hpp"
#include "core/machine/signal_name.hpp"
#include "core/sched/process/process_signals.hpp"
#include "core/sched/report/fiber_view.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include <sched.h>

namespace VIGIL_PUBLIC {

namespace detail {
namespace {

// Returns the number of processors that the cgroup's quota pays for, rounded up; 0 if
// there is no quota. Version 2 has "max 100000" or "50000 100000", version 1 two files.
unsigned cgroup_quota() noexcept {
  long long quota = -1;
  long long period = 0;
  if (std::FILE* const f = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
    if (std::fscanf(f, "%lld %lld", &quota, &period) != 2) quota = -1;
    std::fclose(f);
  } else {
    const auto read = [](const char* path, long long& value) {
      if (std::FILE* const file = std::fopen(path, "r")) {
        if (std::fscanf(file, "%lld", &value) != 1) value = -1;
        std::fclose(file);
      }
    };
    read("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", quota);
    read("/sys/fs/cgroup/cpu/cpu.cfs_period_us", period);
  }
  if (quota <= 0 || period <= 0) return 0;
  return static_cast<unsigned>((quota + period - 1) / period);
}

unsigned default_workers() noexcept {
  unsigned n = 0;
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (::sched_getaffinity(0, sizeof mask, &mask) == 0) n = static_cast<unsigned>(CPU_COUNT(&mask));
  if (n == 0) n = std::max(1u, std::thread::hardware_concurrency());
  if (const unsigned quota = cgroup_quota(); quota != 0) n = std::min(n, quota);
  return std::clamp(n, 1u, 1024u);
}

void check_stack(const char* name, std::size_t size) {
  if (size >= min_stack_size && size <= max_stack_size) return;
  throw std::invalid_argument(std::string("vigil: options::") + name + " is " +
                              std::to_string(size) + " bytes; it must be from " +
                              std::to_string(min_stack_size) + " (16 KiB) to " +
                              std::to_string(max_stack_size) + " (1 GiB)");
}

// Caller: keeps the runtime alive meanwhile.
runtime_stats stats_of(const scheduler& sched) {
  runtime_stats s;
  sched.add_stats(s);
  for (const auto& w : sched.workers()) {
    s.workers_busy += std::chrono::nanoseconds(w->counters.busy.get());
    run_bounds::span ran;
    if (current_of(*w) == nullptr || !w->has_run_for(ran)) continue;
    s.longest_run = std::max(s.longest_run, std::chrono::nanoseconds(ran.at_least));
  }
  s.blocking = sched.own_pool->stats();
  const stack_stats stacks = read_stack_stats();
  s.stacks_in_use = stacks.in_use;
  s.stack_bytes_mapped = stacks.mapped_bytes;
  return s;
}

constexpr std::size_t most_events = std::size_t{1} << 26;

std::size_t recorder_events(std::optional<std::size_t> asked) {
  constexpr const char* name = "VIGIL_RECORDER_EVENTS";
  if (asked.has_value()) {
    if (*asked <= most_events) return *asked;
    throw std::invalid_argument("vigil: options::recorder_events is " + std::to_string(*asked) +
                                "; it must be at most " + std::to_string(most_events));
  }
  const char* const given = std::getenv(name);
  if (given == nullptr) return 0;
  const std::string_view text = given;
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error == std::errc() && end == text.data() + text.size() && n <= most_events) return n;
  throw std::invalid_argument("vigil: " + std::string(name) + " is \"" + given +
                              "\"; it must be a number up to " + std::to_string(most_events) +
                              ", and 0 turns the recorder off");
}

}  // namespace

scheduler_options checked(const options& settings) {
  refuse_other_headers(settings);
  if (settings.workers > 1024) {
    throw std::invalid_argument("vigil: options::workers is " + std::to_string(settings.workers) +
                                "; it must be at most 1024, or 0 for one per processor");
  }
  check_stack("stack_size", settings.stack_size);
  check_stack("main_stack_size", settings.main_stack_size);
  for (const int signal : settings.stop_on)
    checked_signal("vigil: options::stop_on", signal);
  constexpr std::uint32_t most_calls = 1'000'000;
  if (settings.turn_budget > most_calls) {
    throw std::invalid_argument("vigil: options::turn_budget is " +
                                std::to_string(settings.turn_budget) + "; it must be at most " +
                                std::to_string(most_calls) + ", and 0 means any number");
  }
  if (settings.blocking_threads.has_value()) side_pool_size(settings.blocking_threads);
  scheduler_options o{settings};
  if (o.workers == 0) o.workers = default_workers();
  o.recorder_events = recorder_events(settings.recorder_events);
  return o;
}

runtime_core::runtime_core(const scheduler_options& settings, std::unique_ptr<watch> w)
    : sched(settings, std::move(w)),
      timers(timer_service::begin(sched)),
      gate(std::make_shared<outside_gate>()),
      blocking(std::make_unique<side_pool>(settings.blocking_threads, "blocking")) {
  gate->sched = &sched;
  sched.own_pool = blocking.get();
}

runtime_core::~runtime_core() {
  if (sched.state.phase() != run_phase::idle) {
    fatal("a vigil::runtime is destroyed while it runs; wait for run() to return first");
  }
  {
    const std::lock_guard guard(gate->lock);
    gate->sched = nullptr;
  }
  blocking.reset();  // its threads end
  sched.calls.wait_until_over();
  timers.end();
}

runtime make_observer(const options& settings) {
  options own = settings;
  own.recorder_events = settings.recorder_events.value_or(0);
  scheduler_options o = checked(own);
  o.is_observer = true;
  return runtime_access::over(std::make_unique<runtime_core>(o));
}

void throw_main_stopped(int signal) {
  std::string text = "vigil::run: the main function was stopped";
  if (signal != 0) text += std::string(" by ") + signal_name(signal).text;
  text += " before it had a result";
  throw cancelled(text.c_str());
}

void throw_too_many_signals() {
  throw std::invalid_argument("vigil::signal_list: more than " +
                              std::to_string(signal_list::capacity) +
                              " signals; there are fewer, so name each once");
}

}  // namespace detail

using detail::runtime_core;

namespace {

std::unique_ptr<detail::watch> watch_of(const options& settings) {
  const detail::watch_source& from = settings.watch;
  if (from.make == nullptr) return nullptr;
  return std::unique_ptr<detail::watch>(from.make(*from.context));
}

runtime_core* make_core(const options& settings) {
  const detail::scheduler_options own = detail::checked(settings);  // first of all
  return new runtime_core(own, watch_of(settings));
}

}  // namespace

runtime::runtime(options settings) : runtime(make_core(settings)) {}

runtime::runtime(runtime_core* made) : core_(made) {
  core_->sched.object.store(this);
}

runtime::~runtime() {
  core_->sched.object.store(nullptr);
  // The workers run on until the process ends.
  const bool is_running = core_->sched.state.phase() != detail::run_phase::idle;
  if (is_running && detail::process_is_exiting()) return;
  delete core_;
}

int runtime::run_main(detail::call_ref main, detail::main_result gives) {
  if (!core_->sched.run(main)) return 0;
  const int signal = stop_signal();
  if (gives == detail::main_result::none && signal == 0) return 0;
  if (gives == detail::main_result::other || signal == 0) detail::throw_main_stopped(signal);
  return 128 + signal;
}

int runtime::stop_signal() const noexcept {
  return core_->sched.end.stop_signal();
}

void runtime::request_stop() noexcept {
  core_->sched.end.request_stop();
}

runtime_stats runtime::stats() const {
  return detail::stats_of(core_->sched);
}

runtime& runtime::current() {
  if (runtime* const object = detail::require_fiber("runtime::current").sched->object.load())
    return *object;
  throw wrong_place("vigil::runtime::current: the calling fiber belongs to no runtime object");
}

runtime_stats stats() {
  return detail::stats_of(*detail::require_fiber("stats").sched);
}

detail::scheduler& runtime::sched() noexcept {
  detail::process_check_fork("a call of vigil::runtime");
  return core_->sched;
}

// --- outside work

work_guard runtime::make_work_guard() {
  auto* const hold = new detail::outside_hold{core_->gate};
  core_->sched.outside.add();
  return work_guard(hold);
}

work_guard::work_guard(work_guard&& other) noexcept : hold_(std::exchange(other.hold_, nullptr)) {}

work_guard& work_guard::operator=(work_guard&& other) noexcept {
  if (this != &other) {
    release();
    hold_ = std::exchange(other.hold_, nullptr);
  }
  return *this;
}

work_guard::~work_guard() {
  release();
}

void work_guard::release() noexcept {
  const std::unique_ptr<detail::outside_hold> hold(std::exchange(hold_, nullptr));
  if (hold == nullptr) return;
  const std::lock_guard guard(hold->gate->lock);
  if (hold->gate->sched != nullptr) hold->gate->sched->outside.end();
}

// --- statistics

std::uint64_t delay_histogram::total() const noexcept {
  std::uint64_t n = 0;
  for (const std::uint64_t c : count)
    n += c;
  return n;
}

std::uint64_t delay_histogram::quantile_nanos(double q) const noexcept {
  const std::uint64_t all = total();
  if (all == 0) return 0;
  const auto wanted =
      static_cast<std::uint64_t>(std::clamp(q, 0.0, 1.0) * static_cast<double>(all));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    seen += count[i];
    if (seen > wanted || seen == all) {
      return std::min<std::uint64_t>((std::uint64_t{1} << i) * 1000, max_nanos);
    }
  }
  return max_nanos;
}

}  // namespace VIGIL_PUBLIC
