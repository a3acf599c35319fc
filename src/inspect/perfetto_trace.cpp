// The tracks: one for each worker, with a slice for each stretch for which it runs a
// fiber; one for the timer fiber, with each firing; one for each fiber that has regions
// or calls on a side pool; and counters.
#include "inspect/perfetto_trace.hpp"

#include "core/sched/wait/wait_reason.hpp"
#include "core/timer/runtime_timer.hpp"
#include "inspect/perfetto_event.hpp"
#include "inspect/perfetto_fields.hpp"
#include "inspect/proto_writer.hpp"
#include "inspect/valid_utf8.hpp"

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <unordered_map>
#include <utility>

#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// The file, packet by packet.
class trace_file {
 public:
  void add(nanos time, const track_event& e) {
    packet_.clear();
    packet_.number(packet_field::timestamp, static_cast<std::uint64_t>(time))
        .number(packet_field::sequence, sequence)
        .message(packet_field::track_event, e.message());
    add_packet();
  }

  // Returns the track's number.
  std::uint64_t add_track(std::string_view name,
                          std::uint64_t parent,
                          unsigned kind = 0,
                          const proto_writer& of_kind = {}) {
    const std::uint64_t uuid = ++tracks_;
    proto_writer d;
    d.number(descriptor_field::uuid, uuid);
    if (parent != 0) d.number(descriptor_field::parent, parent);
    if (!name.empty()) d.text(descriptor_field::name, valid_utf8(name));
    if (kind != 0) d.message(kind, of_kind);
    packet_.clear();
    packet_.number(packet_field::sequence, sequence).message(packet_field::track_descriptor, d);
    add_packet();
    return uuid;
  }

  std::string take() && { return std::move(out_).take(); }

 private:
  static constexpr std::uint64_t sequence = 1;

  void add_packet() { out_.message(trace_field::packet, packet_); }

  proto_writer out_;
  proto_writer packet_;
  std::uint64_t tracks_ = 0;
};

std::string_view program_name() noexcept {
  return program_invocation_short_name;
}

std::string left_text(std::uint16_t detail) {
  const auto how = static_cast<left_by>(detail >> 8);
  const auto reason =
      static_cast<wait_reason>(std::min<unsigned>(detail & 0xff, unsigned(wait_reason::test)));
  switch (how) {
    case left_by::none:
      break;
    case left_by::park:
      return std::string("parked: ") + to_string(reason);
    case left_by::yield:
      return "yielded";
    case left_by::end:
      return "ended";
  }
  return {};
}

std::string_view fired_text(std::uint16_t kind) noexcept {
  switch (static_cast<timer_kind>(kind)) {
    case timer_kind::fiber_ready:
      return "deadline of a wait";
    case timer_kind::go_func:
      return "callback is due";
    case timer_kind::send_time:
      return "timer's channel";
  }
  return "timer";
}

// Writes one runtime's events, in order.
class runtime_tracks {
 public:
  runtime_tracks(trace_file& out, const recording& of, std::uint64_t process)
      : out_(out), of_(of), process_(process) {
    const std::string label = of.runtime == 1 ? "" : " of runtime " + std::to_string(of.runtime);
    const auto pid = static_cast<std::uint64_t>(::getpid());
    for (std::size_t i = 0; i < of.threads.size(); ++i) {
      const auto tid = of.threads[i] != 0 ? static_cast<std::uint64_t>(of.threads[i]) : i + 1;
      workers_.push_back(
          {out.add_track({},
                         process,
                         descriptor_field::thread,
                         proto_writer()
                             .number(thread_field::pid, pid)
                             .number(thread_field::tid, tid)
                             .text(thread_field::name, "worker " + std::to_string(i) + label))});
    }
    timer_fiber_ = out.add_track("timer fiber" + label, process);
    outside_ = out.add_track("other threads" + label, process);
    runnable_track_ =
        out.add_track("runnable fibers" + label, process, descriptor_field::counter, {});
    pending_track_ =
        out.add_track("pending timers" + label, process, descriptor_field::counter, {});
    find_first_counts();
  }

  void write_all() {
    auto run = of_.long_runs.begin();
    for (const recorded_event& e : of_.events) {
      for (; run != of_.long_runs.end() && run->time < e.time; ++run)
        write(*run);
      write(e);
    }
    std::for_each(run, of_.long_runs.end(), [&](const recorded_run& r) { write(r); });
  }

 private:
  struct worker_track {
    std::uint64_t track;
    std::uint64_t runs = 0;  // a fiber; 0: none that is known
    bool sleeps = false;
  };

  static int pending_change(event_kind kind) noexcept {
    if (kind == event_kind::timer_armed) return 1;
    return kind == event_kind::timer_stopped || kind == event_kind::timer_fired ? -1 : 0;
  }

