// recording: the events of a runtime's logs (sched/record/event.hpp), with their times on
// the runtime's clock, in order, and the names that go with them.
#pragma once

#include "core/base/nanos.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/record/event_log.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace VIGIL_DETAIL {

class scheduler;

struct recorded_event {
  nanos time;
  event_kind kind;
  std::uint16_t detail;
  std::uint32_t log;  // the worker's number, or recording::outside
  std::uint64_t value;
  std::uint32_t place = 0;  // run and start: one more than its index in recording::places
};

struct recorded_place {
  std::string file;
  std::uint32_t line;
};

struct recorded_fiber {
  std::string name;
  std::uint32_t place = 0;   // as recorded_event::place
  std::uint64_t parent = 0;  // 0: unknown, or none
  fiber_role role = fiber_role::user;
};

struct recorded_run {
  nanos time;  // when it was seen to have passed the limit
  std::uint64_t fiber;
  std::size_t worker;
  const char* limit;
  std::vector<std::string> frames;  // the innermost first; as a dump writes them
};

struct recording {
  static constexpr std::uint32_t outside = ~std::uint32_t{0};

  std::uint64_t runtime = 0;
  bool is_virtual = false;
  nanos whole_since = 0;               // later events are complete: no ring has lost one
  std::vector<int> threads;            // of the workers, by number; 0 if it does not run
  std::vector<recorded_event> events;  // ordered by time
  std::vector<recorded_place> places;
  std::unordered_map<std::uint64_t, recorded_fiber> fibers;  // by id
  std::unordered_map<std::uint64_t, std::string> regions;    // by the address of the name
  std::uint64_t pending = 0;                                 // timers, at the end
  std::vector<recorded_run> long_runs;                       // ordered by time
};

// The recordings of all runtimes that run and record, each of its last `last`
// nanoseconds. Any thread; nothing is stopped. Throws std::bad_alloc.
std::vector<recording> collect_recordings(nanos last);

}  // namespace VIGIL_DETAIL
