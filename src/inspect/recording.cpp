#include "inspect/recording.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/long_runs.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/report.hpp"
#include "inspect/symbols.hpp"

#include <algorithm>
#include <cstring>
#include <memory>
#include <system_error>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

constexpr unsigned lost_bits = 8;  // of an event's time

struct raw_log {
  std::uint32_t number;
  bool has_wrapped;
  std::vector<event> events;
};

struct raw_recording {
  const scheduler* sched;  // only compared
  recording done;
  std::vector<raw_log> logs;
  // One for all its logs, so that their order is kept.
  event_clock clock;
  event_log::moment opened;
  event_log::moment copied;
};

raw_log copy_of(const event_log& log, std::uint32_t number) {
  // Not cleared: pages that no event has reached stay untouched.
  const std::unique_ptr<event[]> room(new event[log.capacity()]);
  const std::size_t n = log.copy(room.get());
  return {number, log.written() >= log.capacity(), {room.get(), room.get() + n}};
}

// Finds the time on the runtime's clock of each event.
class event_times {
 public:
  explicit event_times(const raw_recording& of) noexcept : last_(of.copied) {
    if (of.clock != event_clock::ticks) return;
    const auto units = static_cast<double>(of.copied.units - of.opened.units);
    const auto span = static_cast<double>(of.copied.now - of.opened.now);
    if (units > 0 && span > 0) nanos_per_unit_ = span / units;
  }

  nanos of(const event& e) const noexcept {
    // The upper bits are those of the last moment. No event is later, but for the skew of
    // two processors.
    constexpr std::uint64_t skew = std::uint64_t{1} << 40;
    const std::uint64_t before = ((last_.units - e.time()) << lost_bits) >> lost_bits;
    const std::uint64_t after = ((e.time() - last_.units) << lost_bits) >> lost_bits;
    const double units = after < skew ? -static_cast<double>(after) : static_cast<double>(before);
    return last_.now - static_cast<nanos>(units * nanos_per_unit_);
  }

 private:
  event_log::moment last_;
  double nanos_per_unit_ = 1;
};

// Reads the words of one log into the recording.
class log_reader {
 public:
  explicit log_reader(recording& out) : out_(out) {}

  void read(const raw_log& log, const event_times& times, nanos newest, nanos last) {
    if (log.has_wrapped && !log.events.empty()) {
      out_.whole_since = std::max(out_.whole_since, times.of(log.events.front()));
    }
    std::uint64_t current = 0;
    for (std::size_t i = 0; i < log.events.size(); ++i) {
      const event& e = log.events[i];
      switch (e.kind()) {
        case event_kind::place:
          if (shown_ != nullptr) shown_->place = place_of(e);
          if (started_ != nullptr) started_->place = place_of(e);
          continue;
        case event_kind::name:
          if (started_ != nullptr) add_name(e);
          continue;
        case event_kind::run:
          out_.fibers.try_emplace(e.value());
          current = e.value();
          break;
        case event_kind::leave:
          current = 0;
          break;
        case event_kind::ready:
        case event_kind::call_begins:
          out_.fibers.try_emplace(e.value());
          break;
        default:
          break;
      }
      shown_ = nullptr;
      started_ = nullptr;
      if (e.kind() == event_kind::none || static_cast<unsigned>(e.kind()) >= event_kinds) continue;
      if (e.kind() == event_kind::start) {
        started_ = &out_.fibers[e.value()];
        started_->parent = current;
        started_->role = static_cast<fiber_role>(e.detail());
        started_->name.clear();
      }
      if (e.kind() == event_kind::region_begins) add_region(e.value());
      const nanos time = times.of(e);
      if (newest - time > last) continue;
      out_.events.push_back({time, e.kind(), e.detail(), log.number, e.value()});
      shown_ = &out_.events.back();
    }
    shown_ = nullptr;
    started_ = nullptr;
  }

 private:
  static std::string text_at(std::uint64_t address) {
    char text[256];
    const auto* const from = reinterpret_cast<const char*>(static_cast<std::uintptr_t>(address));
    return read_text(from, text, sizeof text) ? text : "?";
  }

  std::uint32_t place_of(const event& e) {
    const auto line = static_cast<std::uint32_t>(e.time());
    const auto [at, fresh] = places_.try_emplace({e.value(), line}, 0);
    if (fresh) {
      out_.places.push_back({text_at(e.value()), line});
      at->second = static_cast<std::uint32_t>(out_.places.size());
    }
    return at->second;
  }

  void add_name(const event& e) {
    char part[sizeof(event)];
    std::memcpy(part, &e, sizeof part);
    started_->name.append(part + 1, ::strnlen(part + 1, sizeof part - 1));
  }

  void add_region(std::uint64_t address) {
    const auto [at, fresh] = out_.regions.try_emplace(address);
    if (fresh) at->second = text_at(address);
  }

