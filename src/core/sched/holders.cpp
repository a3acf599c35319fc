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

// A runner counts while it is in a callback, whose place it has then.
bool is_holder(const fiber_view& v, const scheduler& of) noexcept {
  return v.sched == &of && v.state != fiber_state::ended &&
         (v.role == fiber_role::user || v.in_callback);
}

}  // namespace

void run_core::list_holders(dump_writer& out) noexcept {
  out.text("vigil: what holds runtime ").number(number_).text("\n");

  std::string lines;
  dump_writer to(lines);
  fiber_lines holding{
      .out = to, .before = "    ", .takes = &is_holder, .of = this, .at_most = shown};
  write_lines(holding);
  to.flush();
  out.text("  fibers besides the main one: ").number(holding.found).text("\n");
  out.text(lines.c_str());
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
  if (n > shown) out.text("    ... and ").number(n - shown).text(" more\n");

  out.text("  outside work: ").number(outside.count());
  out.text(", of it functions on side pools: ").number(calls.under_way()).text("\n");
  calls.write(out);
}

void process_list_holders(dump_writer& out) noexcept {
  {
    const handler_scope inside;
    for_each_running([&out](scheduler& s, runtime_slot&) { run_of(s).list_holders(out); });
  }
  out.flush();
}

}  // namespace VIGIL_DETAIL
