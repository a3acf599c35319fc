// Shared by the C++ peers: the request on the command line, the protocol on standard
// input and output, clocks, counters and random numbers.
//
// A peer is started for one workload:
//
//   PEER WORKLOAD [NAME=NUMBER…]
//
// It prepares, says `ready`, and answers each line of input with one sample, a line
// `name=number name=number …`; it ends at the end of the input. A workload that it cannot
// do it answers with `unsupported`. Between samples it waits in read(2) and uses no
// processor. The workloads are listed in workloads.py; a number means the same in all
// peers.
//
// Nothing here knows any peer. Change something only in all of them: main.go,
// node.mjs and main.rs say the same in their languages.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace peers {

using nanos = std::int64_t;

constexpr nanos microsecond = 1'000;
constexpr nanos millisecond = 1'000'000;
constexpr nanos second = 1'000'000'000;
constexpr nanos hour = 3'600 * second;

// --- the protocol

struct number {
  const char* name;
  double value;
};

using numbers = std::vector<number>;

class request {
 public:
  request(int count, char** arguments) : arguments_(arguments + 1, arguments + count) {}

  bool is(std::string_view workload) const {
    return !arguments_.empty() && arguments_.front() == workload;
  }

  std::size_t operator[](std::string_view name) const {
    for (const std::string& a : arguments_) {
      if (a.size() > name.size() && a[name.size()] == '=' && a.compare(0, name.size(), name) == 0)
        return std::strtoull(a.c_str() + name.size() + 1, nullptr, 10);
    }
    std::fprintf(stderr, "missing parameter %.*s\n", static_cast<int>(name.size()), name.data());
    std::exit(2);
  }

 private:
  std::vector<std::string> arguments_;
};

// How long the sleepers of a workload may take to start before the first is due.
inline nanos time_to_start(const request& asked) {
  return 50 * millisecond + static_cast<nanos>(asked["n"] * asked["start_us"]) * microsecond;
}

template <class F>
int serve(F&& sample) {
  std::puts("ready");
  std::fflush(stdout);
  char line[64];
  while (std::fgets(line, sizeof line, stdin) != nullptr) {
    const numbers result = sample();
    for (const number& n : result)
      std::printf("%s=%.6g ", n.name, n.value);
    std::puts("");
    std::fflush(stdout);
  }
  return 0;
}

inline int unsupported() {
  std::puts("unsupported");
  return 0;
}

// --- clocks and counters of the process

inline nanos read_clock(clockid_t which) noexcept {
  timespec t{};
  ::clock_gettime(which, &t);
  return static_cast<nanos>(t.tv_sec) * second + t.tv_nsec;
}

inline nanos now() noexcept {
  return read_clock(CLOCK_MONOTONIC);
}

inline nanos cpu_time() noexcept {
  return read_clock(CLOCK_PROCESS_CPUTIME_ID);
}

inline double context_switches() noexcept {
  rusage u{};
  ::getrusage(RUSAGE_SELF, &u);
  return static_cast<double>(u.ru_nvcsw);
}

// Returns resident memory and page tables, in bytes.
inline double memory_held() {
  std::FILE* const f = std::fopen("/proc/self/status", "r");
  if (f == nullptr) return 0;
  char line[256];
  unsigned long kib = 0;
  while (std::fgets(line, sizeof line, f) != nullptr) {
    unsigned long n = 0;
    if (std::sscanf(line, "VmRSS: %lu", &n) == 1) kib += n;
    if (std::sscanf(line, "VmPTE: %lu", &n) == 1) kib += n;
  }
  std::fclose(f);
  return static_cast<double>(kib) * 1024;
}

// Makes a system call that nothing else makes: strace's output is counted between two.
inline void mark() noexcept {
  ::syscall(SYS_getppid);
}

// Computes for a while, like a program between two events.
inline void work(nanos length) noexcept {
  const nanos until = now() + length;
  while (now() < until) {
  }
}

inline double each(nanos sum, std::size_t n) noexcept {
  return static_cast<double>(sum) / static_cast<double>(n);
}

// --- random numbers

__extension__ using wide = unsigned __int128;

// splitmix64: about a nanosecond each, and no memory.
class random_numbers {
 public:
  explicit random_numbers(std::uint64_t seed = 42) noexcept : state_(seed) {}

