// Regions of a program, named for the flight recorder: the trace that
// inspect::write_trace() writes shows each as a slice of its fiber.
//
//   void handle(request& r) {
//     vigil::trace::region parsing("parse");
//     ...
//   }
//
// docs/guide/recorder.md shows the trace.
#pragma once

#include <vigil/detail/config.hpp>

#include <atomic>
#include <cstddef>

namespace VIGIL_PUBLIC {

namespace detail {

VIGIL_API extern std::atomic<unsigned> runtimes_recording;

VIGIL_API void region_begins(const char* name) noexcept;
VIGIL_API void region_ends() noexcept;

}  // namespace detail

namespace trace {

// region: a slice from its construction to its destruction, on one fiber, which may wait
// and change threads meanwhile. Regions of one fiber nest. Throws nothing. Thread safety:
// it belongs to its fiber. Lifetime: a local; its name lives as long as the program.
// Cost: two events; outside a fiber, and where nothing is recorded
// (options::recorder_events), one load and one branch. Go: trace.StartRegion.
class region {
 public:
  // The name is not copied: a string literal, or an array that lives as long as the
  // program.
  template <std::size_t N>
  explicit region(const char (&name)[N]) noexcept
      // ordering: whether the events are wanted, for which no moment is promised.
      : recorded_(detail::recorder_is_built &&
                  detail::runtimes_recording.load(std::memory_order_relaxed) != 0) {
    if (recorded_) [[unlikely]]
      detail::region_begins(name);
  }

  ~region() {
    if (recorded_) [[unlikely]]
      detail::region_ends();
  }

  region(const region&) = delete;
  region& operator=(const region&) = delete;

 private:
  const bool recorded_;
};

}  // namespace trace

}  // namespace VIGIL_PUBLIC
