#include "core/base/debug_layout.hpp"
#include "core/cancel/context_core.hpp"
#include "core/cancel/group_core.hpp"
#include "core/chan/channel_core.hpp"
#include "core/chan/selecting.hpp"
#include "core/machine/left_frame.hpp"
#include "core/machine/slab_table.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/run_core.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/task/task_service.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/detail/sync_core.hpp>

#include <cstddef>
#include <cstdint>
#include <string_view>

// The classes are not of standard layout; both compilers know their offsets all the same.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"

namespace VIGIL_DETAIL {

constexpr const char* to_string(timer_kind kind) noexcept {
  switch (kind) {
    case timer_kind::fiber_ready:
      return "deadline of a wait";
    case timer_kind::go_func:
      return "callback";
    case timer_kind::send_time:
      return "channel of a timer";
  }
  return "?";
}

constexpr const char* to_string(ended_by by) noexcept {
  switch (by) {
    case ended_by::nobody:
      return "nobody";
    case ended_by::end_of_other:
      return "end_of_other";
    case ended_by::channel:
      return "channel";
    case ended_by::cases:
      return "cases";
    case ended_by::group:
      return "group";
    case ended_by::queue:
      return "queue";
    case ended_by::system:
      return "system";
  }
  return "?";
}

}  // namespace VIGIL_DETAIL

struct vigil::detail::cancel_node::places {
  static constexpr std::size_t state = offsetof(cancel_node, state_);
  static constexpr std::size_t above = offsetof(cancel_node, above_);
  static constexpr std::size_t callbacks = offsetof(cancel_node, callbacks_);
  static constexpr std::size_t children = offsetof(cancel_node, children_);
  static constexpr std::size_t in_context =
      offsetof(cancel_context, above_) - offsetof(cancel_node, above_);
};

namespace VIGIL_DETAIL {

#define VIGIL_OFFSET(TYPE, MEMBER) line(#TYPE "." #MEMBER, offsetof(TYPE, MEMBER))
#define VIGIL_SIZE(TYPE) line("sizeof." #TYPE, sizeof(TYPE))
#define VIGIL_VALUE(NAME) line("value." #NAME, static_cast<std::uint64_t>(NAME))

// Writes the text to `out`, or only counts its bytes if that is null.
struct debug_layout {
  constexpr explicit debug_layout(char* out) noexcept : out_(out) {}

  constexpr std::size_t write_all() {
    text("vigil debug layout 3\n");
    machine();
    fibers();
    fields();
    runtimes();
    timers();
    channels();
    locks();
    tasks();
    ends();
    names("fiber_state.", [](unsigned i) { return to_string(static_cast<fiber_state>(i)); });
    names("wait_reason.", [](unsigned i) { return to_string(static_cast<wait_reason>(i)); });
    names("ended_by.",
          [](unsigned i) { return i < std::size(wait_kinds) ? to_string(wait_kinds[i].by) : "?"; });
    names("timer_kind.", [](unsigned i) { return to_string(static_cast<timer_kind>(i)); });
    return size_ + 1;  // the final zero
  }

 private:
  constexpr void text(std::string_view s) {
    for (const char c : s) {
      if (out_ != nullptr) out_[size_] = c;
      ++size_;
    }
  }

  constexpr void number(std::uint64_t n) {
    if (n >= 10) number(n / 10);
    const char digit = static_cast<char>('0' + n % 10);
    text({&digit, 1});
  }

  constexpr void line(std::string_view key, std::uint64_t value) {
    text(key);
    text("=");
    number(value);
    text("\n");
  }

  constexpr void names(std::string_view key, const char* (*name_of)(unsigned)) {
    for (unsigned i = 0;; ++i) {
      const std::string_view name = name_of(i);
      if (name == "?") return;
      text(key);
      number(i);
      text("=");
      text(name);
      text("\n");
    }
  }

