// page_jobs: the work behind an answer. It walks over all fibers, reads debug information
// and writes long texts, so it is done on a thread of its own, for which the fiber of the
// connection waits. The thread is kept for the next job: to start one takes longer than
// a fiber should keep its worker.
//
// Such a thread may need a lock that a stuck fiber of the program holds: malloc's, or the
// dynamic loader's. Then the fiber gives up, the thread is left behind, and its slot
// stays taken: at most one thread for each slot.
#pragma once

#include <vigil/detail/config.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace VIGIL_DETAIL {

// The right to do one job of a kind at a time, and the thread that does them.
class job_slot {
 public:
  job_slot();

  // Held by the job, until its end.
  struct core;
  using hold = std::shared_ptr<core>;

  // Takes the slot within so long, or returns null. Waits on a fiber.
  hold take_for(std::chrono::nanoseconds patience);

 private:
  std::shared_ptr<core> core_;
};

// Returns what f returns on the slot's thread; nothing if that takes longer than
// `patience`, after which f goes on: it owns all that it touches. Throws what f throws,
// and std::system_error if the thread cannot be started. Waits on a fiber.
std::optional<std::string> done_elsewhere(job_slot::hold slot,
                                          std::chrono::nanoseconds patience,
                                          std::function<std::string()> f);

// Returns what `write` writes; nothing if that is more than `limit` bytes, the rest of
// which is not kept. Throws what write throws, and std::bad_alloc.
std::optional<std::string> written_within(std::size_t limit,
                                          const std::function<void(std::FILE*)>& write);

}  // namespace VIGIL_DETAIL
