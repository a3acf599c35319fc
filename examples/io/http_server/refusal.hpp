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

// Whether Connection says "close". RFC 9112, 9.3: this counts more than "keep-alive",
// even in HTTP/1.0, where Beast's keep_alive() looks at the latter only.
bool says_close(const request& in);

}  // namespace web
