#include "core/base/atomic.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/fiber_report.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/report.hpp"
#include "inspect/stopped_threads.hpp"
#include "inspect/stuck_fibers.hpp"
#include "inspect/symbols.hpp"

#include <vigil/leaks.hpp>
#include <vigil/testing.hpp>
#include <vigil/time.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {
namespace {

constexpr nanos report_patience = 20'000'000'000;

// Caller, of this and the following: holds the slab_hold of the search.
fiber_report report_on(const std::vector<waiting_fiber>& found) {
  const handler_scope inside;
  return collect_these(found);
}

// The fiber that alone can end the wait, if it is known.
const shown_fiber* awaited_fiber(const awaited_object& o) noexcept {
  if (o.type != awaited_object::kind::object) return nullptr;
  const shown_object& one = o.cases[0];
  const bool is_fiber =
      one.type == shown_object::kind::one_fiber || one.held_by == shown_object::holder::a_fiber;
  return is_fiber ? &one.who : nullptr;
}

// Fibers that wait for each other, as the holders of locks or to join.
class wait_cycles {
 public:
  explicit wait_cycles(const fiber_report& r) {
    for (const auto& g : r.groups) {
      for (const reported_fiber& f : g->fibers)
        all_[{f.shown.runtime, f.shown.id}] = {&f, 0};
    }
  }

  void write(dump_writer& out) {
    unsigned walk = 0;
    for (auto& [_, first] : all_) {
      ++walk;
      member* at = &first;
      for (; at != nullptr && at->walk == 0; at = next(*at))
        at->walk = walk;
      if (at != nullptr && at->walk == walk) write_from(out, at);
    }
  }

 private:
  struct member {
    const reported_fiber* fiber;
    unsigned walk;  // that has come by; 0: none
  };

  member* next(const member& m) {
    const shown_fiber* const f = awaited_fiber(m.fiber->awaited);
    const auto found = f != nullptr ? all_.find({f->runtime, f->id}) : all_.end();
    return found != all_.end() ? &found->second : nullptr;
  }

  void write_from(dump_writer& out, member* const first) {
    const fiber_view& who = first->fiber->shown;
    out.text("cycle: fiber ").number(who.id);
    if (who.name[0] != '\0') out.text(" (").name(who.name).text(")");
    write_runtime(out, who.runtime);
    member* at = first;
    do {
      out.text(at == first ? " waits for " : ", which waits for ");
      out.text(to_string(at->fiber->shown.reason));
      write_awaited(out, at->fiber->awaited, false);
      at = next(*at);
    } while (at != first);
    out.text("\n");
  }

  std::map<std::pair<std::uint64_t, std::uint64_t>, member> all_;  // by runtime and number
};

std::string text_of(const inspect::stuck_report& r, fiber_report& certain, fiber_report& possible) {
  number_objects({&certain, &possible});
  symbol_reader names;
  std::string text;
  dump_writer out(text);
  out.text("vigil: fibers that can never go on: ").number(r.certain.size()).text("\n");
  wait_cycles(certain).write(out);
  write_text(out, certain, names, false);
  if (!r.why_none_certain.empty()) {
    out.text("    (none is certain: ").text(r.why_none_certain.c_str()).text(")\n");
  }
  out.text("vigil: fibers that may never go on: ").number(r.possible.size()).text("\n");
  write_text(out, possible, names, false);
  out.flush();
  return text;
}

std::vector<inspect::stuck_fiber> listed(const std::vector<waiting_fiber>& found) {
  const handler_scope inside;
  std::vector<inspect::stuck_fiber> all;
  for (const waiting_fiber& f : found) {
    fiber_view s;
    if (take_view(f.where, s) && f.is(s)) all.push_back({s.id, s.runtime, s.name});
  }
  return all;
}

inspect::stuck_report report_of(const stuck_list& found) {
  std::vector<waiting_fiber> of[2];
  for (const waiting_fiber& f : found.fibers)
    of[f.way == open_way::none ? 0 : 1].push_back(f);
  inspect::stuck_report r;
  r.certain = listed(of[0]);
  r.possible = listed(of[1]);
  if (found.why_not != nullptr) r.why_none_certain = found.why_not;
  fiber_report certain = report_on(of[0]);
  fiber_report possible = report_on(of[1]);
  r.text = text_of(r, certain, possible);
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
  return find_stuck_fibers();
}

// Keeps what a search has found, and the slabs from before the search until the report is
// made: fibers that end meanwhile leave stacks that are looked at.
struct held_list {
  const slab_hold hold{};
  const stuck_list list = search_now();
};

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
  const auto found = std::make_shared<const detail::held_list>();
  const auto report = std::make_shared<stuck_report>();
  if (found->list.fibers.empty()) {
    *report = detail::report_of(found->list);
    return std::move(*report);
  }
  const bool is_done = detail::on_own_thread(
      detail::report_patience, [report, found] { *report = detail::report_of(found->list); });
  if (!is_done) {
    throw std::system_error(ETIMEDOUT,
                            std::generic_category(),
                            "vigil::inspect::find_stuck_fibers: the names of functions take too "
                            "long: a fiber may hold a lock of malloc or the dynamic loader");
  }
  return std::move(*report);
}

void dump_stuck_fibers(std::FILE* out) {
  const std::string text = find_stuck_fibers().text;
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
      if (!is_clean && (!r.certain.empty() || !may_change)) throw leak(r.text);
    }
    detail::pause(is_virtual ? nullptr : caller, time);
  }
}

}  // namespace VIGIL_PUBLIC::testing
