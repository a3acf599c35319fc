#include "sched/report/fiber_snapshot.hpp"

#include "base/atomic.hpp"
#include "base/thread_annotations.hpp"
#include "machine/sanitizer.hpp"
#include "sched/report/process_dump.hpp"

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

}  // namespace

bool take_snapshot(const stack& where, fiber_snapshot& s) noexcept {
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
  s.id = f->identity.id;
  s.parent = f->identity.parent;
  s.role = f->role;
  s.reason = f->present.reason.load();
  s.object = f->present.object.load();
  s.ends_with = f->present.ends_with.load();
  s.since = f->present.since.load();
  s.until = f->present.until.load();
  s.pinned = f->pinned != nullptr;
  s.stopped = f->stop_flag.load();
  s.resumes_at = f->side.resumes_at();
  s.file = f->identity.file;
  s.line = f->identity.line;
  for (std::size_t i = 0; i < sizeof s.name; ++i)
    s.name[i] = f->identity.name[i];
  s.name[sizeof s.name - 1] = '\0';
  // The runtime may have gone while a handle keeps the fiber: its address is only
  // compared.
  s.sched = f->sched;
  s.now = process_now(f->sched);
  run_bounds::span ran;
  if (s.state == fiber_state::running && process_has_run_for(f->sched, block, ran)) s.ran = ran;
  // The fiber may have begun or ended meanwhile, so the magic word is read once more.
  return s.file != nullptr && look_at(block.magic) == fiber::live_magic;
}

namespace {

// Read while it may be written.
VIGIL_NO_SANITIZE_THREAD std::uint64_t id_of(const fiber& f) noexcept {
  return *const_cast<const volatile std::uint64_t*>(&f.identity.id);
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

bool is_unmoved(const stack& where, const fiber_snapshot& s) noexcept {
  // Pairs with worker::about_to_run(): if a byte that was read was written after a switch
  // to the fiber, the count of that switch is seen here.
  order_plain_memory();
  const fiber& f = *control_block(where);
  return look_at(f.runs) == s.runs && look_at(f.magic) == fiber::live_magic && id_of(f) == s.id;
}

}  // namespace VIGIL_DETAIL
