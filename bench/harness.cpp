#include "harness.hpp"

#include <cmath>
#include <cstdio>
#include <cstring>
#include <ctime>

#include <linux/futex.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace bench {

// --- the table

void report::begin(const std::string& title) {
  if (json_) {
    if (first_) std::puts("[");
    return;
  }
  std::printf("%s-- %s\n", first_ ? "" : "\n", title.c_str());
  if (first_) std::printf("   %-58s %12s %-8s %12s\n", "", "value", "unit", "reference");
  first_ = false;
}

void report::add(std::string name, double value, std::string unit, std::string remark) {
  print({std::move(name), value, std::move(unit), std::nullopt, std::move(remark)});
}

void report::compare(
    std::string name, double value, std::string unit, double reference, std::string remark) {
  print({std::move(name), value, std::move(unit), reference, std::move(remark)});
}

void report::print(const row& r) {
  if (json_) {
    std::printf("%s  {\"name\": \"%s\", \"value\": %.4f, \"unit\": \"%s\"",
                first_ ? "" : ",\n",
                r.name.c_str(),
                r.value,
                r.unit.c_str());
    first_ = false;
    if (r.reference) std::printf(", \"reference\": %.4f", *r.reference);
    if (!r.remark.empty()) std::printf(", \"remark\": \"%s\"", r.remark.c_str());
    std::printf("}");
  } else {
    const int digits = std::fabs(r.value) < 100 ? 2 : std::fabs(r.value) < 1000 ? 1 : 0;
    std::printf("   %-58s %12.*f %-8s ", r.name.c_str(), digits, r.value, r.unit.c_str());
    if (r.reference) {
      std::printf("%12.*f  ", digits, *r.reference);
    } else if (!r.remark.empty()) {
      std::printf("%12s  ", "");
    }
    std::printf("%s\n", r.remark.c_str());
  }
  std::fflush(stdout);
}

void report::end() {
  if (json_) std::puts(first_ ? "[]" : "\n]");
}

// --- measuring

namespace {

nanos read_clock(clockid_t which) noexcept {
  timespec t{};
  ::clock_gettime(which, &t);
  return static_cast<nanos>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

nanos now() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}

nanos cpu_time() noexcept {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

nanos thread_cpu_time() noexcept {
  return read_clock(CLOCK_THREAD_CPUTIME_ID);
}

std::uint64_t context_switches() noexcept {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return static_cast<std::uint64_t>(u.ru_nvcsw);
}

std::size_t memory_held() noexcept {
  std::FILE* const f = std::fopen("/proc/self/status", "r");
  if (f == nullptr) return 0;
  char line[256];
  std::size_t kib = 0;
  while (std::fgets(line, sizeof line, f) != nullptr) {
    unsigned long n = 0;
    if (std::sscanf(line, "VmRSS: %lu", &n) == 1) kib += n;
    if (std::sscanf(line, "VmPTE: %lu", &n) == 1) kib += n;
  }
  std::fclose(f);
  return kib * 1024;
}

double quantile(std::vector<nanos> samples, double q) {
  if (samples.empty()) return 0;
  const auto last = static_cast<double>(samples.size() - 1);
  const auto at = samples.begin() + static_cast<std::ptrdiff_t>(std::ceil(q * last));
  std::nth_element(samples.begin(), at, samples.end());
  return static_cast<double>(*at);
}

std::size_t processors() noexcept {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<std::size_t>(CPU_COUNT(&set));
}

// --- the bare kernel wait

nanos bare_sleep_until(nanos deadline) noexcept {
  std::uint32_t word = 0;
  timespec until{};
  until.tv_sec = deadline / 1'000'000'000;
  until.tv_nsec = deadline % 1'000'000'000;
  for (;;) {
    ::syscall(SYS_futex,
              &word,
              FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
              0,
              &until,
              nullptr,
              FUTEX_BITSET_MATCH_ANY);
    const nanos woke = now();
    if (woke >= deadline) return woke - deadline;
  }
}

void exact_sleeps() noexcept {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
}

}  // namespace bench
