// The pages of the example.
#pragma once

#include "message.hpp"

#include <vigil/context.hpp>

namespace web {

//   /        a page for browsers, which shows how /count comes in
//   /hello   plain text
//   /count   five lines in chunks, a tenth of a second apart
//   /echo    the body that was sent to it
void answer_site(const request& in, response& out, const vigil::context& ctx);

// For options::before_body: refuses a method that the page does not have.
void check_method(const request& in, response& out, const vigil::context& ctx);

}  // namespace web