  constexpr void machine() {
    VIGIL_OFFSET(slab_table, chunk_count);
    VIGIL_OFFSET(slab_table, chunks);
    VIGIL_OFFSET(chunk, slabs);
    VIGIL_OFFSET(slab, state);
    VIGIL_OFFSET(slab, base);
    VIGIL_OFFSET(slab, count);
    VIGIL_OFFSET(slab, size_class);
    VIGIL_OFFSET(slab, in_use);
    VIGIL_SIZE(slab);
    VIGIL_VALUE(chunk_slabs);
    VIGIL_VALUE(slab_state::vacant);
    VIGIL_VALUE(min_stack_size);
    VIGIL_VALUE(stack_guard_size);
#if VIGIL_OWN_JUMP
    VIGIL_OFFSET(left_frame, r15);
    VIGIL_OFFSET(left_frame, r14);
    VIGIL_OFFSET(left_frame, r13);
    VIGIL_OFFSET(left_frame, r12);
    VIGIL_OFFSET(left_frame, rbx);
    VIGIL_OFFSET(left_frame, rbp);
    VIGIL_OFFSET(left_frame, goes_on);
    VIGIL_SIZE(left_frame);
#endif
  }

  constexpr void fibers() {
    VIGIL_VALUE(block_places::room);
    VIGIL_VALUE(block_places::number_shift);
    VIGIL_VALUE(block_places::factor);
    VIGIL_VALUE(block_places::colour_shift);
    VIGIL_VALUE(block_places::step);
    VIGIL_VALUE(fiber_core::live_magic);
    VIGIL_OFFSET(fiber_core, magic);
    VIGIL_OFFSET(fiber_core, side.resume_at_);
    VIGIL_OFFSET(fiber_core, has_run);
    VIGIL_OFFSET(fiber_core, state);
    VIGIL_OFFSET(fiber_core, present.reason);
    VIGIL_OFFSET(fiber_core, present.object);
    VIGIL_OFFSET(fiber_core, present.ends_with);
    VIGIL_OFFSET(fiber_core, sched);
    VIGIL_OFFSET(fiber_core, identity.line);
    VIGIL_VALUE(fiber_state::running);
    VIGIL_VALUE(fiber_state::parked);
    VIGIL_VALUE(fiber_state::ended);
    VIGIL_VALUE(wait_reason::join);
    VIGIL_VALUE(wait_reason::send);
    VIGIL_VALUE(wait_reason::recv);
    VIGIL_VALUE(wait_reason::select);
    VIGIL_VALUE(wait_reason::mutex);
    VIGIL_VALUE(wait_reason::shared_mutex_read);
    VIGIL_VALUE(wait_reason::shared_mutex_write);
    VIGIL_VALUE(wait_reason::once);
    VIGIL_VALUE(wait_reason::blocking);
    VIGIL_VALUE(wait_reason::io);
    VIGIL_OFFSET(side_call, thread);
    VIGIL_VALUE(never);
  }

  constexpr void fields() {
    for (const fiber_field& f : fiber_fields) {
      text("fiber_field=");
      text(to_string(f.kind));
      text("\t");
      number(f.offset);
      text("\t");
      number(f.size);
      text("\t");
      text(f.key);
      text("\t");
      text(f.before);
      text("\n");
    }
  }

  constexpr void runtimes() {
    VIGIL_OFFSET(slot_block, slots);
    VIGIL_OFFSET(slot_block, next);
    VIGIL_SIZE(slot_block::slots);
    VIGIL_OFFSET(runtime_slot, running);
    VIGIL_SIZE(runtime_slot);
    VIGIL_OFFSET(scheduler, number_);
    VIGIL_OFFSET(scheduler, workers_);
    VIGIL_OFFSET(scheduler, timers_);
    VIGIL_OFFSET(scheduler, clock.virtual_);
    VIGIL_OFFSET(scheduler, clock.virtual_now_);
    VIGIL_OFFSET(worker, current);
    VIGIL_OFFSET(worker, kernel_thread);
  }

