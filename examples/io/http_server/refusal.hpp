// Which requests are refused, and with which status.
#pragma once

#include "message.hpp"

#include <boost/system/error_code.hpp>

namespace web {

// Returns the answer to a request that the parser refuses.
unsigned status_of(const boost::system::error_code& e);

// Returns the answer to a fault that the parser lets pass; 0: none.
unsigned status_of(const request& in);

bool expects_continue(const request& in);

}  // namespace web
