#include "core/base/foreign_memory.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/fiber_json.hpp"
#include "inspect/json_text.hpp"
#include "inspect/report.hpp"
#include "inspect/symbols.hpp"

#include <cinttypes>
#include <cstdint>
#include <string>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace VIGIL_DETAIL {
namespace {

namespace json = boost::json;

json::object made_at(const shown_birth& b, bool with_addresses) {
  json::object o = site_of(b.file, b.line);
  if (b.name[0] != '\0') o["name"] = utf8(b.name);
  if (b.number != 0) o["number"] = b.number;
  if (with_addresses) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<std::uintptr_t>(b.address));
    o["address"] = text;
  }
  return o;
}

json::object fiber_of(const shown_fiber& f) {
  json::object o{{"id", f.id}};
  if (f.name[0] != '\0') o["name"] = utf8(f.name);
  return o;
}

json::object user_of(const shown_user& u, const char* did) {
  json::object o{{"did", did}};
  if (u.kind == user_kind::of_fiber) {
    json::object fiber = fiber_of(u.who);
    if (u.has_ended) fiber["has_ended"] = true;
    o["fiber"] = std::move(fiber);
    o["started_at"] = site_of(u.file, u.line);
  } else {
    o["by"] = u.kind == user_kind::of_thread ? "a thread" : "a task";
  }
  if (u.amount != 1) o["amount"] = u.amount;
  if (u.has_age) o["nanoseconds_ago"] = u.age;
  return o;
}

// The parts of a report that many fibers share.
struct json_rules {
  const fiber_report& report;
  bool with_addresses;
};

void add_users(json::object& to, const shown_object& o, const json_rules& rules) {
  const shown_users* const all = rules.report.users_of(o);
  if (all == nullptr) return;
  json::array users;
  for (std::size_t i = 0; i < all->count; ++i)
    users.push_back(user_of(all->users[i], done_by_users(all->reason)));
  to["last_users"] = std::move(users);
}

json::object channel_of(const shown_object& c, const json_rules& rules) {
  json::object o{{"operation", case_name(c.reason)},
                 {"made_at", made_at(c.made, rules.with_addresses)},
                 {"size", c.size},
                 {"capacity", c.capacity},
                 {"closed", c.is_closed}};
  add_users(o, c, rules);
  return o;
}

void add_object(json::object& to, const shown_object& o, const json_rules& rules) {
  if (o.type == shown_object::kind::one_fiber) to["fiber"] = fiber_of(o.who);
  if (o.type == shown_object::kind::one_task) to["task"] = json::object{{"id", o.who.id}};
  if (o.type == shown_object::kind::descriptor)
    to["descriptor"] = json::object{{"number", o.number}};
  if (o.type != shown_object::kind::queue) return;
  to["made_at"] = made_at(o.made, rules.with_addresses);
  add_users(to, o, rules);
  if (o.held_by == shown_object::holder::a_fiber) to["held_by"] = fiber_of(o.who);
  if (o.held_by == shown_object::holder::gone) {
    json::object gone = fiber_of(o.who);
    gone["has_ended"] = true;
    to["held_by"] = std::move(gone);
  }
  if (o.held_by == shown_object::holder::a_thread) to["held_by"] = "a thread";
}

// The channels of a wait, and the other cases of a select.
void add_cases(json::object& to, const awaited_object& o, const json_rules& rules) {
  json::array channels;
  json::array others;
  for (std::size_t i = 0; i < o.case_count; ++i) {
    const shown_object& c = o.cases[i];
    if (c.type == shown_object::kind::channel) {
      channels.push_back(channel_of(c, rules));
    } else {
      json::object other{{"reason", to_string(c.reason)}};
      add_object(other, c, rules);
      others.push_back(std::move(other));
    }
  }
  to["channels"] = std::move(channels);
  if (!others.empty()) to["other_cases"] = std::move(others);
  if (o.other_cases != 0) to["more_cases"] = o.other_cases;
}

json::object descriptor_of(const shown_descriptor& d) {
  json::object o{{"number", d.number}};
  if (d.type == shown_descriptor::kind::closed) o["closed"] = true;
  if (d.type != shown_descriptor::kind::socket) return o;
  o["protocol"] = d.protocol;
  if (d.local[0] != '\0') o["local"] = utf8(d.local);
  if (d.peer[0] != '\0') o["peer"] = utf8(d.peer);
  if (d.listens) o["listening"] = true;
  return o;
}

void add_awaited(json::object& to, const awaited_object& o, const json_rules& rules) {
  switch (o.type) {
    case awaited_object::kind::none:
      break;
    case awaited_object::kind::object:
      if (o.cases[0].type == shown_object::kind::channel) {
        add_cases(to, o, rules);
      } else {
        add_object(to, o.cases[0], rules);
      }
      break;
    case awaited_object::kind::select:
      add_cases(to, o, rules);
      break;
    case awaited_object::kind::descriptor:
      to["descriptor"] = descriptor_of(o.descriptor);
      break;
    case awaited_object::kind::call:
      if (o.thread > 0) to["thread"] = o.thread;
      break;
  }
  if (o.ends_with_context) to["context"] = made_at(o.context, rules.with_addresses);
}

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
  const json_rules rules{r, with_addresses};
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
                         {"task_count", r.all_tasks},
                         {"tasks", std::move(tasks)},
                         {"runtimes", runtimes()}};
  return json::serialize(all) + "\n";
}

}  // namespace VIGIL_DETAIL