  // A std::optional and a std::vector begin with what they hold.
  constexpr void timers() {
    VIGIL_OFFSET(timer_service, parts_);
    VIGIL_OFFSET(timer_service::parts, heap.heap_.entries_);
    VIGIL_OFFSET(timer_service::parts, heap.heap_.size_);
    VIGIL_OFFSET(timer_service::parts, heap.intakes_);
    VIGIL_OFFSET(timer_service::parts, callbacks.queue_.first_);
    VIGIL_OFFSET(intake, size);
    VIGIL_OFFSET(intake, entries);
    VIGIL_SIZE(intake);
    VIGIL_OFFSET(heap_entry, key);
    VIGIL_OFFSET(heap_entry, timer);
    VIGIL_SIZE(heap_entry);
    VIGIL_OFFSET(runtime_timer, when);
    VIGIL_OFFSET(runtime_timer, filed);
    VIGIL_OFFSET(runtime_timer, kind);
    VIGIL_OFFSET(runtime_timer, wait.whose);
    VIGIL_OFFSET(runtime_timer, send.argument);
    VIGIL_OFFSET(timer_record, next);
    VIGIL_OFFSET(timer_record, call.table_);
    VIGIL_OFFSET(timer_record, period);
    VIGIL_OFFSET(timer_record, made_at.file);
    VIGIL_OFFSET(timer_record, made_at.line);
    VIGIL_VALUE(timer_kind::fiber_ready);
    VIGIL_VALUE(timer_kind::go_func);
    VIGIL_OFFSET(waiter, kind_);
    VIGIL_OFFSET(waiter, owner_);
    VIGIL_VALUE(waiter::kind::of_fiber);
    VIGIL_VALUE(waiter::kind::of_thread);
  }

  constexpr void channels() {
    VIGIL_OFFSET(birth, file);
    VIGIL_OFFSET(birth, line_and_name);
    VIGIL_VALUE(birth::line_bits);
    VIGIL_OFFSET(channel_core, made_at);
    VIGIL_OFFSET(channel_core, capacity_);
    VIGIL_OFFSET(channel_core, size_);
    VIGIL_OFFSET(channel_core, marks_);
    VIGIL_VALUE(channel_core::closed);
    VIGIL_OFFSET(channel_core, receivers_.elements_.first_);
    VIGIL_OFFSET(channel_core, senders_.elements_.first_);
    VIGIL_OFFSET(queued_waiter, whose);
    VIGIL_OFFSET(queued_waiter, hook.after);
    VIGIL_OFFSET(shown_select, cases);
    VIGIL_OFFSET(shown_select, count);
    VIGIL_OFFSET(select_case, table);
    VIGIL_OFFSET(select_case, object);
    VIGIL_OFFSET(select_case, type);
    VIGIL_VALUE(select_case::kind::waits);
    VIGIL_OFFSET(case_table, reason);
    VIGIL_OFFSET(case_table, shown_at);
  }

  // A `birth`, which a wait shows as its object, is the beginning of the queue.
  constexpr void locks() {
    VIGIL_OFFSET(mutex_core, queue);
    VIGIL_OFFSET(mutex_core, holder);
    VIGIL_OFFSET(shared_mutex_core, queue);
    VIGIL_OFFSET(shared_mutex_core, holder);
    VIGIL_OFFSET(once_core, queue);
    VIGIL_OFFSET(once_core, runner);
  }