  // The counts at the end are known, or are the least that is possible; the first follow.
  void find_first_counts() {
    std::int64_t pending = 0;
    std::unordered_map<std::uint64_t, bool> ready;
    for (const recorded_event& e : of_.events) {
      if (!is_whole(e)) continue;
      pending += pending_change(e.kind);
      // A fiber that runs first, and becomes ready later, was in a queue at the start.
      if (e.kind == event_kind::ready) ready.try_emplace(e.value, false);
      if (e.kind == event_kind::run && !is_system(e.value) &&
          ready.try_emplace(e.value, true).second) {
        queued_.emplace(e.value, 0);
      }
    }
    pending_ = static_cast<std::int64_t>(of_.pending) - pending;
  }

  void write(const recorded_event& e) {
    worker_track* const w = e.log == recording::outside ? nullptr : &workers_[e.log];
    const std::uint64_t track = w != nullptr ? w->track : outside_;
    switch (e.kind) {
      case event_kind::none:
      case event_kind::place:
      case event_kind::name:
        return;
      case event_kind::run:
        if (w != nullptr) run(e, *w);
        return;
      case event_kind::leave:
        if (w != nullptr) end_stretch(e, *w);
        return;
      case event_kind::ready:
        ready(e, track);
        return;
      case event_kind::start:
        out_.add(e.time, track_event(instant, track).name("start " + label(e.value, e.place)));
        return;
      case event_kind::steal:
        out_.add(e.time, track_event(instant, track).name("steal").note("fibers", e.value));
        return;
      case event_kind::sleep:
        if (w == nullptr) return;
        w->sleeps = true;
        out_.add(e.time, track_event(slice_begin, track).name("asleep"));
        return;
      case event_kind::wake:
        if (w == nullptr || !std::exchange(w->sleeps, false)) return;
        out_.add(e.time, track_event(slice_end, track));
        return;
      case event_kind::timer_armed:
        return armed(e, track, "arm timer");
      case event_kind::timer_reset:
        return armed(e, track, "reset timer");
      case event_kind::timer_stopped:
        out_.add(e.time, track_event(instant, track).name("stop timer"));
        return count_pending(e);
      case event_kind::timer_fired:
        // A callback is counted when it runs; timer_due came before.
        if (static_cast<timer_kind>(e.detail) != timer_kind::go_func) fired(e);
        return count_pending(e);
      case event_kind::timer_due:
        return fired(e);
      case event_kind::call_begins:
        if (!is_whole(e)) return;
        out_.add(e.time, track_event(slice_begin, call_track_of(e.value)).name("blocking call"));
        return;
      case event_kind::call_ends:
        if (is_whole(e)) out_.add(e.time, track_event(slice_end, call_track_of(e.value)));
        return;
      case event_kind::region_begins: {
        if (w == nullptr || w->runs == 0 || !is_whole(e)) return;
        const auto name = of_.regions.find(e.value);
        out_.add(e.time,
                 track_event(slice_begin, track_of(w->runs))
                     .name(name != of_.regions.end() ? name->second : "?"));
        return;
      }
      case event_kind::region_ends:
        if (w == nullptr || w->runs == 0 || !is_whole(e)) return;
        out_.add(e.time, track_event(slice_end, track_of(w->runs)));
        return;
      case event_kind::deadline_missed:
        out_.add(e.time, track_event(instant, track).name("context: deadline passed"));
        return;
    }
  }

  void write(const recorded_run& r) {
    out_.add(r.time,
             track_event(instant, workers_[r.worker].track)
                 .name(r.limit)
                 .note("fiber", r.fiber)
                 .note("frames", r.frames));
  }

  void run(const recorded_event& e, worker_track& w) {
    end_stretch(e, w);
    w.runs = e.value;
    const auto known = of_.fibers.find(e.value);
    const bool is_timer = known != of_.fibers.end() && known->second.role == fiber_role::timer;
    track_event begin(slice_begin, w.track);
    begin.name(label(e.value, e.place)).note("fiber", e.value);
    if (const std::uint32_t place = place_of(e)) begin.note("started at", place_text(place));
    if (known != of_.fibers.end() && known->second.parent != 0) {
      begin.note("started by fiber", known->second.parent);
    }
    if (const auto at = queued_.find(e.value); at != queued_.end()) {
      if (at->second != 0) begin.flow(event_field::flow_end, at->second);
      queued_.erase(at);
      count_runnable(e.time);
    }
    out_.add(e.time, begin);
    if (is_timer) out_.add(e.time, track_event(slice_begin, timer_fiber_).name("runs"));
    timer_runs_on_ = is_timer ? &w : timer_runs_on_;
  }

  // The fiber that was running on the worker runs no more.
  void end_stretch(const recorded_event& e, worker_track& w) {
    const std::uint64_t last = std::exchange(w.runs, 0);
    if (last == 0) return;
    track_event end(slice_end, w.track);
    const std::string how = left_text(e.detail);
    if (!how.empty()) end.note("left", how);
    out_.add(e.time, end);
    if (timer_runs_on_ == &w) {
      timer_runs_on_ = nullptr;
      out_.add(e.time, track_event(slice_end, timer_fiber_));
    }
  }

