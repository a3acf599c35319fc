#include "core/sched/report/fiber_view.hpp"

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"
#include "core/base/thread_annotations.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace VIGIL_DETAIL {
namespace {

// Copies the block as it is at this moment, each word read once: no pointer is torn.
VIGIL_NO_SANITIZE_THREAD void copy_block(const fiber& from, std::byte* to) noexcept {
  using word [[gnu::may_alias]] = std::uint64_t;
  static_assert(sizeof(fiber) % sizeof(word) == 0 && alignof(fiber) >= alignof(word));
  const auto* const words = reinterpret_cast<const volatile word*>(&from);
  for (std::size_t i = 0; i < sizeof(fiber) / sizeof(word); ++i) {
    const word one = words[i];
    std::memcpy(to + i * sizeof one, &one, sizeof one);
  }
}

// Reads a word of a block that its constructor may be writing at this moment. The second
// look at the magic word finds that out, which ThreadSanitizer cannot know: it must not
// see this read.
#if VIGIL_TSAN && !defined(VIGIL_MODEL)
template <class T>
VIGIL_NO_SANITIZE_THREAD T look_at(const atomic<T>& word) noexcept {
  const T value = *reinterpret_cast<const volatile T*>(&word);
  order_plain_memory();
  return value;
}
#else
template <class T>
T look_at(const atomic<T>& word) noexcept {
  return word.load(order::acquire);  // ordering: as the caller says
}
#endif

// Finds the worker that runs the fiber, and since when.
void look_at_run(const scheduler& of, const fiber& f, fiber_view& s) noexcept {
  for (const auto& w : of.workers()) {
    if (current_of(*w) != &f) continue;
    s.thread = w->kernel_thread.load();
    run_bounds::span ran;
    if (w->has_run_for(ran)) s.ran = ran;
    return;
  }
}

}  // namespace

// Read once, while it may be written.
VIGIL_NO_SANITIZE_THREAD const fiber* current_of(const worker& w) noexcept {
  return *const_cast<fiber* const volatile*>(&w.current);
}

bool take_view(const stack& where, fiber_view& s) noexcept {
  const fiber& block = *control_block(where);
  alignas(fiber) std::byte room[sizeof(fiber)];
  // Both before the block: if the fiber was off its stack then, and has not run at the
  // end (is_unmoved), all in between is of one moment. Pairs with worker::about_to_run()
  // and the stores in worker::after().
  s.runs = look_at(block.runs);
  s.state = look_at(block.state);
  copy_block(block, room);
  const auto* const f = reinterpret_cast<const fiber*>(room);
  if (f->magic.load() != fiber::live_magic) return false;
  s.show(*f);
  // The runtime may have gone while a handle keeps the fiber: its address is only
  // compared.
  const bool runs_now = f->sched != nullptr && slot_with(f->sched) != nullptr;
  s.now = runs_now ? f->sched->clock.now() : monotonic_now();
  if (runs_now) {
    s.runtime = f->sched->number();
    s.has_others = runtimes_running.load() > 1;
    if (s.state == fiber_state::running) look_at_run(*f->sched, block, s);
  }
  // The fiber may have begun or ended meanwhile, so the magic word is read once more.
  return s.file != nullptr && look_at(block.magic) == fiber::live_magic;
}

namespace {

// Read while it may be written.
VIGIL_NO_SANITIZE_THREAD std::uint64_t id_of(const fiber& f) noexcept {
  return *const_cast<const volatile std::uint64_t*>(&f.identity.id);
}

// Read while they may be written.
VIGIL_NO_SANITIZE_THREAD void look_at_place(const fiber& f, fiber_moment& out) noexcept {
  out.file = *const_cast<const char* const volatile*>(&f.identity.file);
  out.line = *const_cast<const volatile std::uint32_t*>(&f.identity.line);
}

// Read while it may be written.
VIGIL_NO_SANITIZE_THREAD bool is_measured_now(const fiber& f) noexcept {
  return *const_cast<const volatile bool*>(&f.own_stack.is_measured);
}

}  // namespace

bool is_measured(const stack& where) noexcept {
  return is_measured_now(*control_block(where));
}

bool has_id(const stack& where, std::uint64_t id) noexcept {
  return id_of(*control_block(where)) == id;
}

fiber_moment moment_of(const stack& where) noexcept {
  const fiber& f = *control_block(where);
  fiber_moment now{.id = id_of(f), .runs = look_at(f.runs)};
  look_at_place(f, now);
  return now;
}

bool is_unmoved(const stack& where, const fiber_view& s) noexcept {
  // Pairs with worker::about_to_run(): if a byte that was read was written after a switch
  // to the fiber, the count of that switch is seen here.
  order_plain_memory();
  const fiber& f = *control_block(where);
  return look_at(f.runs) == s.runs && look_at(f.magic) == fiber::live_magic && id_of(f) == s.id;
}

}  // namespace VIGIL_DETAIL
