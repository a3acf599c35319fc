// Lists in text what keeps a run with exit_when::all_done from ending. Each kind is
// copied under its lock, and written without it.
#include "base/foreign_memory.hpp"
#include "base/thread_annotations.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/report/process_dump.hpp"
#include "sched/run_core.hpp"
#include "sched/worker/running_runtimes.hpp"

#include <array>
#include <cstring>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t shown = 64;

struct seen_fiber {
  std::uint64_t id;
  wait_reason reason;
  fiber_state state;
  const char* file;
  std::uint32_t line;
  char name[fiber_identity::name_room];
  bool callback;
};

// Copies the fields racing with the fiber, which may be giving itself a name.
VIGIL_NO_SANITIZE_THREAD void copy_of(const fiber& f, seen_fiber& s) noexcept {
  s.id = f.identity.id;
  s.reason = f.present.reason.load();
  s.state = f.state.load();
  s.callback = f.role == fiber_role::runner;
  s.file = f.identity.file;
  s.line = f.identity.line;
  for (std::size_t i = 0; i < sizeof s.name; ++i)
    s.name[i] = static_cast<const volatile char*>(f.identity.name)[i];
  s.name[sizeof s.name - 1] = '\0';
}

void write(dump_writer& out, const seen_fiber& f) noexcept {
  out.text("    fiber ").number(f.id);
  if (f.callback) {
    out.text(" (in a callback)");
  } else if (f.name[0] != '\0') {
    out.text(" (").name(f.name).text(")");
  }
  out.text(" [").text(to_string(f.state));
  if (f.state == fiber_state::parked) out.text(": ").text(to_string(f.reason));
  out.text("] started at ").text(copied_text(f.file).get());
  out.text(":").number(f.line).text("\n");
}

void write_more(dump_writer& out, std::size_t n) noexcept {
  if (n > shown) out.text("    ... and ").number(n - shown).text(" more\n");
}

}  // namespace

void run_core::list_holders(dump_writer& out) noexcept {
  out.text("vigil: what holds runtime ").number(number_).text("\n");

  std::array<seen_fiber, shown> holding;
  std::size_t n = 0;
  fibers.for_each([&](const fiber& f) {
    const bool in_callback = f.role == fiber_role::runner && f.callback.load() != nullptr;
    if (f.role != fiber_role::user && !in_callback) return;
    if (n < shown) copy_of(f, holding[n]);
    ++n;
  });
  out.text("  fibers besides the main one: ").number(n).text("\n");
  for (std::size_t i = 0; i < n && i < shown; ++i)
    write(out, holding[i]);
  write_more(out, n);
  parts_above.for_each([&out](runtime_part& p) { p.write(out); });

  std::array<timer_holder, shown> timers;
  n = timers_->list_holders(timers.data(), shown);
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

  struct seen_call {
    std::uint64_t fiber_id;
    char name[fiber_identity::name_room];
    site from;
    nanos since;
  };

  std::array<seen_call, shown> seen;
  n = 0;
  calls.for_each([&](const side_call& c) {
    if (n < shown) {
      seen[n] = {c.fiber_id, {}, c.from, c.since};
      std::memcpy(seen[n].name, c.fiber_name, sizeof seen[n].name);
    }
    ++n;
  });
  out.text("  outside work: ").number(outside.count());
  out.text(", of it functions on side pools: ").number(n).text("\n");
  for (std::size_t i = 0; i < n && i < shown; ++i) {
    out.text("    called by fiber ").number(seen[i].fiber_id);
    if (seen[i].name[0] != '\0') out.text(" (").name(seen[i].name).text(")");
    out.text(" at ").text(copied_text(seen[i].from.file).get());
    out.text(":").number(seen[i].from.line);
    out.text(", ").seconds(monotonic_now() - seen[i].since).text(" ago\n");
  }
  write_more(out, n);
}

void process_list_holders(dump_writer& out) noexcept {
  handlers_inside.fetch_add(1);
  for_each_running([&out](scheduler& s, runtime_slot&) { run_of(s).list_holders(out); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

}  // namespace VIGIL_DETAIL