  void ready(const recorded_event& e, std::uint64_t track) {
    const std::uint64_t id = ++flows_;
    out_.add(e.time,
             track_event(instant, track)
                 .name("ready " + label(e.value, 0))
                 .flow(event_field::flow, of_.runtime << 40 | id));
    queued_[e.value] = of_.runtime << 40 | id;
    count_runnable(e.time);
  }

  void armed(const recorded_event& e, std::uint64_t track, std::string_view name) {
    track_event armed(instant, track);
    armed.name(name);
    if (e.value != 0) armed.note("due in ns", ahead(e));
    out_.add(e.time, armed);
    count_pending(e);
  }

  void fired(const recorded_event& e) {
    out_.add(
        e.time,
        track_event(instant, timer_fiber_).name(fired_text(e.detail)).note("late by ns", e.value));
  }

  void count_pending(const recorded_event& e) {
    const int change = pending_change(e.kind);
    if (change == 0 || !is_whole(e)) return;
    pending_ += change;
    out_.add(e.time,
             track_event(counter, pending_track_)
                 .value(static_cast<std::uint64_t>(std::max<std::int64_t>(0, pending_))));
  }

  void count_runnable(nanos time) {
    out_.add(time, track_event(counter, runnable_track_).value(queued_.size()));
  }

  // Whether the rings have all that came with it: the begin of an end, the other changes
  // of a counter.
  bool is_whole(const recorded_event& e) const noexcept { return e.time >= of_.whole_since; }

  // From the event to the deadline, whose microseconds have lost their upper bits.
  static nanos ahead(const recorded_event& e) noexcept {
    const std::uint64_t distance = e.value - static_cast<std::uint64_t>(e.time / 1000);
    const auto micros =
        static_cast<std::int64_t>(distance << event::detail_bits) >> event::detail_bits;
    return micros * 1000 + e.detail - e.time % 1000;
  }

  bool is_system(std::uint64_t id) const {
    const auto known = of_.fibers.find(id);
    return known != of_.fibers.end() &&
           (known->second.role == fiber_role::timer || known->second.role == fiber_role::runner);
  }

  std::uint32_t place_of(const recorded_event& e) const {
    if (e.place != 0) return e.place;
    const auto known = of_.fibers.find(e.value);
    return known != of_.fibers.end() ? known->second.place : 0;
  }

  std::string place_text(std::uint32_t place) const {
    const recorded_place& p = of_.places[place - 1];
    return p.line == 0 ? p.file : p.file + ":" + std::to_string(p.line);
  }

  std::string label(std::uint64_t id, std::uint32_t place) const {
    const auto known = of_.fibers.find(id);
    const bool is_runner = known != of_.fibers.end() && known->second.role == fiber_role::runner;
    if (is_runner && place != 0 && of_.places[place - 1].line != 0) {
      return "callback " + place_text(place);
    }
    const std::string number = "fiber " + std::to_string(id);
    if (known == of_.fibers.end() || known->second.name.empty()) {
      return is_runner ? "callbacks" : number;
    }
    return known->second.role == fiber_role::user ? known->second.name + " (" + number + ")"
                                                  : known->second.name;
  }

  // Apart from the fiber's regions: a call that its fiber has left goes on.
  std::uint64_t call_track_of(std::uint64_t fiber) {
    std::uint64_t& track = calls_[fiber];
    if (track == 0) track = out_.add_track("calls of " + label(fiber, 0), process_);
    return track;
  }

  std::uint64_t track_of(std::uint64_t fiber) {
    std::uint64_t& track = fibers_[fiber];
    if (track == 0) track = out_.add_track(label(fiber, 0), process_);
    return track;
  }

  trace_file& out_;
  const recording& of_;
  const std::uint64_t process_;
  std::vector<worker_track> workers_;
  std::uint64_t timer_fiber_ = 0;
  std::uint64_t outside_ = 0;
  std::uint64_t runnable_track_ = 0;
  std::uint64_t pending_track_ = 0;
  worker_track* timer_runs_on_ = nullptr;
  std::unordered_map<std::uint64_t, std::uint64_t> fibers_;  // the tracks of fibers
  std::unordered_map<std::uint64_t, std::uint64_t> calls_;   // the tracks of their calls
  std::unordered_map<std::uint64_t, std::uint64_t> queued_;  // runnable: the flow that ends
  std::int64_t pending_ = 0;
  std::uint64_t flows_ = 0;
};

}  // namespace

std::string to_perfetto(const std::vector<recording>& all) {
  trace_file out;
  const std::uint64_t process =
      out.add_track({},
                    0,
                    descriptor_field::process,
                    proto_writer()
                        .number(process_field::pid, static_cast<std::uint64_t>(::getpid()))
                        .text(process_field::name, valid_utf8(program_name())));
  for (const recording& r : all)
    runtime_tracks(out, r, process).write_all();
  return std::move(out).take();
}

}  // namespace VIGIL_DETAIL