  struct pair_hash {
    std::size_t operator()(const std::pair<std::uint64_t, std::uint32_t>& p) const noexcept {
      return p.first * 0x9e37'79b9'7f4a'7c15 + p.second;
    }
  };

  recording& out_;
  std::unordered_map<std::pair<std::uint64_t, std::uint32_t>, std::uint32_t, pair_hash> places_;
  recorded_event* shown_ = nullptr;
  recorded_fiber* started_ = nullptr;
};

// Names those fibers of events that are there still: they may have been started long
// before.
void add_living(const stack& where, void* argument) noexcept {
  fiber_view s;
  if (!take_view(where, s)) return;
  for (raw_recording& r : *static_cast<std::vector<raw_recording>*>(argument)) {
    if (r.sched != s.sched) continue;
    const auto found = r.done.fibers.find(s.id);
    if (found == r.done.fibers.end()) return;
    try {
      recorded_fiber& f = found->second;
      f.role = s.role;
      if (s.parent != 0) f.parent = s.parent;
      // A fiber for callbacks has another name in each; its runs say which.
      if (s.role == fiber_role::runner) return;
      f.name = s.name;
      if (f.place != 0 || s.file == nullptr) return;
      char file[256];
      if (!read_text(s.file, file, sizeof file)) return;
      r.done.places.push_back({file, s.line});
      f.place = static_cast<std::uint32_t>(r.done.places.size());
    } catch (const std::bad_alloc&) {
      return;  // a number instead of a name
    }
  }
}

std::vector<raw_recording> copy_logs() {
  std::vector<raw_recording> raw;
  std::exception_ptr error;
  const handler_scope inside;
  for_each_running([&](const scheduler& s, runtime_slot&) {
    if (!s.events_outside->log().is_on() || error != nullptr) return;
    try {
      raw_recording& r = raw.emplace_back();
      r.sched = &s;
      r.done.runtime = s.number();
      r.done.is_virtual = s.clock.is_virtual();
      const event_log& outside = s.events_outside->log();
      // First, since it has the start of the run: at equal times it comes before others.
      r.logs.push_back(copy_of(outside, recording::outside));
      for (const auto& w : s.workers()) {
        r.logs.push_back(copy_of(w->counters.log, w->index));
        r.done.threads.push_back(w->kernel_thread.load());
      }
      r.clock = outside.clock();
      r.opened = outside.opened();
      r.copied = outside.present();
      runtime_stats stats;
      s.add_stats(stats);
      r.done.pending = stats.timers_pending;
    } catch (...) {
      error = std::current_exception();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
  return raw;
}

// A line each, without the indentation.
std::vector<std::string> lines_of(const frame_list& frames, symbol_reader& names) {
  std::string text;
  dump_writer to(text);
  write_frames(to, frames, names);
  to.flush();
  std::vector<std::string> lines;
  for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
    end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    lines.back().erase(0, lines.back().find_first_not_of(' '));
  }
  return lines;
}

// On a thread of its own, since the caller may be a fiber. If naming the functions fails,
// or takes too long, the trace has none of them.
std::vector<recorded_run> named(const std::vector<kept_run>& runs) {
  if (runs.empty()) return {};
  const auto all = std::make_shared<std::vector<recorded_run>>();
  const auto name_all = [all, runs] {
    symbol_reader names;
    for (const kept_run& k : runs)
      all->push_back({k.time, k.fiber, k.worker, k.limit, lines_of(k.frames, names)});
  };
  try {
    if (on_own_thread(names_patience, name_all)) return std::move(*all);
  } catch (const std::system_error&) {  // no thread could be started
  }
  return {};
}

// Real time would give each trace of a seed other ones.
void add_long_runs(recording& to, nanos now, nanos last) {
  if (to.is_virtual) return;
  std::vector<kept_run> runs = kept_runs_of(to.runtime);
  std::erase_if(runs, [&](const kept_run& k) { return now - k.time > last; });
  to.long_runs = named(runs);
  std::ranges::stable_sort(to.long_runs, {}, &recorded_run::time);
}

}  // namespace

std::vector<recording> collect_recordings(nanos last) {
  std::vector<raw_recording> raw = copy_logs();
  for (raw_recording& r : raw) {
    log_reader reader(r.done);
    const event_times times(r);
    for (const raw_log& log : r.logs)
      reader.read(log, times, r.copied.now, last);
    r.logs.clear();
  }
  {
    const handler_scope inside;
    const slab_hold hold;
    for_each_stack_in_use(&add_living, &raw);
  }
  std::vector<recording> all;
  for (raw_recording& r : raw) {
    std::ranges::stable_sort(r.done.events, {}, &recorded_event::time);
    add_long_runs(r.done, r.copied.now, last);
    all.push_back(std::move(r.done));
  }
  return all;
}

}  // namespace VIGIL_DETAIL