  // all_[0], the part of the tasks, points to the beginning of the task_service.
  constexpr void tasks() {
    static_assert(static_cast<int>(runtime_part::kind::tasks) == 0);
    VIGIL_OFFSET(scheduler, parts_above.all_[0]);
    VIGIL_OFFSET(task_service, all_.first_);
    VIGIL_OFFSET(task_service, runners_.first_);
    VIGIL_OFFSET(task_service::runner, inside);
    VIGIL_OFFSET(task_service::runner, hook.after);
    VIGIL_OFFSET(task_core, next);
    VIGIL_OFFSET(task_core, outermost);
    VIGIL_OFFSET(task_core, among_all.after);
    VIGIL_OFFSET(task_core, id);
    VIGIL_OFFSET(task_core, made_at);
    VIGIL_OFFSET(task_core, park);
    VIGIL_OFFSET(task_core, stop_flag);
    VIGIL_OFFSET(task_core, reason);
    VIGIL_OFFSET(task_core, object);
    VIGIL_OFFSET(task_core, since);
    VIGIL_VALUE(task_core::park_word::running);
    VIGIL_VALUE(task_core::park_word::suspended);
    VIGIL_OFFSET(task_frame, task);
    VIGIL_OFFSET(task_frame, awaiting);
  }

  // The offsets and values that a search for stuck fibers needs beside all this.
  constexpr void ends() {
    VIGIL_OFFSET(fiber_core, park_state);
    VIGIL_OFFSET(fiber_core, role);
    VIGIL_OFFSET(fiber_core, own_waiter.word_);
    VIGIL_OFFSET(fiber_core, body);
    VIGIL_OFFSET(fiber_core, life.handle);
    VIGIL_VALUE(waiter::outcome_mask);
    VIGIL_VALUE(park_word::parked);
    VIGIL_VALUE(fiber_role::main);
    VIGIL_VALUE(fiber_role::timer);
    VIGIL_VALUE(handle_state::held);
    VIGIL_VALUE(run_phase::running);
    VIGIL_OFFSET(scheduler, settings_.is_observer);
    VIGIL_OFFSET(scheduler, state.phase_);
    VIGIL_OFFSET(scheduler, fibers);
    line("sizeof.scheduler.fibers", sizeof(fiber_registry));
    VIGIL_SIZE(worker);
    VIGIL_OFFSET(run_core, number_);
    VIGIL_OFFSET(run_core, end.root);
    // A reference has no offset of its own.
    line("channel_core.ops", offsetof(channel_core, made_at) - sizeof(void*));
    VIGIL_OFFSET(element_ops, size);
    VIGIL_OFFSET(channel_core, source);
    VIGIL_OFFSET(channel_core, ring_);
    VIGIL_SIZE(channel_core);
    VIGIL_SIZE(group_core);
    line("cancel_context.node", cancel_node::places::in_context);
    VIGIL_OFFSET(cancel_context, deadline);
    VIGIL_OFFSET(cancel_context, timer_);
    VIGIL_OFFSET(cancel_context, heard_);
    VIGIL_SIZE(cancel_context);
    VIGIL_OFFSET(cancel_node, made_at);
    line("cancel_node.state_", cancel_node::places::state);
    line("cancel_node.above_", cancel_node::places::above);
    line("cancel_node.callbacks_", cancel_node::places::callbacks);
    line("cancel_node.children_", cancel_node::places::children);
    VIGIL_SIZE(cancel_node);
  }

  char* out_;
  std::size_t size_ = 0;
};

inline constexpr std::size_t layout_size = debug_layout(nullptr).write_all();

struct debug_layout_text {
  constexpr debug_layout_text() { debug_layout(text).write_all(); }

  char text[layout_size]{};
};

#undef VIGIL_OFFSET
#undef VIGIL_SIZE
#undef VIGIL_VALUE

// Nothing in the program reads it: the linker must be told to keep it.
#if __has_cpp_attribute(gnu::retain)
#define VIGIL_RETAIN gnu::used, gnu::retain
#else
#define VIGIL_RETAIN gnu::used
#endif

extern "C" {
[[VIGIL_RETAIN]] constinit const debug_layout_text vigil_debug_layout;
}

#undef VIGIL_RETAIN

}  // namespace VIGIL_DETAIL

#pragma GCC diagnostic pop

// Tells gdb the name of its script: byte 1 stands for a file of Python.
#if defined(__ELF__)
asm(R"(
  .pushsection .debug_gdb_scripts, "MS", %progbits, 1
  .byte 1
  .asciz "vigil-gdb.py"
  .popsection
)");
#endif
