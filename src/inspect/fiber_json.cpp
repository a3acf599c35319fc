#include "inspect/fiber_json.hpp"

#include "core/base/foreign_memory.hpp"
#include "inspect/json_text.hpp"

#include <boost/json/value.hpp>

namespace VIGIL_DETAIL {
namespace {

namespace json = boost::json;

json::value value_of(const fiber_field& f, const fiber_view& v) {
  switch (f.kind) {
    case field_kind::id:
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
    if (!is_shown(f, v) && f.kind != field_kind::name) continue;
    (f.is_of_wait() ? wait : o)[f.key] = value_of(f, v);
  }
  if (v.is_parked()) o["waits_for"] = std::move(wait);
  return o;
}

}  // namespace VIGIL_DETAIL
