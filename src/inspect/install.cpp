// Puts the parts together: the extension of the core's dumps, and the functions of
// vigil/inspect.hpp.
#include "core/base/atomic.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/worker/worker.hpp"
#include "core/sync/lock_watch.hpp"
#include "inspect/kept_thread.hpp"
#include "inspect/kernel_clock.hpp"
#include "inspect/long_runs.hpp"
#include "inspect/measured_stacks.hpp"
#include "inspect/object_users.hpp"
#include "inspect/own_frames.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/plain_frames.hpp"
#include "inspect/report.hpp"
#include "inspect/running_frames.hpp"
#include "inspect/stuck_signal.hpp"
#include "inspect/symbols.hpp"

#include <vigil/detail/sync_core.hpp>
#include <vigil/inspect.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>

#include <stdio_ext.h>

namespace VIGIL_DETAIL {
namespace {

// The one room of the dumps in signal handlers.
struct handler_room {
  atomic<bool> is_taken{false};
  frames_room frames;
  named_builds builds;
  // The objects whose users were written; of more there are none.
  std::size_t written = 0;
  const void* users_written[32] = {};

  void forget() noexcept {
    builds.forget();
    frames.known.forget();
    written = 0;
  }

  bool is_new(const void* users) noexcept {
    const void** const end = users_written + written;
    if (written == std::size(users_written) || std::find(users_written, end, users) != end) {
      return false;
    }
    users_written[written++] = users;
    return true;
  }
};

constinit handler_room room_of_handlers{};

// Whether the caller, in a signal handler, is on an alternate stack of the program's that
// has too little room for reading frames and objects.
bool is_cramped() noexcept {
  constexpr std::size_t needed = std::size_t{24} << 10;
  stack_t present = {};
  if (::sigaltstack(nullptr, &present) != 0 || (present.ss_flags & SS_ONSTACK) == 0) return false;
  const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
  return here - reinterpret_cast<std::uintptr_t>(present.ss_sp) < needed;
}

class inspect_extension final : public dump_extension {
 public:
  constexpr inspect_extension() noexcept = default;

  void write_object(dump_writer& out,
                    const stack& where,
                    const fiber_view& s) const noexcept override {
    if (!is_cramped()) write_awaited_of(out, where, s);
  }

  void write_frames(dump_writer& out,
                    const stack& where,
                    const fiber_view& s) const noexcept override {
    if (is_cramped()) {
      out.text("    (the stack of the signal's handler is too small to read frames)\n");
    } else if (rules_need_a_lock) {
      out.text("    (a signal handler reads frames with glibc 2.35 or newer)\n");
    } else if (room_of_handlers.is_taken.exchange(true)) {
      out.text("    (another dump reads the frames)\n");
    } else {
      write_users_of(out, where, s);
      write_frames_of(out, where, s);
      room_of_handlers.is_taken.store(false);
    }
  }

  void write_limits(dump_writer& out) const noexcept override {
    out.text(
        "vigil: written where no lock may be taken: the names of functions are left out, which "
        "`vigil-symbols` puts into this text, and so are the frames of running fibers, and of all "
        "but three that were started in one place and wait alike\n");
    // A dump that another one reads beside this one names builds twice, or not again.
    if (!room_of_handlers.is_taken.exchange(true)) {
      room_of_handlers.forget();
      room_of_handlers.is_taken.store(false);
    }
  }

  bool write_fibers(dump_writer& out, const scheduler* running_on) const noexcept override;
  void write_own_frames(dump_writer& out) const noexcept override;
  bool report(const long_run& r) const noexcept override;

  mutable atomic<bool> addresses{false};

 private:
  // Functions of their own: what they need lies on the stack only after is_cramped().
  [[gnu::noinline]] void write_awaited_of(dump_writer& out,
                                          const stack& where,
                                          const fiber_view& s) const noexcept {
    awaited_object o;
    if (!read_awaited(where, s, o)) return;
    find_holders(o);
    write_awaited(out, o, addresses.load());
  }

  // Caller, of both: has taken the room.
  [[gnu::noinline]] static void write_users_of(dump_writer& out,
                                               const stack& where,
                                               const fiber_view& s) noexcept {
    awaited_object o;
    if (!read_awaited(where, s, o)) return;
    for (std::size_t i = 0; i < o.case_count; ++i) {
      shown_users users;
      if (o.cases[i].users == nullptr || !room_of_handlers.is_new(o.cases[i].users)) continue;
      if (!read_object_users(o.cases[i], users)) continue;
      find_living_users(users);
      write_object_users(out, users);
    }
  }

