#include "core/sched/report/dump.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/base/thread_annotations.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/report/fiber_table.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <cstring>

namespace VIGIL_DETAIL {

namespace {

void write_run(dump_writer& out, const run_bounds::span& ran) noexcept {
  if (ran.at_least < 1'000'000) {
    out.text("at most ").seconds(ran.at_most);
  } else {
    out.seconds(ran.at_least).text(" to ").seconds(ran.at_most);
  }
}

void write_due(dump_writer& out, nanos in) noexcept {
  if (in >= 0) {
    out.text("in ").seconds(in);
  } else {
    out.seconds(-in).text(" ago");
  }
}

void write_place(dump_writer& out, const fiber_view& v) noexcept {
  out.file(copied_text(v.file).get());
  if (v.line != 0) out.text(":").number(v.line);
}

void write_value(dump_writer& out,
                 const fiber_field& f,
                 const fiber_view& v,
                 const call_ref& object) noexcept {
  switch (f.kind) {
    case field_kind::id:
    case field_kind::runtime:
      out.number(f.raw(v));
      break;
    case field_kind::name:
      out.text(" (").name(v.name).text(")");
      break;
    case field_kind::state:
      out.text(v.state_words());
      break;
    case field_kind::run:
      write_run(out, *v.ran);
      break;
    case field_kind::reason:
      out.text(to_string(v.reason));
      object();
      break;
    case field_kind::age:
      out.seconds(nanos_of(f, v));
      break;
    case field_kind::due:
      write_due(out, nanos_of(f, v));
      break;
    case field_kind::flag:
      break;
    case field_kind::place:
      write_place(out, v);
      break;
  }
}

// Lends the process's one table to a dump; none while another dump has it.
class table_hold {
 public:
  table_hold() noexcept : is_mine_(!is_taken.exchange(true)) {
    if (is_mine_) table.clear();
  }

  ~table_hold() {
    if (is_mine_) is_taken.store(false);
  }

  table_hold(const table_hold&) = delete;
  table_hold& operator=(const table_hold&) = delete;

  fiber_table* get() const noexcept { return is_mine_ ? &table : nullptr; }

 private:
  // The exchange pairs with the store: the next dump sees the table as this one left it.
  static inline atomic<bool> is_taken{false};
  static inline fiber_table table;

  const bool is_mine_;
};

enum class fiber_text : std::uint8_t { none, line, line_and_frames };

// Some of each row are written; of fibers that no table has counted, the first.
fiber_text what_to_write(fiber_lines& all, const stack& where, const fiber_view& v) noexcept {
  if (all.written == all.at_most) return fiber_text::none;
  if (all.table == nullptr) return fiber_text::line_and_frames;
  fiber_row* const row = all.table->find_or_add(v, where);
  if (row == nullptr || row->lines == lines_at_most) return fiber_text::none;
  return ++row->lines <= frames_at_most ? fiber_text::line_and_frames : fiber_text::line;
}

void visit_stack(const stack& where, void* argument) noexcept {
  auto& all = *static_cast<fiber_lines*>(argument);
  fiber_view v;
  if (!take_view(where, v) || (all.takes != nullptr && !all.takes(v, *all.of))) return;
  ++all.found;
  const fiber_text much = what_to_write(all, where, v);
  if (much == fiber_text::none) return;
  ++all.written;
  const auto object = [&] {
    if (all.extension != nullptr) all.extension->write_object(all.out, where, v);
  };
  dump_fiber(all.out.text(all.before), v, object);
  if (all.extension != nullptr && much == fiber_text::line_and_frames) {
    all.extension->write_frames(all.out, where, v);
  }
}

void dump_fibers(dump_writer& out) noexcept {
  const table_hold table;
  fiber_lines all{.out = out, .extension = installed_extension.load(), .table = table.get()};
  out.text("vigil: fibers\n");
  {
    const slab_hold hold;
    if (all.table != nullptr) {
      all.table->add_all();
      write_table(out, *all.table, all.extension);
    }
  }
  write_lines(all);
  out.number(all.found).text(" fibers\n");
  if (all.extension != nullptr) all.extension->write_limits(out);
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
    out.text("; next deadline ");
    write_due(out, next - s.clock.now());
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
  return more != nullptr && more->write_fibers(out, running_on);
}

}  // namespace

constinit atomic<const dump_extension*> installed_extension{nullptr};

void dump_fiber(dump_writer& out, const fiber_view& v, call_ref object) noexcept {
  out.text(v.task != nullptr ? "task " : "fiber ");
  for (const fiber_field& f : fiber_fields) {
    if (is_shown(f, v)) write_value(out.text(f.before), f, v, object);
  }
  out.text("\n");
}

void write_lines(fiber_lines& all) noexcept {
  {
    const slab_hold hold;
    for_each_stack_in_use(&visit_stack, &all);
  }
  if (all.found > all.written) {
    all.out.text(all.before).text("... and ").number(all.found - all.written).text(" more\n");
  }
}

void process_dump_rest(dump_writer& out, bool with_fibers) noexcept {
  {
    const handler_scope inside;
    if (with_fibers) dump_fibers(out);
    for_each_running([&](const scheduler& s, runtime_slot&) { dump_runtime(out, s, with_fibers); });
  }
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

void process_dump_running(int descriptor, const scheduler& s) noexcept {
  dump_writer out(descriptor);
  if (!write_by_extension(out, &s)) {
    const handler_scope inside;
    fiber_lines all{.out = out,
                    .takes =
                        [](const fiber_view& v, const scheduler& of) noexcept {
                          return v.sched == &of && v.state == fiber_state::running;
                        },
                    .of = &s,
                    .extension = installed_extension.load()};
    write_lines(all);
  }
  out.flush();
}

bool view_of_running(const worker& w, stack& where, fiber_view& v) noexcept {
  const fiber* const f = current_of(w);
  stack_place place;
  if (f == nullptr || !find_stack(f, place) || !place.in_use) return false;
  where = place.where;
  return control_block(where) == f && take_view(where, v);
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
