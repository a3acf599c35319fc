#include "core/sched/report/dump.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/base/thread_annotations.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <cstring>
#include <string>

namespace VIGIL_DETAIL {

namespace {

struct census {
  dump_writer* out;
  const dump_extension* extension = installed_extension.load();
  const scheduler* running_on = nullptr;  // the running fibers of this one alone
  std::size_t fibers = 0;
  std::size_t shown = 0;
};

void describe_run(dump_writer& out, const fiber_view& s) noexcept {
  if (!s.ran) return;
  if (s.ran->at_least < 1'000'000) {
    out.text(", for at most ").seconds(s.ran->at_most);
  } else {
    out.text(", for ").seconds(s.ran->at_least).text(" to ").seconds(s.ran->at_most);
  }
}

void describe_state(dump_writer& out, const fiber_view& s, const call_ref& object) noexcept {
  if (s.moved_on) {
    out.text("has moved on");
    return;
  }
  out.text(to_string(s.state));
  if (s.state == fiber_state::running) describe_run(out, s);
  if (s.state != fiber_state::parked) return;
  out.text(": ").text(to_string(s.reason));
  object();
  const bool user = s.role == fiber_role::user || s.role == fiber_role::main;
  if (user && s.since != 0) {
    out.text(", for ").seconds(s.now > s.since ? s.now - s.since : 0);
  }
  if (s.until != never) {
    if (s.until >= s.now) {
      out.text(", due in ").seconds(s.until - s.now);
    } else {
      out.text(", due ").seconds(s.now - s.until).text(" ago");
    }
  }
}

void visit_stack(const stack& where, void* argument) noexcept {
  auto& c = *static_cast<census*>(argument);
  fiber_view s;
  if (!take_view(where, s)) return;
  if (c.running_on != nullptr && (s.sched != c.running_on || s.state != fiber_state::running)) {
    return;
  }
  ++c.fibers;
  if (c.shown == fibers_shown_at_most) return;
  ++c.shown;
  const auto object = [&] {
    if (c.extension != nullptr) c.extension->write_object(*c.out, where, s);
  };
  dump_fiber(*c.out, s, object);
  if (c.extension != nullptr) c.extension->write_frames(*c.out, where, s);
}

void dump_fibers(dump_writer& out) noexcept {
  census c{&out};
  out.text("vigil: fibers\n");
  const slab_hold hold;
  for_each_stack_in_use(&visit_stack, &c);
  if (c.fibers > c.shown) out.text("... and ").number(c.fibers - c.shown).text(" more\n");
  out.number(c.fibers).text(" fibers\n");
  if (c.extension != nullptr) c.extension->write_limits(out);
}

void dump_runtime(dump_writer& out, const scheduler& s, bool with_tasks) noexcept {
  runtime_stats t;
  s.add_stats(t);
  out.text("runtime ").number(s.number()).text(": ");
  out.number(s.workers().size()).text(" workers, ");
  out.number(s.idle_count()).text(" asleep; ");
  out.number(t.timers_pending).text(" timers pending, ");
  out.number(t.timers_armed).text(" armed, ");
  out.number(t.timers_fired).text(" fired, ");
  out.number(t.timers_stopped).text(" stopped; ");
  out.number(t.heap_entries).text(" heap entries, ");
  out.number(t.dead_entries).text(" dead");
  const nanos next = s.board.next_deadline.load();
  if (next != never) {
    const nanos now = s.clock.now();
    out.text("; next deadline in ").seconds(next - now);
  }
  out.text("\n");
  s.notes.dump(out, s.clock.now());
  const runtime_parts& above = s.parts_above;
  if (runtime_part* const clocks = above.find(runtime_part::kind::clocks)) clocks->write(out);
  runtime_part* const tasks = above.find(runtime_part::kind::tasks);
  if (tasks != nullptr && with_tasks) tasks->write(out);
}

// Writes the fibers as the extension shows them; false if there is none, or it cannot.
bool write_by_extension(dump_writer& out, const scheduler* running_on) noexcept {
  const dump_extension* const more = installed_extension.load();
  std::string text;
  if (more == nullptr || !more->write_fibers(text, running_on)) return false;
  out.text(text.c_str(), text.size());
  return true;
}

}  // namespace

constinit atomic<const dump_extension*> installed_extension{nullptr};

void dump_fiber(dump_writer& out, const fiber_view& s, call_ref object) noexcept {
  out.text(s.task != nullptr ? "task " : "fiber ").number(s.id);
  if (s.name[0] != '\0') out.text(" (").name(s.name).text(")");
  out.text(" [");
  describe_state(out, s, object);
  if (s.pinned) out.text(", pinned");
  if (s.stopped) out.text(", stop requested");
  out.text("] started at ").file(copied_text(s.file).get());
  if (s.line != 0) out.text(":").number(s.line);
  if (s.parent != 0) out.text(" by fiber ").number(s.parent);
  out.text("\n");
}

void process_dump_rest(dump_writer& out, bool with_fibers) noexcept {
  handlers_inside.fetch_add(1);
  if (with_fibers) dump_fibers(out);
  for_each_running([&](const scheduler& s, runtime_slot&) { dump_runtime(out, s, with_fibers); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

void process_dump(dump_writer& out, dump_place place) noexcept {
  // A slow reader of this text holds up no end of a run.
  const bool is_written = place == dump_place::program && write_by_extension(out, nullptr);
  process_dump_rest(out, !is_written);
}

void process_dump(int descriptor, dump_place place) noexcept {
  dump_writer out(descriptor);
  process_dump(out, place);
}

namespace {

// Calls visit(stack, argument) for each stack in use, as part of a dump that is no
// handler's.
template <class Argument>
void visit_all(void (*visit)(const stack&, void*) noexcept, Argument& argument) noexcept {
  handlers_inside.fetch_add(1);
  {
    const slab_hold hold;
    for_each_stack_in_use(visit, &argument);
  }
  handlers_inside.fetch_sub(1);
}

struct run_of_worker {
  const worker& on;
  fiber_view& s;
  bool found = false;
};

void visit_for_worker(const stack& where, void* argument) noexcept {
  auto& r = *static_cast<run_of_worker*>(argument);
  if (current_of(r.on) == control_block(where)) r.found = take_view(where, r.s);
}

}  // namespace

void process_dump_running(int descriptor, const scheduler& s) noexcept {
  dump_writer out(descriptor);
  if (!write_by_extension(out, &s)) {
    census c{.out = &out, .running_on = &s};
    visit_all(&visit_stack, c);
  }
  out.flush();
}

bool view_of_running(const worker& w, fiber_view& s) noexcept {
  if (current_of(w) == nullptr) return false;
  run_of_worker r{w, s};
  visit_all(&visit_for_worker, r);
  return r.found;
}

const char* describe_fiber(const stack& where, char* text, std::size_t size) noexcept {
  fiber_view s;
  if (size == 0) return "fiber_options::stack_size";
  text[0] = '\0';
  if (!take_view(where, s)) return "fiber_options::stack_size";
  const fiber_words name(s);
  const std::size_t n = std::min(std::strlen(name.text()), size - 1);
  std::memcpy(text, name.text(), n);
  text[n] = '\0';
  switch (s.role) {
    case fiber_role::main:
      return "options::main_stack_size";
    case fiber_role::runner:
    case fiber_role::timer:
      return "options::stack_size";
    case fiber_role::user:
      break;
  }
  return "fiber_options::stack_size";
}

}  // namespace VIGIL_DETAIL
