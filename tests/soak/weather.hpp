// The weather: what a machine may do to a program at any time. It comes from outside,
// from a process that this one forks before it has threads.
//
//   stop      SIGSTOP for 50 ms, or for 5 s
//   squeeze   processors are taken away from all threads, for up to 2 s
//   files     no further descriptor, for up to 500 ms (RLIMIT_NOFILE)
//   memory    no further mapping, for up to 500 ms (RLIMIT_AS)
//
// Files and memory are shortages: only in one may the library refuse what it is asked
// for. There is none under a sanitizer, which ends the program without memory, and takes
// an object for a bad one without a descriptor.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include <sys/types.h>

namespace vigil::soak {

struct weather_counts {
  std::atomic<std::uint64_t> stops{0};
  std::atomic<std::uint64_t> long_stops{0};
  std::atomic<std::uint64_t> squeezes{0};
  std::atomic<std::uint64_t> no_files{0};
  std::atomic<std::uint64_t> no_memory{0};
  // Grows before a shortage begins and after it has ended.
  std::atomic<std::uint64_t> shortage_edges{0};
  std::atomic<bool> has_begun{false};
  std::atomic<bool> is_over{false};
};

class weather {
 public:
  // Caller: the process has one thread. Throws std::system_error.
  weather(std::uint64_t seed, bool gentle);
  ~weather();
  weather(const weather&) = delete;
  weather& operator=(const weather&) = delete;

  void begin() noexcept { counts_->has_begun.store(true); }

  // Ends it: the limits are as they were. Returns false if the child has died, so that
  // there has been none for a while.
  bool end() noexcept;

  const weather_counts& counts() const noexcept { return *counts_; }

  std::string text() const;

 private:
  weather_counts* counts_;  // shared with the child
  pid_t child_ = -1;
};

}  // namespace vigil::soak
