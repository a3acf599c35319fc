#include "sched/run/process_dump.hpp"

#include "base/clock_source.hpp"
#include "sched/report/dump_extension.hpp"
#include "sched/report/fiber_dump.hpp"
#include "sched/run/running_runtimes.hpp"
#include "sched/scheduler.hpp"

#include <string>

namespace vigil::inline VIGIL_ABI::detail {

namespace {

void write_plain(dump_writer& out) noexcept {
  handlers_inside.fetch_add(1);
  dump_fibers(out);
  for_each_running([&out](const scheduler& s, runtime_slot&) { dump_runtime(out, s); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

// The text lies in memory until all runtimes have been looked at: a slow reader of the
// stream does not hold up the end of a run.
std::string whole_text() noexcept {
  std::string text;
  dump_writer out(text);
  const dump_extension* const more = installed_extension.load();
  if (more == nullptr || !more->write_fibers(text, nullptr)) {
    write_plain(out);
    return text;
  }
  handlers_inside.fetch_add(1);
  for_each_running([&out](const scheduler& s, runtime_slot&) { dump_runtime(out, s); });
  handlers_inside.fetch_sub(1);
  out.flush();
  return text;
}

}  // namespace

void process_dump(int descriptor, dump_place place) noexcept {
  dump_writer out(descriptor);
  if (place == dump_place::handler) {
    write_plain(out);
    return;
  }
  const std::string text = whole_text();
  out.text(text.c_str(), text.size()).flush();
}

void process_dump(std::FILE* out) noexcept {
  const std::string text = whole_text();
  std::fwrite(text.data(), 1, text.size(), out);
}

void process_dump_running(int descriptor, const scheduler& s) noexcept {
  dump_writer out(descriptor);
  std::string text;
  const dump_extension* const more = installed_extension.load();
  if (more != nullptr && more->write_fibers(text, &s)) {
    out.text(text.c_str(), text.size()).flush();
    return;
  }
  handlers_inside.fetch_add(1);
  dump_running(out, s);
  handlers_inside.fetch_sub(1);
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

void process_list_holders(dump_writer& out) noexcept {
  handlers_inside.fetch_add(1);
  for_each_running([&out](scheduler& s, runtime_slot&) { s.list_holders(out); });
  handlers_inside.fetch_sub(1);
  out.flush();
}

}  // namespace vigil::inline VIGIL_ABI::detail
