#include "sched/report/fiber_dump.hpp"

#include "base/thread_annotations.hpp"
#include "sched/fiber/written_name.hpp"
#include "sched/run/process_dump.hpp"
#include "sched/scheduler.hpp"

#include <cstddef>
#include <cstdio>

#include <unistd.h>

namespace vigil::inline VIGIL_ABI::detail {

place_in_words::place_in_words(const char* file, unsigned line) noexcept {
  if (line == 0) {
    std::snprintf(text, sizeof text, "%s", file);
  } else {
    std::snprintf(text, sizeof text, "%s:%u", file, line);
  }
}

place_in_words::place_in_words(const fiber& f) noexcept
    : place_in_words(f.identity.file, f.identity.line) {}

dump_writer& dump_writer::text(const char* s) noexcept {
  while (*s != '\0')
    put(*s++);
  return *this;
}

dump_writer& dump_writer::text(const char* s, std::size_t limit) noexcept {
  for (std::size_t i = 0; i < limit && s[i] != '\0'; ++i)
    put(s[i]);
  return *this;
}

dump_writer& dump_writer::number(std::uint64_t n) noexcept {
  char digits[20];
  std::size_t i = sizeof digits;
  do {
    digits[--i] = static_cast<char>('0' + n % 10);
    n /= 10;
  } while (n != 0);
  return text(digits + i, sizeof digits - i);
}

dump_writer& dump_writer::seconds(std::int64_t nanoseconds) noexcept {
  auto n = static_cast<std::uint64_t>(nanoseconds);
  if (nanoseconds < 0) {
    put('-');
    n = 0 - n;
  }
  const std::uint64_t millis = n / 1'000'000;
  number(millis / 1000);
  put('.');
  put(static_cast<char>('0' + millis / 100 % 10));
  put(static_cast<char>('0' + millis / 10 % 10));
  put(static_cast<char>('0' + millis % 10));
  return text(" s");
}

void dump_writer::put(char c) noexcept {
  if (used_ == sizeof buffer_) flush();
  buffer_[used_++] = c;
}

void dump_writer::flush() noexcept {
  const char* p = buffer_;
  if (stream_ != nullptr) {
    std::fwrite(p, 1, used_, stream_);
    used_ = 0;
    return;
  }
  while (used_ > 0) {
    const ssize_t n = ::write(descriptor_, p, used_);
    if (n <= 0) break;
    p += n;
    used_ -= static_cast<std::size_t>(n);
  }
  used_ = 0;
}

dump_writer& dump_writer::name(const char* s) noexcept {
  return text(written_name(s).text());
}

namespace {

struct census {
  dump_writer* out;
  const scheduler* running_on = nullptr;  // the running fibers of this one alone
  std::size_t fibers = 0;
  std::size_t shown = 0;
};

// More fibers than anybody reads; the rest are only counted.
constexpr std::size_t shown_at_most = 10'000;

// The parts of a fiber that the dump prints, from a copy of its control block.
struct snapshot {
  std::uint64_t id;
  fiber_state state;
  fiber_role role;
  wait_reason reason;
  nanos since;
  nanos until;
  nanos now;
  const scheduler* sched;  // only compared
  bool pinned;
  bool stopped;
  const char* file;
  std::uint32_t line;
  char name[fiber_identity::name_room];
};

// Copies the block's bytes as they are at this moment, each read once.
VIGIL_NO_SANITIZE_THREAD void copy_block(const fiber& from, std::byte* to) noexcept {
  const auto* const bytes = reinterpret_cast<const volatile std::byte*>(&from);
  for (std::size_t i = 0; i < sizeof(fiber); ++i)
    to[i] = bytes[i];
}

bool look(const stack& where, snapshot& s) noexcept {
  alignas(fiber) std::byte room[sizeof(fiber)];
  copy_block(*control_block(where), room);
  const auto* const f = reinterpret_cast<const fiber*>(room);
  if (f->magic.load() != fiber::live_magic) return false;
  s.id = f->identity.id;
  s.state = f->state.load();
  s.role = f->role;
  s.reason = f->shown.reason.load();
  s.since = f->shown.since.load();
  s.until = f->shown.until.load();
  s.pinned = f->pinned != nullptr;
  s.stopped = f->stop_flag.load();
  s.file = f->identity.file;
  s.line = f->identity.line;
  for (std::size_t i = 0; i < sizeof s.name; ++i)
    s.name[i] = f->identity.name[i];
  s.name[sizeof s.name - 1] = '\0';
  // The runtime may have gone while a handle keeps the fiber: its address is only
  // compared.
  s.sched = f->sched;
  s.now = process_now(f->sched);
  // The fiber may have begun or ended meanwhile, so the magic word is read once more.
  copy_block(*control_block(where), room);
  return s.file != nullptr && f->magic.load() == fiber::live_magic;
}

// Uses the real clock, even on virtual time.
void describe_run(dump_writer& out, const stack& where, const snapshot& s) noexcept {
  run_bounds::span ran;
  if (!process_has_run_for(s.sched, *control_block(where), ran)) return;
  if (ran.at_least < 1'000'000) {
    out.text(", for at most ").seconds(ran.at_most);
  } else {
    out.text(", for ").seconds(ran.at_least).text(" to ").seconds(ran.at_most);
  }
}

void describe_state(dump_writer& out, const stack& where, const snapshot& s) noexcept {
  out.text(to_string(s.state));
  if (s.state == fiber_state::running) describe_run(out, where, s);
  if (s.state != fiber_state::parked) return;
  out.text(": ").text(to_string(s.reason));
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
  snapshot s{};
  if (!look(where, s)) return;
  if (c.running_on != nullptr && (s.sched != c.running_on || s.state != fiber_state::running)) {
    return;
  }
  ++c.fibers;
  if (c.shown == shown_at_most) return;
  ++c.shown;
  dump_writer& out = *c.out;
  out.text("fiber ").number(s.id);
  if (s.name[0] != '\0') out.text(" (").name(s.name).text(")");
  out.text(" [");
  describe_state(out, where, s);
  if (s.pinned) out.text(", pinned");
  if (s.stopped) out.text(", stop requested");
  out.text("] started at ").text(s.file);
  if (s.line != 0) out.text(":").number(s.line);
  out.text("\n");
}

// The fiber that the worker runs at this moment, read once.
VIGIL_NO_SANITIZE_THREAD const fiber* current_of(const worker& w) noexcept {
  return *const_cast<fiber* const volatile*>(&w.current);
}

}  // namespace

bool has_run_for(const scheduler& s, const fiber& f, run_bounds::span& out) noexcept {
  for (const auto& w : s.workers()) {
    if (current_of(*w) == &f) return w->ran.look(w->counters.switches.get(), monotonic_now(), out);
  }
  return false;
}

void dump_fibers(dump_writer& out) noexcept {
  out.text("vigil: fibers\n");
  census c{&out};
  const slab_hold hold;
  for_each_stack_in_use(&visit_stack, &c);
  if (c.fibers > c.shown) out.text("... and ").number(c.fibers - c.shown).text(" more\n");
  out.number(c.fibers).text(" fibers\n");
}

void dump_running(dump_writer& out, const scheduler& s) noexcept {
  census c{&out, &s};
  const slab_hold hold;
  for_each_stack_in_use(&visit_stack, &c);
}

void dump_runtime(dump_writer& out, const scheduler& s) noexcept {
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
}

void describe_fiber(const stack& where, char* text, std::size_t size) noexcept {
  snapshot s{};
  if (size == 0) return;
  text[0] = '\0';
  if (!look(where, s)) return;
  std::size_t n = 0;
  const auto put = [&](const char* part) {
    while (*part != '\0' && n + 1 < size)
      text[n++] = *part++;
    text[n] = '\0';
  };
  char digits[21] = {};
  std::size_t i = sizeof digits - 1;
  do {
    digits[--i] = static_cast<char>('0' + s.id % 10);
    s.id /= 10;
  } while (s.id != 0);
  put("fiber ");
  put(digits + i);
  if (s.name[0] != '\0') {
    put(" (");
    put(written_name(s.name).text());
    put(")");
  }
}

}  // namespace vigil::inline VIGIL_ABI::detail
