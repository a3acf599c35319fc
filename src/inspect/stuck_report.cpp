#include "core/base/atomic.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/object_numbers.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/report.hpp"
#include "inspect/stopped_threads.hpp"
#include "inspect/stuck_fibers.hpp"
#include "inspect/symbols.hpp"
#include "inspect/wait_ways.hpp"

#include <vigil/leaks.hpp>
#include <vigil/testing.hpp>
#include <vigil/time.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

namespace VIGIL_DETAIL {
namespace {

constexpr nanos report_patience = 20'000'000'000;

void write_open_way(dump_writer& out, const waiting_fiber& f) {
  out.text("    (may go on: ");
  switch (f.way) {
    case open_way::none:
    case open_way::not_known:
      out.text("it is not known what can end this wait)\n");
      return;
    case open_way::other_fiber:
      out.text("the fiber that it waits for may end)\n");
      return;
    case open_way::held_thing:
      out.text("what it waits for can be reached");
      break;
    case open_way::held_stack:
      out.text("something on its stack can be reached");
      break;
    case open_way::held_handle:
      out.text("its handle can be reached, which can stop it");
      break;
  }
  if (f.seen_by != 0) {
    out.text(" from the stack of fiber ").number(f.seen_by).text(")\n");
  } else {
    out.text(" from memory that is no fiber's stack)\n");
  }
}

// False if the fiber has moved on.
bool read_wait(const waiting_fiber& f, fiber_view& s, awaited_object& o) noexcept {
  return take_view(f.where, s) && s.id == f.id && s.runs == f.runs && read_awaited(f.where, s, o);
}

// Reads the waits once more, since there may be many: only addresses are kept.
object_numbers numbers_of(const stuck_list& found) {
  object_numbers numbers;
  for (const waiting_fiber& f : found.fibers) {
    fiber_view s;
    awaited_object o;
    if (read_wait(f, s, o)) numbers.add(o);
  }
  numbers.finish();
  return numbers;
}

// The same.
bool describe(const waiting_fiber& f,
              bool is_certain,
              frames_room& room,
              symbol_reader& names,
              const object_numbers& numbers,
              inspect::stuck_fiber& out) {
  fiber_view s;
  awaited_object o;
  if (!read_wait(f, s, o)) return false;
  find_holders(o);
  numbers.apply(o);
  frame_list frames;
  read_parked_frames(f.where, s, room, frames);
  out.id = s.id;
  out.name = s.name;
  dump_writer to(out.text);
  const auto object = [&] { write_awaited(to, o, false); };
  dump_fiber(to, s, object);
  if (!is_certain) write_open_way(to, f);
  write_frames(to, frames, names);
  to.flush();
  return true;
}

inspect::stuck_report report_of(const stuck_list& found) {
  const handler_scope inside;
  const slab_hold hold;
  const own_frames_room room;
  const object_numbers numbers = numbers_of(found);
  symbol_reader names;
  inspect::stuck_report r;
  if (found.why_not != nullptr) r.why_none_certain = found.why_not;
  for (const waiting_fiber& f : found.fibers) {
    const bool is_certain = found.why_not == nullptr && f.way == open_way::none;
    inspect::stuck_fiber one;
    if (!describe(f, is_certain, room.get(), names, numbers, one)) continue;
    (is_certain ? r.certain : r.possible).push_back(std::move(one));
  }
  return r;
}

// Earlier calls may have left pointers below the caller's frame, in what will be gaps
// between the variables of the functions that are called next.
[[gnu::noinline]] void overwrite_unused_stack() noexcept {
  std::byte room[6144];
  std::memset(room, 0, sizeof room);
  asm volatile("" : : "r"(room) : "memory");
}

stuck_list search_now() {
  const handler_scope inside;
  const slab_hold hold;
  return find_stuck_fibers();
}

std::string text_of(const inspect::stuck_report& r) {
  std::string text;
  dump_writer out(text);
  out.text("vigil: fibers that can never go on: ").number(r.certain.size()).text("\n");
  for (const inspect::stuck_fiber& f : r.certain)
    out.text(f.text.c_str());
  if (!r.why_none_certain.empty()) {
    out.text("    (none is certain: ").text(r.why_none_certain.c_str()).text(")\n");
  }
  out.text("vigil: fibers that may never go on: ").number(r.possible.size()).text("\n");
  for (const inspect::stuck_fiber& f : r.possible)
    out.text(f.text.c_str());
  out.flush();
  return text;
}

struct others_of {
  const fiber* caller;
  const scheduler* sched;
  bool some_go_on = false;
};

void look_for_others(const stack& where, void* argument) noexcept {
  auto& all = *static_cast<others_of*>(argument);
  fiber_view s;
  if (all.some_go_on || control_block(where) == all.caller || !take_view(where, s)) return;
  if (all.sched != nullptr && s.sched != all.sched) return;
  if ((s.role != fiber_role::user && s.role != fiber_role::main) || is_observers(s)) return;
  all.some_go_on = s.state == fiber_state::runnable || s.state == fiber_state::running;
}

// Whether another fiber of the caller's runtime is ready to run or runs. A plain thread
// asks for all runtimes.
bool others_go_on(const fiber* caller) noexcept {
  const handler_scope inside;
  const slab_hold hold;
  others_of all{caller, caller != nullptr ? caller->sched : nullptr, false};
  for_each_stack_in_use(&look_for_others, &all);
  return all.some_go_on;
}

// A check that can find nothing must not look like one that has found nothing.
void warn_once(const inspect::stuck_report& r) noexcept {
  if (r.why_none_certain.empty() || r.possible.empty()) return;
  static atomic<bool> is_said{false};
  // ordering: only one is to say it.
  if (is_said.exchange(true, order::relaxed)) return;
  std::fprintf(
      stderr,
      "vigil: check_no_leaks cannot tell which of %zu waiting fibers can never go on: %s\n",
      r.possible.size(),
      r.why_none_certain.c_str());
}

void pause(const fiber* caller, nanos time) {
  if (caller != nullptr) {
    sleep_for(std::chrono::nanoseconds(time));
  } else {
    std::this_thread::sleep_for(std::chrono::nanoseconds(time));
  }
}

}  // namespace
}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC::inspect {

stuck_report find_stuck_fibers() {
  detail::overwrite_unused_stack();
  const auto found = std::make_shared<const detail::stuck_list>(detail::search_now());
  const auto report = std::make_shared<stuck_report>();
  if (found->fibers.empty()) {
    *report = detail::report_of(*found);
    return std::move(*report);
  }
  const bool is_done = detail::on_own_thread(
      detail::report_patience, [report, found] { *report = detail::report_of(*found); });
  if (!is_done) {
    throw std::system_error(ETIMEDOUT,
                            std::generic_category(),
                            "vigil::inspect::find_stuck_fibers: the names of functions take too "
                            "long: a fiber may hold a lock of malloc or the dynamic loader");
  }
  return std::move(*report);
}

void dump_stuck_fibers(std::FILE* out) {
  const std::string text = detail::text_of(find_stuck_fibers());
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

}  // namespace VIGIL_PUBLIC::inspect

namespace VIGIL_PUBLIC::testing {

void check_no_leaks(const leak_options& options) {
  const detail::fiber* const caller = detail::current_fiber();
  const bool is_virtual = caller != nullptr && caller->sched->clock.is_virtual();
  if (is_virtual) settle();
  const detail::nanos until =
      detail::saturating_add(detail::monotonic_now(), options.patience.count());
  constexpr detail::nanos longest_pause = 50'000'000;
  for (detail::nanos time = 100'000;; time = std::min(2 * time, longest_pause)) {
    const bool may_change = !is_virtual && detail::monotonic_now() < until;
    if (!may_change || !detail::others_go_on(caller)) {
      detail::overwrite_unused_stack();
      const inspect::stuck_report r = inspect::find_stuck_fibers();
      const bool is_clean = r.certain.empty() && (!options.possible || r.possible.empty());
      const bool is_unclear = r.why_none_certain == detail::not_in_time && !r.possible.empty();
      if (is_clean && (!is_unclear || detail::monotonic_now() >= until)) {
        detail::warn_once(r);
        return;
      }
      if (!is_clean && (!r.certain.empty() || !may_change)) throw leak(detail::text_of(r));
    }
    detail::pause(is_virtual ? nullptr : caller, time);
  }
}

}  // namespace VIGIL_PUBLIC::testing
