// page_http: one request read from a connection, and one answer written to it, within
// limits of size and time. Each connection serves one request.
#pragma once

#include "inspect_page/page_request.hpp"
#include "inspect_page/waiting_peers.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/detail/any_io_executor.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/generic/stream_protocol.hpp>

namespace VIGIL_DETAIL {

using page_stream = io::deadline_stream<boost::asio::generic::stream_protocol::socket>;

struct page_answer {
  unsigned status = 200;
  std::string_view type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;
  std::string fields = {};  // more of them, each with its line end
};

page_answer text_answer(unsigned status, std::string text, std::string fields = {});

// How long the head of a request may take.
inline constexpr std::chrono::seconds time_to_ask(5);

// Reads the head of a request, at most 8 KiB, within `time`. `refusal` is set if the
// request breaks a limit or the syntax. Returns nothing for that, and if the peer has
// gone or sends nothing.
std::optional<page_request> read_request(page_stream& peer,
                                         std::optional<page_answer>& refusal,
                                         std::chrono::nanoseconds time = time_to_ask);

// Writes an answer within a minute, and ends the connection. Without a body for HEAD.
// Tells `self` of each progress.
void write_answer(page_stream& peer,
                  const page_answer& answer,
                  bool is_head,
                  waiting_peers::member& self);

}  // namespace VIGIL_DETAIL
