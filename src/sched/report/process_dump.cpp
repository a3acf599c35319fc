#include "sched/report/process_dump.hpp"

#include "base/clock_source.hpp"
#include "sched/report/dump_extension.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/worker/running_runtimes.hpp"
#include "sched/worker/scheduler.hpp"

#include <string>

namespace VIGIL_DETAIL {

namespace {

// Writes the fibers as the extension shows them; false if there is none, or it cannot.
bool write_by_extension(dump_writer& out, const scheduler* running_on) noexcept {
  const dump_extension* const more = installed_extension.load();
  std::string text;
  if (more == nullptr || !more->write_fibers(text, running_on)) return false;
  out.text(text.c_str(), text.size());
  return true;
}

}  // namespace

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

void process_dump_running(int descriptor, const scheduler& s) noexcept {
  dump_writer out(descriptor);
  if (!write_by_extension(out, &s)) {
    handlers_inside.fetch_add(1);
    dump_running(out, s);
    handlers_inside.fetch_sub(1);
  }
  out.flush();
}

nanos process_now(const scheduler* s) noexcept {
  const bool runs_now = s != nullptr && slot_with(s) != nullptr;
  return runs_now ? s->clock.now() : monotonic_now();
}

bool process_has_run_for(const scheduler* s, const fiber& f, run_bounds::span& out) noexcept {
  return s != nullptr && slot_with(s) != nullptr && has_run_for(*s, f, out);
}

int process_thread_that_runs(const scheduler* s, const fiber& f) noexcept {
  return s != nullptr && slot_with(s) != nullptr ? thread_that_runs(*s, f) : 0;
}

}  // namespace VIGIL_DETAIL
