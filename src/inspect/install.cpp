// Puts the parts together: the extension of the core's dumps, and the functions of
// vigil/inspect.hpp.
#include "base/atomic.hpp"
#include "inspect/clock_kind.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/report.hpp"
#include "inspect/running_frames.hpp"
#include "inspect/symbols.hpp"
#include "sched/report/dump_extension.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/run/process_dump.hpp"
#include "sched/run/running_runtimes.hpp"

#include <vigil/detail/sync_core.hpp>
#include <vigil/inspect.hpp>

#include <new>

#include <unwind.h>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// The one buffer of the dumps in signal handlers.
struct handler_room {
  atomic<bool> is_taken{false};
  std::byte bytes[stack_copied_at_most];
};

constinit handler_room room{};

// Without the names of functions: finding those takes locks.
void write_plain_place(dump_writer& out, std::uintptr_t place) noexcept {
  char path[512];
  std::uintptr_t offset = 0;
  if (find_module(place, path, sizeof path, offset)) {
    out.text("    at ? (").text(path).text("+0x").hex(offset).text(")\n");
  } else {
    out.text("    at ? (0x").hex(place).text(")\n");
  }
}

void write_plain_frames(dump_writer& out, const frame_list& frames) noexcept {
  for (unsigned i = 0; i < frames.count; ++i)
    write_plain_place(out, frames.places[i]);
  if (frames.result != frames_result::whole) {
    out.text("    (").text(to_string(frames.result)).text(")\n");
  }
}

_Unwind_Reason_Code add_frame(_Unwind_Context* at, void* argument) {
  auto& out = *static_cast<frame_list*>(argument);
  int is_before = 0;
  const std::uintptr_t place = ::_Unwind_GetIPInfo(at, &is_before);
  if (place == 0) return _URC_END_OF_STACK;
  if (out.count == frame_list::most) {
    out.result = frames_result::more_above;
    return _URC_END_OF_STACK;
  }
  out.places[out.count++] = is_before != 0 ? place : place - 1;
  return _URC_NO_REASON;
}

class inspect_extension final : public dump_extension {
 public:
  constexpr inspect_extension() noexcept = default;

  void write_object(dump_writer& out,
                    const stack& where,
                    const fiber_snapshot& s) const noexcept override {
    awaited_object o;
    if (read_awaited(where, s, o)) write_awaited(out, o, addresses.load());
  }

  void write_frames(dump_writer& out,
                    const stack& where,
                    const fiber_snapshot& s) const noexcept override {
    frame_list frames;
    if (s.state == fiber_state::running) {
      frames.result = frames_result::not_asked;
    } else if (room.is_taken.exchange(true)) {
      out.text("    (another dump reads the frames)\n");
      return;
    } else {
      read_parked_frames(where, s, room.bytes, frames);
      room.is_taken.store(false);
    }
    write_plain_frames(out, frames);
  }

  void write_limits(dump_writer& out) const noexcept override {
    out.text(
        "vigil: written where no lock may be taken: the names of functions are left out, which "
        "`vigil-symbols` puts into this text, and so are the frames of running fibers\n");
  }

  bool write_fibers(dump_writer& out, const scheduler* running_on) const noexcept override;
  void write_own_frames(dump_writer& out) const noexcept override;

  mutable atomic<bool> addresses{false};
};

constinit const inspect_extension the_extension;

// Writes on a thread of its own. False if nothing was written.
bool write_all(dump_writer& out,
               const scheduler* running_on,
               const inspect::dump_options& options) noexcept {
  bool has_begun = false;
  try {
    on_own_thread([&] {
      const fiber_report r = collect_fibers(running_on, options.frames);
      has_begun = true;
      if (running_on == nullptr) out.text("vigil: fibers\n");
      write_text(out, r, options.addresses);
      if (running_on != nullptr) return;
      if (r.fibers > r.collected) {
        out.text("... and ").number(r.fibers - r.collected).text(" more\n");
      }
      out.number(r.fibers).text(" fibers\n");
    });
  } catch (...) {
    if (has_begun) out.text("vigil: no memory for the rest of the fibers\n");
  }
  return has_begun;
}

bool inspect_extension::write_fibers(dump_writer& out, const scheduler* running_on) const noexcept {
  return write_all(out, running_on, {.frames = true, .addresses = addresses.load()});
}

void inspect_extension::write_own_frames(dump_writer& out) const noexcept {
  frame_list frames;
  frames.result = frames_result::whole;
  ::_Unwind_Backtrace(&add_frame, &frames);
  try {
    on_own_thread([&] {
      symbol_reader names;
      detail::write_frames(out, frames, names);
    });
  } catch (...) {
    write_plain_frames(out, frames);
  }
}

}  // namespace
}  // namespace vigil::inline VIGIL_ABI::detail

namespace vigil::inline VIGIL_ABI::inspect {

void install(const install_options& options) {
  detail::ask_running_by(options.running_signal);
  detail::the_extension.addresses.store(options.addresses);
  detail::warn_of_slow_clock();
  detail::holders_are_noted.store(true);
  detail::installed_extension.store(&detail::the_extension);
}

void dump(std::FILE* out, const dump_options& options) {
  detail::dump_writer w(out);
  {
    const detail::handler_scope inside;
    if (!detail::write_all(w, nullptr, options))
      detail::dump_fibers(w, detail::dump_place::handler);
    detail::for_each_running(
        [&w](const detail::scheduler& s, detail::runtime_slot&) { detail::dump_runtime(w, s); });
  }
  w.flush();
  std::fflush(out);
}

void dump_json(std::FILE* out, const dump_options& options) {
  detail::on_own_thread([&] {
    const detail::handler_scope inside;
    detail::write_json(out, detail::collect_fibers(nullptr, options.frames), options.addresses);
  });
  std::fflush(out);
}

}  // namespace vigil::inline VIGIL_ABI::inspect
