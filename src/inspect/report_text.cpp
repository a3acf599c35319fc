#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump.hpp"
#include "inspect/report.hpp"
#include "inspect/symbols.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {
namespace {

// Writes frames, and folds those that are not the program's.
class frame_writer {
 public:
  explicit frame_writer(dump_writer& out) noexcept : out_(out) {}

  void write(const code_place& p) noexcept {
    for (std::size_t i = 0; i < p.functions.size(); ++i) {
      switch (owner_of(p.functions[i])) {
        case code_owner::vigil:
          ++of_vigil_;
          break;
        case code_owner::call_of_std:
          ++of_std_;
          break;
        case code_owner::program:
          end();
          write(p, i);
          break;
      }
    }
  }

  void end() noexcept {
    const unsigned folded = of_vigil_ + of_std_;
    if (folded == 0) return;
    out_.text("    ... ").number(folded).text(folded == 1 ? " function of " : " functions of ");
    if (of_vigil_ != 0) out_.text(of_std_ != 0 ? "vigil and " : "vigil");
    out_.text(of_std_ != 0 ? "std\n" : "\n");
    of_vigil_ = of_std_ = 0;
  }

 private:
  void write(const code_place& p, std::size_t i) noexcept {
    const code_function& f = p.functions[i];
    out_.text("    at ").text(f.name.empty() ? "?" : f.name.c_str());
    if (!f.file.empty()) out_.text(" ").file(f.file.c_str()).text(":").number(f.line);
    if (i + 1 < p.functions.size()) {
      out_.text(" [inlined]\n");
    } else if (!p.module.empty()) {
      out_.text(" (").file(p.module.c_str()).text("+0x").number(p.offset, 16).text(")\n");
    } else {
      out_.text(" (0x").number(p.offset, 16).text(")\n");
    }
  }

  dump_writer& out_;
  unsigned of_vigil_ = 0;
  unsigned of_std_ = 0;
};

void write_line(dump_writer& out,
                const fiber_view& s,
                const awaited_object& awaited,
                bool with_addresses) {
  const auto object = [&] { write_awaited(out, awaited, with_addresses); };
  dump_fiber(out, s, object);
}

// Writes the users of the objects that are named in a line, once in a report.
void write_users(dump_writer& out, fiber_report& r, const awaited_object& awaited) {
  for (std::size_t i = 0; i < awaited.case_count; ++i) {
    const auto found = r.users.find({awaited.cases[i].users, awaited.cases[i].reason});
    if (found == r.users.end()) continue;
    write_object_users(out, found->second);
    r.users.erase(found);
  }
}

void write_open_way(dump_writer& out, const waiting_fiber& f) {
  if (f.way == open_way::none) return;
  out.text("    (may go on: ");
  switch (f.way) {
    case open_way::none:
    case open_way::not_known:
      out.text("it is not known what can end this wait)\n");
      return;
    case open_way::other_fiber:
      out.text("the fiber that it waits for may end)\n");
      return;
    case open_way::held_thing:
      out.text("what it waits for can be reached");
      break;
    case open_way::held_stack:
      out.text("something on its stack can be reached");
      break;
    case open_way::held_handle:
      out.text("its handle can be reached, which can stop it");
      break;
  }
  if (f.seen_by.id != 0) {
    out.text(" from the stack of fiber ").number(f.seen_by.id);
    write_runtime(out, f.seen_by.runtime);
    out.text(")\n");
  } else {
    out.text(" from memory that is no fiber's stack)\n");
  }
}

void write_group(dump_writer& out,
                 fiber_report& r,
                 const fiber_group& g,
                 symbol_reader& names,
                 bool with_addresses) {
  // Those that have waited for longest first.
  std::vector<const reported_fiber*> order;
  for (const reported_fiber& f : g.fibers)
    order.push_back(&f);
  std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return a->shown.since < b->shown.since;
  });
  const bool has_frames = g.frames.result != frames_result::not_wanted;
  const std::size_t lines = has_frames ? std::min(order.size(), lines_at_most) : order.size();
  for (std::size_t i = 0; i < lines; ++i) {
    const reported_fiber& f = *order[i];
    write_line(out, f.shown, f.awaited, with_addresses);
    if (f.found != nullptr) write_open_way(out, *f.found);
    write_users(out, r, f.awaited);
  }
  if (order.size() > lines) {
    out.text("... and ").number(order.size() - lines).text(" more with these frames\n");
  }
  if (g.called.result != frames_result::not_wanted) {
    write_frames(out, g.called, names);
    out.text("    (above: the function on a side pool; below: the fiber that waits for it)\n");
  }
  if (has_frames) write_frames(out, g.frames, names);
}

// Tasks with equal birth, state and reason, those that have waited for longest first.
using task_group = std::vector<const reported_task*>;

// The largest group first.
std::vector<task_group> grouped(const std::vector<reported_task>& tasks) {
  using key = std::tuple<std::uint64_t, std::string, std::uint32_t, fiber_state, wait_reason>;
  std::map<key, task_group> by_key;
  for (const reported_task& t : tasks) {
    const fiber_view& s = t.shown;
    by_key[{t.runtime, copied_text(s.file).get(), s.line, s.state, s.reason}].push_back(&t);
  }
  std::vector<task_group> all;
  for (auto& [_, g] : by_key) {
    std::stable_sort(g.begin(), g.end(), [](const auto* a, const auto* b) {
      return a->shown.since < b->shown.since;
    });
    all.push_back(std::move(g));
  }
  std::stable_sort(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.size() > b.size(); });
  return all;
}

}  // namespace

void write_tasks(dump_writer& out, fiber_report& r, std::size_t at_most, bool with_addresses) {
  for (const task_group& g : grouped(r.tasks)) {
    const std::size_t lines = std::min(g.size(), at_most);
    for (std::size_t i = 0; i < lines; ++i) {
      write_line(out, g[i]->shown, g[i]->awaited, with_addresses);
      write_users(out, r, g[i]->awaited);
    }
    if (g.size() > lines) {
      out.text("... and ").number(g.size() - lines);
      out.text(" more that were started there and wait so\n");
    }
  }
  if (r.all_tasks > r.tasks.size()) {
    out.text("... and ").number(r.all_tasks - r.tasks.size()).text(" more tasks\n");
  }
  if (r.all_tasks != 0) out.number(r.all_tasks).text(" tasks\n");
}

void write_frames(dump_writer& out, const frame_list& frames, symbol_reader& names) {
  frame_writer to(out);
  for (unsigned i = 0; i < frames.count; ++i)
    to.write(names.at(frames.places[i]));
  to.end();
  if (frames.result != frames_result::whole) {
    out.text("    (").text(to_string(frames.result)).text(")\n");
  }
}

void write_text(dump_writer& out, fiber_report& r, symbol_reader& names, bool with_addresses) {
  join_groups(r, names);
  for (const auto& g : r.groups)
    write_group(out, r, *g, names, with_addresses);
  if (r.may_have_ended_calls) {
    out.text(
        "(running threads were asked by a signal, as /proc does not show their calls: "
        "poll and the like may have returned EINTR)\n");
  }
}

}  // namespace VIGIL_DETAIL
