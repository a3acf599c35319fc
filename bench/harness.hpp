// Shared by the benchmarks: a table with rows, medians, clocks and counters of the
// process, and the bare kernel wait that vigil is measured against.
#pragma once

#include <vigil/runtime.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace bench {

using nanos = std::int64_t;
inline constexpr nanos millisecond = 1'000'000;

// One line of the table. The reference is what the same run measured without
// vigil, if there is such a thing.
struct row {
  std::string name;
  double value;
  std::string unit;
  std::optional<double> reference;
  std::string remark;  // of the reference, or of the row
};

class report {
 public:
  report(bool json, bool long_run, bool filtered) noexcept
      : json_(json), long_(long_run), filtered_(filtered) {}

  // --long: the sample counts that the figures in the documents were made with.
  bool is_long() const noexcept { return long_; }

  // Returns whether the group was named on the command line: it may then take its time.
  bool is_asked_for() const noexcept { return long_ || filtered_; }

  void begin(const std::string& title);
  void add(std::string name, double value, std::string unit, std::string remark = {});
  void compare(std::string name,
               double value,
               std::string unit,
               double reference,
               std::string remark = "bare futex thread");
  void end();

 private:
  void print(const row& r);

  const bool json_;
  const bool long_;
  const bool filtered_;
  bool first_ = true;
};

// The groups: functions, each in its own file or in one that it shares.
void arm_stop(report& out);
void reset(report& out);
void fire(report& out);
void burst(report& out);
void timeouts(report& out);
void sleepers(report& out);
void bursts(report& out);
void overshoot_idle(report& out);
void overshoot_busy(report& out);
void cancel(report& out);
void yield(report& out);
void spawn_join(report& out);
void select_ready(report& out);
void round_trips(report& out);
void locks(report& out);
void guards(report& out);
void inspect(report& out);
void inspect_page(report& out);
void page_turns(report& out);
void recorder(report& out);
void kernel_calls(report& out);
void guest(report& out);
void long_computation(report& out);
void main_beside_computation(report& out);
void served_at_once(report& out);
void talk_with_main(report& out);
void virtual_time(report& out);

// Only with vigil-io.
void io_overshoot(report& out);
void io_kernel(report& out);
void io_round_trip(report& out);
void socket_round_trips(std::size_t n);  // in a runtime
void io_memory(report& out);
void io_kept(report& out);
void beside_computation(report& out);
int traced(const std::vector<std::string>& arguments);

// --- measuring

nanos now() noexcept;                       // CLOCK_MONOTONIC
nanos cpu_time() noexcept;                  // of the whole process, user and system
nanos thread_cpu_time() noexcept;           // of the calling thread
std::uint64_t context_switches() noexcept;  // voluntary ones, of the process
std::size_t memory_held() noexcept;         // resident memory and page tables, bytes

template <class T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Returns the median of f() over some repetitions, after one that warms up.
template <class F>
double median_of(std::size_t repetitions, F&& f) {
  static_cast<void>(f());
  std::vector<double> values;
  for (std::size_t i = 0; i < repetitions; ++i)
    values.push_back(f());
  return median(std::move(values));
}

// The share q (0 to 1) of the samples lies at or below the result.
double quantile(std::vector<nanos> samples, double q);

inline vigil::options with_workers(std::size_t n) {
  vigil::options o;
  o.workers = n;
  return o;
}

// Returns the number of processors that the process may use.
std::size_t processors() noexcept;

// Keeps a value, and what it was made from, from being optimised away.
template <class T>
void keep(const T& value) noexcept {
  asm volatile("" : : "r,m"(value) : "memory");
}

// --- the bare kernel wait

// Sleeps on a futex of the calling thread until an absolute time, and returns how late it
// came back. The caller has called exact_sleeps() once.
nanos bare_sleep_until(nanos deadline) noexcept;
void exact_sleeps() noexcept;  // timer slack of the calling thread: 1 ns

}  // namespace bench
