// awaited_json: the object that a fiber or task waits for, as JSON.
#pragma once

#include "inspect/awaited_object.hpp"

#include <vigil/detail/config.hpp>

#include <boost/json/object.hpp>

namespace VIGIL_DETAIL {

struct fiber_report;

struct json_rules {
  bool with_addresses = false;
  const fiber_report* report = nullptr;  // that knows the last users of objects
};

// Adds it to a wait. Throws std::bad_alloc.
void add_awaited(boost::json::object& to, const awaited_object& o, const json_rules& rules);

}  // namespace VIGIL_DETAIL