  std::uint64_t below(std::uint64_t n) noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return static_cast<std::uint64_t>((static_cast<wide>(z) * n) >> 64);
  }

  nanos within(nanos length) noexcept {
    return static_cast<nanos>(below(static_cast<std::uint64_t>(length)));
  }

  // Between one and two hours.
  nanos far() noexcept { return hour + within(hour); }

 private:
  std::uint64_t state_;
};

// --- numbers that several workloads give

// How late things happened; negative: early.
class lateness {
 public:
  explicit lateness(std::size_t n) { late_.reserve(n); }

  void add(nanos late) { late_.push_back(late); }

  std::size_t count() const noexcept { return late_.size(); }

  double early() const {
    return static_cast<double>(
        std::count_if(late_.begin(), late_.end(), [](nanos late) { return late < 0; }));
  }

  // The share q (0 to 1) of them is at or below the result, in microseconds.
  double quantile_us(double q) {
    if (late_.empty()) return 0;
    const auto last = static_cast<double>(late_.size() - 1);
    const auto at = late_.begin() + static_cast<std::ptrdiff_t>(std::ceil(q * last));
    std::nth_element(late_.begin(), at, late_.end());
    return static_cast<double>(*at) / 1e3;
  }

  numbers result() {
    return {{"p50", quantile_us(0.5)}, {"p99", quantile_us(0.99)}, {"early", early()}};
  }

 private:
  std::vector<nanos> late_;
};

// Runs `program` between two marks. Returns the voluntary context switches it took.
template <class F>
numbers counted(F&& program) {
  const double before = context_switches();
  mark();
  program();
  mark();
  return {{"switches", context_switches() - before}};
}

// Returns the figures of arming from one worker alone, from one of two, and from both at
// once: nanoseconds of wall time for each operation, and the gain from the second worker,
// which is the throughput of both over that of one alone.
inline numbers scaling(std::size_t ops, nanos alone, nanos one_of_two, nanos both) {
  return {{"alone", each(alone, ops)},
          {"one_of_two", each(one_of_two, ops)},
          {"both", each(both, 2 * ops)},
          {"scaling", 2.0 * static_cast<double>(alone) / static_cast<double>(both)}};
}

// Threads that have just begun may share a processor for a while; once they have been
// busy for this long, each has its own.
constexpr nanos settling = 10 * millisecond;

// Runs f(0) … f(n - 1), each on its own thread, all begun together, and returns how long
// that took. f(i) prepares, and returns the function that is to be timed.
template <class F>
nanos time_threads(std::size_t n, F&& f) {
  std::atomic<std::size_t> arrived{0};
  std::vector<nanos> begun(n);
  std::vector<nanos> ended(n);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < n; ++i) {
    threads.emplace_back([&, i] {
      auto timed = f(i);
      arrived.fetch_add(1);
      while (arrived.load() < n) {
      }
      work(settling);
      begun[i] = now();
      timed();
      ended[i] = now();
    });
  }
  for (std::thread& t : threads)
    t.join();
  return *std::max_element(ended.begin(), ended.end()) -
         *std::min_element(begun.begin(), begun.end());
}

// --- one mutex, locked and unlocked by each of some fibers again and again
//
// `together(n, f)` runs f on n fibers and returns when all have ended. It is wall time.
template <class Mutex>
numbers contend(std::size_t ops, const auto& together, const auto& yield) {
  constexpr std::size_t fibers = 8;
  const auto measured = [&](std::size_t n, const auto& section) {
    Mutex m;
    const nanos start = now();
    together(n, [&] {
      for (std::size_t i = 0; i < ops / n; ++i)
        section(m);
    });
    return each(now() - start, ops);
  };
  std::size_t sum = 0;
  const auto count = [&](Mutex& m) {
    m.lock();
    ++sum;
    m.unlock();
  };
  nanos longest = 0;
  const double alone = measured(1, count);
  const double tight = measured(fibers, count);
  const double turns = measured(fibers, [&](Mutex& m) {
    count(m);
    yield();
  });
  // Guarded by the mutex as well.
  measured(fibers, [&](Mutex& m) {
    const nanos before = now();
    m.lock();
    const nanos waited = now() - before;
    if (waited > longest) longest = waited;
    m.unlock();
  });
  return {{"alone", alone},
          {"tight", tight},
          {"turns", turns},
          {"longest", static_cast<double>(longest) / microsecond}};
}

}  // namespace peers
