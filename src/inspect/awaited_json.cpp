#include "inspect/awaited_json.hpp"

#include "inspect/fiber_report.hpp"
#include "inspect/json_text.hpp"

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <utility>

#include <boost/json/array.hpp>
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
    std::snprintf(
        text, sizeof text, "0x%" PRIxPTR, reinterpret_cast<std::uintptr_t>(b.address.get()));
    o["address"] = text;
  }
  return o;
}

json::object fiber_of(const shown_fiber& f) {
  json::object o{{"id", f.id}};
  if (f.name[0] != '\0') o["name"] = utf8(f.name);
  return o;
}

json::object user_of(const shown_user& u) {
  json::object o{{"did", u.did}};
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

void add_users(json::object& to, const shown_object& o, const json_rules& rules) {
  const shown_users* const all = rules.report != nullptr ? rules.report->users_of(o) : nullptr;
  if (all == nullptr) return;
  if (all->never != nullptr) to["never"] = all->never;
  if (all->count == 0) return;
  json::array users;
  for (std::size_t i = 0; i < all->count; ++i)
    users.push_back(user_of(all->users[i]));
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
  if (o.held_by == shown_object::holder::a_fiber || o.held_by == shown_object::holder::a_number)
    to["held_by"] = fiber_of(o.who);
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

}  // namespace

void add_awaited(boost::json::object& to, const awaited_object& o, const json_rules& rules) {
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

}  // namespace VIGIL_DETAIL
