// fiber_json: a fiber or task as JSON, by the table of its fields.
#pragma once

#include "core/sched/report/fiber_table.hpp"

#include <vigil/detail/config.hpp>

#include <cstdint>

#include <boost/json/object.hpp>

namespace VIGIL_DETAIL {

// The fields of the view, without the object of the wait. Those of the wait are in
// "waits_for", which only a parked fiber has. A name is given even if it is empty, a
// runtime even if it is the only one. Throws std::bad_alloc.
boost::json::object json_of(const fiber_view& v);

// The rows of a table, the largest first, and how many of `count` are in none of them.
// Throws std::bad_alloc.
boost::json::object groups_of(fiber_table& table, std::uint64_t count);

}  // namespace VIGIL_DETAIL
