#include "lock_check/lock_check.hpp"

#include "core/base/assert.hpp"
#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/worker/park_check.hpp"
#include "core/sched/worker/worker.hpp"
#include "core/sync/lock_watch.hpp"
#include "inspect/own_frames.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/plain_frames.hpp"
#include "inspect/report.hpp"
#include "inspect/symbols.hpp"
#include "lock_check/next_calls.hpp"
#include "lock_check/seen_pairs.hpp"

#include <vigil/detail/sync_core.hpp>
#include <vigil/lock_check.hpp>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <pthread.h>

namespace VIGIL_DETAIL {
namespace {

constinit held_locks locks{};
constinit seen_pairs seen{};
constinit atomic<bool> is_on{false};
constinit atomic<bool> aborts{false};

// While this thread reads frames: the unwinder may take locks, which are nobody's fault.
constinit thread_local bool is_reading = false;

void read_frames(void* return_address, unsigned most, frame_list& out) noexcept {
  is_reading = true;
  read_frames_from(return_address, most, out);
  is_reading = false;
}

struct report {
  explicit report(const fiber& f, leaving leaves, wait_reason reason) noexcept
      : id(f.identity.id),
        file(f.identity.file),
        line(f.identity.line),
        is_pinned(f.pinned != nullptr),
        how(leaves),
        why(reason) {
    std::memcpy(name, f.identity.name, sizeof name);
  }

