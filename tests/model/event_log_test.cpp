// The flight recorder's ring: a reader never takes a slot for an event that is half
// written, or of two events, and loses none in between.
#include "core/sched/record/event_log.hpp"

#include "core/base/clock_source.hpp"
#include "prove.hpp"

#include <cstdint>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::clock_source;
using vigil::detail::event;
using vigil::detail::event_kind;
using vigil::detail::event_log;

namespace {

constexpr std::size_t ring_size = 2;

event_kind kind_of(std::uint64_t n) {
  return n % 2 == 0 ? event_kind::ready : event_kind::steal;
}

void write_up_to(event_log& log, std::uint64_t first, std::uint64_t last) {
  for (std::uint64_t n = first; n <= last; ++n)
    log.write(kind_of(n), n);
}

// Copies the events; each is whole, and follows the one before. Returns the last one.
std::uint64_t last_seen(const event_log& log) {
  event events[ring_size];
  const std::size_t n = log.copy(events);
  for (std::size_t i = 0; i < n; ++i) {
    model::require(events[i].kind() == kind_of(events[i].value()), "an event is whole");
    if (i > 0) model::require(events[i].value() == events[i - 1].value() + 1, "none is missing");
  }
  return n == 0 ? 0 : events[n - 1].value();
}

}  // namespace

TEST_CASE("event log: its events are copied as others are written") {
  prove("event log: one reader", [] {
    clock_source clock;
    clock.make_virtual(0);
    event_log log(ring_size, clock);
    write_up_to(log, 1, 2);
    std::thread writer([&] { write_up_to(log, 3, 4); });
    const std::uint64_t seen = last_seen(log);
    writer.join();
    model::require(seen == 0 || seen >= 2, "nothing that was there before is lost at the end");
    model::require(last_seen(log) == 4, "the last event is there");
  });
}
