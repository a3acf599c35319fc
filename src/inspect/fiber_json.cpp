#include "inspect/fiber_json.hpp"

#include "core/base/foreign_memory.hpp"
#include "inspect/json_text.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

namespace VIGIL_DETAIL {
namespace {

namespace json = boost::json;

json::value value_of(const fiber_field& f, const fiber_view& v) {
  switch (f.kind) {
    case field_kind::id:
    case field_kind::runtime:
      return f.raw(v);
    case field_kind::name:
      return utf8(v.name);
    case field_kind::state:
      return v.state_words();
    case field_kind::run:
      return json::object{{"at_least_nanoseconds", v.ran->at_least},
                          {"at_most_nanoseconds", v.ran->at_most}};
    case field_kind::reason:
      return to_string(v.reason);
    case field_kind::age:
    case field_kind::due:
      return nanos_of(f, v);
    case field_kind::flag:
      return true;
    case field_kind::place:
      return site_of(copied_text(v.file).get(), v.line);
  }
  return {};
}

}  // namespace

json::object json_of(const fiber_view& v) {
  json::object o;
  json::object wait;
  for (const fiber_field& f : fiber_fields) {
    const bool is_given = f.kind == field_kind::name || f.kind == field_kind::runtime;
    if (!is_given && !is_shown(f, v)) continue;
    (f.is_of_wait() ? wait : o)[f.key] = value_of(f, v);
  }
  if (v.is_parked()) o["waits_for"] = std::move(wait);
  return o;
}

namespace {

json::object group(const fiber_row& r) {
  const fiber_view& v = r.oldest;
  json::object o{{"runtime", v.runtime},
                 {"started_at", site_of(copied_text(v.file).get(), v.line)},
                 {"state", to_string(v.state)},
                 {"count", r.count},
                 {"oldest", json_of(v)}};
  if (v.is_parked()) o["waits_for"] = to_string(v.reason);
  if (r.with_age != 0) {
    o["newest_nanoseconds"] = r.newest;
    o["mean_nanoseconds"] = static_cast<std::int64_t>(r.sum / static_cast<double>(r.with_age));
    o["oldest_nanoseconds"] = r.longest;
  }
  return o;
}

}  // namespace

json::object groups_of(fiber_table& table, std::uint64_t count) {
  const fiber_row* const* const rows = table.by_count();
  json::array groups;
  std::uint64_t others = count;
  for (std::size_t i = 0; i < table.rows(); ++i) {
    groups.push_back(group(*rows[i]));
    others -= std::min(others, rows[i]->count);  // some may have been started since
  }
  return {{"count", count}, {"groups", std::move(groups)}, {"in_no_group", others}};
}

}  // namespace VIGIL_DETAIL
