#include "core/base/foreign_memory.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/awaited_json.hpp"
#include "inspect/fiber_json.hpp"
#include "inspect/json_text.hpp"
#include "inspect/report.hpp"
#include "inspect/symbols.hpp"

#include <cstdint>
#include <string>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace VIGIL_DETAIL {
namespace {

namespace json = boost::json;

json::object json_of(const fiber_view& v, const awaited_object& awaited, const json_rules& rules) {
  json::object o = json_of(v);
  if (v.is_parked()) add_awaited(o["waits_for"].as_object(), awaited, rules);
  return o;
}

json::object task_of(const reported_task& t, const json_rules& rules) {
  json::object o = json_of(t.shown, t.awaited, rules);
  o["runtime"] = t.runtime;
  return o;
}

json::object fiber_of(const reported_fiber& f, std::size_t stack, const json_rules& rules) {
  json::object o = json_of(f.shown, f.awaited, rules);
  o["stack"] = stack;
  return o;
}

json::array functions_of(const code_place& p) {
  json::array all;
  for (const code_function& f : p.functions) {
    json::object o{{"name", utf8(f.name)}};
    if (!f.file.empty()) o["file"] = utf8(f.file);
    if (!f.file.empty()) o["line"] = f.line;
    all.push_back(std::move(o));
  }
  return all;
}

json::object frames_of(const frame_list& l, symbol_reader& names) {
  json::array frames;
  for (unsigned i = 0; i < l.count; ++i) {
    const code_place& p = names.at(l.places[i]);
    frames.push_back(json::object{
        {"module", utf8(p.module)}, {"offset", p.offset}, {"functions", functions_of(p)}});
  }
  return {{"result", to_string(l.result)}, {"frames", std::move(frames)}};
}

json::object stack_of(const fiber_group& g, symbol_reader& names) {
  json::object o = frames_of(g.frames, names);
  o["fibers"] = g.fibers.size();
  if (g.called.result != frames_result::not_wanted) o["called"] = frames_of(g.called, names);
  return o;
}

json::array runtimes() {
  json::array all;
  const handler_scope inside;
  for_each_running([&all](const scheduler& s, runtime_slot&) {
    if (s.settings().is_observer) return;
    runtime_stats t;
    s.add_stats(t);
    json::object o{{"number", s.number()},
                   {"workers", s.workers().size()},
                   {"workers_asleep", s.idle_count()},
                   {"timers_pending", t.timers_pending}};
    const nanos next = s.board.next_deadline.load();
    if (next != never) o["next_deadline_in_nanoseconds"] = next - s.clock.now();
    all.push_back(std::move(o));
  });
  return all;
}

}  // namespace

std::string to_json(fiber_report r, bool with_addresses) {
  const json_rules rules{.with_addresses = with_addresses, .report = &r};
  symbol_reader names;
  join_groups(r, names);
  json::array fibers;
  json::array stacks;
  json::array tasks;
  for (const auto& g : r.groups) {
    for (const reported_fiber& f : g->fibers)
      fibers.push_back(fiber_of(f, stacks.size(), rules));
    stacks.push_back(stack_of(*g, names));
  }
  for (const reported_task& t : r.tasks)
    tasks.push_back(task_of(t, rules));
  const json::object all{{"fiber_count", r.fibers},
                         {"groups", groups_of(*r.table, r.fibers)},
                         {"fibers", std::move(fibers)},
                         {"stacks", std::move(stacks)},
                         {"may_have_ended_calls", r.may_have_ended_calls},
                         {"task_count", r.all_tasks},
                         {"tasks", std::move(tasks)},
                         {"runtimes", runtimes()}};
  return json::serialize(all) + "\n";
}

}  // namespace VIGIL_DETAIL
