// The flight recorder on virtual time: all that it has, event by event, against what the
// seed dictates.
#include "core/timer/runtime_timer.hpp"
#include "inspect/recorder_test.hpp"
#include "inspect/seeded_model.hpp"
#include "support/note.hpp"

#include <algorithm>

using namespace vigil::testing_support;
using vigil::detail::wait_reason;

namespace {

// Each event in words, with every field that it has.
class recorded_lines {
 public:
  recorded_lines(const recording& of, vigil::clock::time_point start)
      : of_(of), start_(start.time_since_epoch().count()) {}

  std::vector<std::string> all() const {
    std::vector<std::string> lines;
    for (const recorded_event& e : of_.events) {
      lines.push_back((e.log == recording::outside ? "outside" : std::to_string(e.log)) + " " +
                      std::to_string(e.time - start_) + " " + words(e));
    }
    return lines;
  }

 private:
  std::string name(std::uint64_t id) const {
    if (id == 0) return "nobody";
    const auto at = of_.fibers.find(id);
    return at == of_.fibers.end() ? "?" : at->second.name;
  }

  std::string place(std::uint32_t number) const {
    if (number == 0) return "";
    return " at " + of_.places.at(number - 1).file + ":" +
           std::to_string(of_.places.at(number - 1).line);
  }

  static std::string left(const recorded_event& e) {
    static const char* const how[] = {"", ", parked: ", ", yielded", ", ended"};
    const unsigned by = e.detail >> 8;
    const auto why = static_cast<wait_reason>(e.detail & 0xff);
    if (by > 3) return "?";
    if (by != 1) return how[by];
    // Which of the two depends on the stopped timers that are still in the heap.
    const bool is_timers = why == wait_reason::timer_empty || why == wait_reason::timer_note;
    return std::string(how[by]) + (is_timers ? "timers" : to_string(why));
  }

  // The event has the lower 48 bits of its microseconds; the upper ones are the start's.
  std::string deadline(const recorded_event& e) const {
    const std::int64_t upper = start_ / 1'000 >> 48 << 48;
    const std::int64_t micros = upper + static_cast<std::int64_t>(e.value);
    return std::to_string(micros * 1'000 + e.detail - start_);
  }

  static std::string fired(const recorded_event& e) {
    static const char* const kinds[] = {"deadline of a wait", "callback is due", "timer's channel"};
    return (e.detail < 3 ? kinds[e.detail] : "?") + (", late by " + std::to_string(e.value));
  }

  std::string words(const recorded_event& e) const {
    switch (e.kind) {
      case event_kind::run:
        return "run " + name(e.value) + left(e) + place(e.place);
      case event_kind::leave:
        return "leave " + name(e.value) + left(e);
      case event_kind::ready:
        return "ready " + name(e.value);
      case event_kind::start:
        return "start " + name(e.value) + " by " + name(of_.fibers.at(e.value).parent) +
               place(e.place);
      case event_kind::timer_armed:
        return "arm timer for " + deadline(e);
      case event_kind::timer_reset:
        return "reset timer to " + deadline(e);
      case event_kind::timer_stopped:
        return "stop timer";
      case event_kind::timer_fired:
        return "fire " + fired(e);
      case event_kind::timer_due:
        return "due " + fired(e);
      default:
        return "kind " + std::to_string(static_cast<unsigned>(e.kind));
    }
  }

  const recording& of_;
  const vigil::detail::nanos start_;
};

// Equal, or the first difference with the lines before it.
void check_equal(const std::vector<std::string>& lines, const std::vector<std::string>& expected) {
  std::size_t at = 0;
  while (at < lines.size() && at < expected.size() && lines[at] == expected[at])
    ++at;
  std::string before;
  for (std::size_t i = at - std::min<std::size_t>(at, 12); i < at; ++i)
    before += lines[i] + "\n";
  NOTE("line ", at, " of ", lines.size(), ", after\n", before);
  CHECK((at < lines.size() ? lines[at] : "(none)") ==
        (at < expected.size() ? expected[at] : "(none)"));
}

struct seen_run {
  std::vector<std::string> lines;
  std::vector<std::string> notes;
};

seen_run run_of(std::uint64_t seed) {
  seen_run seen;
  vigil::testing::virtual_options o;
  o.seed = seed;
  o.runtime.recorder_events = 16 * 1024;
  in_virtual(o, [&] {
    seeded_program program(script_of(seed));
    program.run();
    for (const recording& r : vigil::detail::collect_recordings(vigil::detail::never)) {
      if (r.runtime != vigil::detail::current_scheduler()->number()) continue;
      seen.lines = recorded_lines(r, program.start()).all();
    }
    seen.notes = program.notes();
  });
  return seen;
}

}  // namespace

TEST_SUITE("recorder") {
  // Besides the program's fibers it has the two of the runtime, for timers and for
  // callbacks. Nothing sleeps or is stolen: time jumps, and there is one worker.
  TEST_CASE("virtual time: the recording is what the seed dictates, no more and no less") {
    std::string all;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
      NOTE("seed: ", seed);
      const seeded_model model(script_of(seed), seed);
      const seen_run seen = run_of(seed);
      check_equal(seen.notes, model.notes());
      check_equal(seen.lines, model.events());
      for (const std::string& line : model.events())
        all += line + "\n";
    }
    // The seeds have come to each of these.
    for (const char* const some : {"leave f0, yielded",
                                   "leave f0, parked: channel send",
                                   "leave f2, parked: channel receive",
                                   "leave main, parked: join",
                                   "leave f4, ended",
                                   "reset timer to",
                                   "stop timer",
                                   "due callback is due",
                                   "fire callback is due",
                                   "fire deadline of a wait",
                                   "fire timer's channel"}) {
      CHECK_MESSAGE(all.find(some) != std::string::npos, some);
    }
  }
}