  std::uint64_t id;
  char name[fiber_identity::name_room];
  const char* file;
  std::uint32_t line;
  bool is_pinned;
  leaving how;
  wait_reason why;
  std::vector<held_lock> held;
  frame_list waits_at;
};

void write(dump_writer& out, const frame_list& frames, symbol_reader* names) {
  if (names != nullptr) {
    write_frames(out, frames, *names);
  } else {
    named_builds builds;
    write_plain_frames(out, frames, builds);
  }
}

std::string text_of(const report& r, symbol_reader* names) {
  std::string text;
  dump_writer out(text);
  out.text("vigil: fiber ").number(r.id);
  if (r.name[0] != '\0') out.text(" (").name(r.name).text(")");
  out.text(", started at ").text(copied_text(r.file).get());
  if (r.line != 0) out.text(":").number(r.line);
  switch (r.how) {
    case leaving::waits:
      out.text(", is about to wait (").text(to_string(r.why)).text(")");
      break;
    case leaving::yields:
      out.text(", is about to yield");
      break;
    case leaving::was_served:
      out.text(", has made a call that may wait or yield, though it did not now,");
      break;
  }
  out.text(" and holds ").text(to_string(r.held.front().kind));
  if (r.held.size() > 1) out.text(" and more locks");
  out.text(
      " that belongs to its thread. A fiber that wants it meanwhile blocks a whole worker, perhaps "
      "for ever");
  if (!r.is_pinned)
    out.text("; and this fiber may go on on another thread, which must not unlock it");
  out.text(". Unlock first, or use vigil::mutex.\n");
  for (const held_lock& h : r.held) {
    frame_list frames;
    frames.result = h.has_more_places ? frames_result::more_above : frames_result::whole;
    frames.count = h.count;
    std::copy(h.places, h.places + h.count, frames.places);
    out.text("  ").text(to_string(h.kind)).text(", locked\n");
    write(out, frames, names);
  }
  out.text(r.how == leaving::waits    ? "  the fiber waits\n"
           : r.how == leaving::yields ? "  the fiber yields\n"
                                      : "  the fiber calls\n");
  write(out, r.waits_at, names);
  out.flush();
  return text;
}

// On the fiber's stack there may be little room.
void write_report(const std::shared_ptr<const report>& r) {
  std::string text;
  const bool is_named = written_elsewhere(text, names_patience, [r] {
    symbol_reader names;
    return text_of(*r, &names);
  });
  if (!is_named) text = text_of(*r, nullptr);
  write_to_stderr(text.data(), text.size());
}

// Called by the fiber itself.
[[gnu::noinline]] void report_if_new(const fiber& self,
                                     leaving how,
                                     wait_reason why,
                                     void* return_address) {
  const auto r = std::make_shared<report>(self, how, why);
  read_frames(return_address, frame_list::most, r->waits_at);
  const std::uint64_t waits = hash_of(r->waits_at.places, r->waits_at.count);
  const fiber_key key(self);
  held_lock h;
  for (unsigned n = 0; locks.get(key, n, h); ++n) {
    if (seen.add(hash_of(h.places, h.count), waits)) r->held.push_back(h);
  }
  if (r->held.empty()) return;
  write_report(r);
  if (aborts.load()) {
    fatal("fiber %llu holds a lock of its thread, as reported above, and abort was asked for",
          static_cast<unsigned long long>(self.identity.id));
  }
}

void check(const fiber& self, leaving how, wait_reason why) noexcept {
  held_lock h;
  if (!is_on.load() || !locks.any() || !locks.get(fiber_key(self), 0, h)) return;
  const int error_number = errno;
  try {
    report_if_new(self, how, why, __builtin_return_address(0));
  } catch (...) {
    warn("a fiber waits with a lock of its thread; there is no memory to say where");
  }
  errno = error_number;
}

// In a child of fork() the records may be left half written, and no fiber goes on.
void end_in_child() noexcept {
  is_on.store(false);
}

// Called before main(), while the process has one thread.
[[gnu::constructor]] void start() noexcept {
  next();
  const char* const wish = std::getenv("VIGIL_LOCK_CHECK");
  if (wish == nullptr) return;
  const bool is_abort = std::strcmp(wish, "abort") == 0;
  if (!is_abort && std::strcmp(wish, "report") != 0) {
    fatal("VIGIL_LOCK_CHECK is '%.40s'; it must be report or abort, or not be set", wish);
  }
  lock_check::install({.abort = is_abort});
}

}  // namespace

void note_locked(const void* lock, lock_kind kind, void* return_address) noexcept {
  // ordering: a setting.
  if (!is_on.load(order::relaxed) || is_reading) return;
  const fiber* const f = current_fiber();
  if (f == nullptr) return;
  held_lock h;
  h.lock = lock;
  h.holder = fiber_key(*f);
  h.kind = kind;
  frame_list frames;
  read_frames(return_address, held_lock::most_places, frames);
  h.count = frames.count;
  h.has_more_places = frames.result == frames_result::more_above;
  std::copy(frames.places, frames.places + h.count, h.places);
  if (locks.add(h)) return;
  static constinit atomic<bool> was_said{false};
  if (!was_said.exchange(true)) {
    warn("vigil-lock-check has no room for one more lock of a fiber: some are not checked");
  }
}

released_lock::released_lock(const void* lock, lock_kind kind) noexcept {
  // ordering: as in note_locked().
  if (!is_on.load(order::relaxed) || is_reading || !locks.any()) return;
  const fiber* const f = current_fiber();
  if (f != nullptr) was_noted_ = locks.take(fiber_key(*f), lock, noted_);
  // Something else than its holder should not unlock it, but then the fiber holds it no
  // more.
  if (!was_noted_ && kind == lock_kind::mutex) was_noted_ = locks.take_of_any(lock, noted_);
}

void released_lock::put_back() noexcept {
  if (was_noted_) locks.add(noted_);
}

}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC::lock_check {

void install(const install_options& options) {
  static const int at_fork = ::pthread_atfork(nullptr, nullptr, &detail::end_in_child);
  static_cast<void>(at_fork);
  detail::aborts.store(options.abort);
  detail::is_on.store(true);
  detail::watch_locks(detail::lock_watch::checks_calls);
  // Pairs with the acquire in leave_with_care().
  detail::installed_park_check.store(&detail::check, detail::order::release);
  // Has a linker take the pthread functions from the static library.
  detail::put_in_place();
}

}  // namespace VIGIL_PUBLIC::lock_check