  [[gnu::noinline]] static void write_frames_of(dump_writer& out,
                                                const stack& where,
                                                const fiber_view& s) noexcept {
    frame_list frames;
    if (s.state == fiber_state::running) {
      frames.result = frames_result::not_asked;
    } else {
      read_parked_frames(where, s, room_of_handlers.frames, frames);
    }
    write_plain_frames(out, frames, room_of_handlers.builds);
  }
};

constinit const inspect_extension the_extension;

// How long a dump may take.
constexpr nanos dump_patience = 20'000'000'000;

constexpr const char* malloc_is_stuck =
    "malloc has not answered within 3 s: a thread that is stuck may hold its lock";

std::string text_of(const scheduler* running_on, const inspect::dump_options& options) {
  fiber_report r = collect_fibers(running_on, options.frames, &the_extension);
  std::string text;
  dump_writer out(text);
  if (running_on == nullptr) {
    out.text("vigil: fibers\n").text(r.table_text.c_str());
  }
  symbol_reader names;
  write_text(out, r, names, options.addresses);
  if (running_on == nullptr) {
    if (r.fibers > r.collected) {
      out.text("... and ").number(r.fibers - r.collected).text(" more\n");
    }
    out.number(r.fibers).text(" fibers\n");
    write_tasks(out, r, options.frames ? lines_at_most : r.tasks.size(), options.addresses);
  }
  out.flush();
  return text;
}

text_of_thread ask_text(const scheduler* running_on,
                        const inspect::dump_options& options) noexcept {
  return text_of_thread(dump_patience,
                        [running_on, options] { return text_of(running_on, options); });
}

// False: nothing was written but why.
bool write_asked(dump_writer& out, const text_of_thread& text) noexcept {
  if (text.is_malloc_stuck()) out.text("vigil: ").text(malloc_is_stuck).text("\n");
  if (text.get() == nullptr) return false;
  out.text(text.get()->c_str());
  return true;
}

bool inspect_extension::write_fibers(dump_writer& out, const scheduler* running_on) const noexcept {
  return write_asked(out, ask_text(running_on, {.frames = true, .addresses = addresses.load()}));
}

// Writes them with the names of functions, or without if those take too long.
void write_named(dump_writer& out, const frame_list& frames) noexcept {
  const text_of_thread text(names_patience, [frames] {
    symbol_reader names;
    std::string named;
    dump_writer to(named);
    detail::write_frames(to, frames, names);
    to.flush();
    return named;
  });
  if (write_asked(out, text)) return;
  named_builds builds;
  write_plain_frames(out, frames, builds);
}

void inspect_extension::write_own_frames(dump_writer& out) const noexcept {
  frame_list frames;
  read_own_frames(frames);
  write_named(out, frames);
}

// The one room of the overseers: the frames are read without malloc, which the thread
// that they are of may be in.
std::mutex room_of_overseers_lock;
constinit frames_room room_of_overseers{};

// Writes it in one piece: others report at the same time.
void write_run(const std::string& line, const frame_list& frames) noexcept {
  std::string text;
  dump_writer to(text);
  write_named(to.text("vigil: ").text(line.c_str()).text("\n"), frames);
  to.flush();
  write_to_stderr(text.data(), text.size());
}

bool inspect_extension::report(const long_run& r) const noexcept {
  frame_list frames;
  bool is_of_run = false;
  {
    const std::lock_guard guard(room_of_overseers_lock);
    is_of_run = read_long_run(r, room_of_overseers, frames);
    room_of_overseers.known.forget();
    // Copied pointers would be taken for living ones (stuck_fibers.hpp).
    std::memset(room_of_overseers.copy, 0, sizeof room_of_overseers.copy);
  }
  if (frames.result == frames_result::moved_on || !is_of_run) return false;
  if (r.on.counters.log.is_on()) keep(r, frames);
  try {
    start_own_thread([line = std::string(r.text), frames] { write_run(line, frames); });
  } catch (const std::exception&) {
    dump_writer out(2);
    named_builds builds;
    write_plain_frames(out.text("vigil: ").text(r.text).text("\n"), frames, builds);
    out.flush();
  }
  return true;
}

}  // namespace
}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC::inspect {

void install(const install_options& options) {
  if (options.stuck_signal != 0 && options.stuck_signal == options.running_signal) {
    throw std::invalid_argument(
        "vigil::inspect::install: stuck_signal and running_signal are one signal; name two");
  }
  detail::check_stuck_signal(options.stuck_signal);
  detail::ask_running_by(options.running_signal);
  detail::report_stuck_by(options.stuck_signal);
  detail::keep_thread();
  detail::note_program_path();
  detail::the_extension.addresses.store(options.addresses);
  detail::warn_of_slow_clock();
  detail::watch_locks(detail::lock_watch::notes_holders);
  detail::measure_stacks(options.stack_use);
  detail::installed_extension.store(&detail::the_extension);
}

void dump(std::FILE* out, const dump_options& options) {
  const detail::text_of_thread text = detail::ask_text(nullptr, options);
  // A stream that has no buffer yet would allocate it.
  if (text.is_malloc_stuck() && ::__fbufsize(out) == 0) std::setvbuf(out, nullptr, _IONBF, 0);
  detail::dump_writer w(out);
  const bool is_written = detail::write_asked(w, text);
  detail::process_dump_rest(w, !is_written);
  std::fflush(out);
}

void dump_json(std::FILE* out, const dump_options& options) {
  const detail::text_of_thread text(detail::dump_patience, [options] {
    return detail::to_json(detail::collect_fibers(nullptr, options.frames, nullptr),
                           options.addresses);
  });
  if (text.is_malloc_stuck()) {
    // An exception would need malloc.
    if (::__fbufsize(out) == 0) std::setvbuf(out, nullptr, _IONBF, 0);
    std::fprintf(out, "{\"error\":\"%s\"}\n", detail::malloc_is_stuck);
    std::fflush(out);
    return;
  }
  text.throw_error();
  if (text.get() == nullptr) {
    throw std::system_error(ETIMEDOUT,
                            std::generic_category(),
                            "vigil::inspect::dump_json: the names of functions take too long: a "
                            "fiber may hold a lock of malloc or the dynamic loader");
  }
  std::fwrite(text.get()->data(), 1, text.get()->size(), out);
  std::fflush(out);
}

}  // namespace VIGIL_PUBLIC::inspect
