// Lists in text what keeps a run with exit_when::all_done from ending.
#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/run_core.hpp"
#include "core/sched/worker/running_runtimes.hpp"

#include <array>
#include <string>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t shown = 64;

struct holding_fibers {
  const scheduler& of;
  std::string lines;
  dump_writer out{lines};
  std::size_t n = 0;
};

// A runner counts while it is in a callback, whose place it has then.
void visit_holding(const stack& where, void* argument) noexcept {
  auto& all = *static_cast<holding_fibers*>(argument);
  fiber_view s;
  if (!take_view(where, s) || s.sched != &all.of || s.state == fiber_state::ended) return;
  if (s.role != fiber_role::user && !s.in_callback) return;
  if (all.n++ >= shown) return;
  const auto no_object = [] {};
  dump_fiber(all.out.text("    "), s, no_object);
}

void write_more(dump_writer& out, std::size_t n) noexcept {
  if (n > shown) out.text("    ... and ").number(n - shown).text(" more\n");
}

}  // namespace

void run_core::list_holders(dump_writer& out) noexcept {
  out.text("vigil: what holds runtime ").number(number_).text("\n");

  holding_fibers holding{.of = *this, .lines = {}};
  {
    const slab_hold hold;
    for_each_stack_in_use(&visit_holding, &holding);
  }
  holding.out.flush();
  out.text("  fibers besides the main one: ").number(holding.n).text("\n");
  out.text(holding.lines.c_str());
  write_more(out, holding.n);
  parts_above.for_each([&out](runtime_part& p) { p.write(out); });

  std::array<timer_holder, shown> timers;
  const std::size_t n = timers_->list_holders(timers.data(), shown);
  out.text("  referenced timers: ").number(n).text("\n");
  const nanos now = clock.now();
  for (std::size_t i = 0; i < n && i < shown; ++i) {
    const timer_holder& t = timers[i];
    out.text(t.periodic ? "    every() at " : "    made at ");
    out.text(copied_text(t.made_at.file).get()).text(":").number(t.made_at.line);
    if (t.deadline > now) {
      out.text(", due in ").seconds(t.deadline - now).text("\n");
    } else {
      out.text(", due\n");
    }
  }
  write_more(out, n);

  out.text("  outside work: ").number(outside.count());
  out.text(", of it functions on side pools: ").number(calls.under_way()).text("\n");
  calls.write(out);
}

void process_list_holders(dump_writer& out) noexcept {
  handlers_inside.fetch_add(1);
  for_each_running([&out](scheduler& s, runtime_slot&) { run_of(s).list_holders(out); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

}  // namespace VIGIL_DETAIL
