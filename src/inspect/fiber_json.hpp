// fiber_json: a fiber or task as JSON, by the table of its fields.
#pragma once

#include "core/sched/report/fiber_view.hpp"

#include <vigil/detail/config.hpp>

#include <boost/json/object.hpp>

namespace VIGIL_DETAIL {

// The fields of the view, without the object of the wait. Those of the wait are in
// "waits_for", which only a parked fiber has. A name is given even if it is empty. Throws
// std::bad_alloc.
boost::json::object json_of(const fiber_view& v);

}  // namespace VIGIL_DETAIL
