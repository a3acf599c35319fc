// connection: the work of one fiber for one client, from the first bytes of a request
// until all that has come is answered. Between two requests there is only the session.
//
// HC1 While a handler runs, reading and in_ belong to watch(), on a fiber of its timer;
//     end_watch() moves the read's deadline into the past and waits for it.
#pragma once

#include "server.hpp"

#include <vigil/timer.hpp>

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <boost/beast/core/flat_buffer.hpp>

namespace web {

class parser;

// workspace: the buffers of a fiber at work. Another one uses them afterwards.
struct workspace {
  boost::beast::flat_buffer in;  // bytes that the fiber has not looked at yet
  std::string out;               // bytes to be sent
  request asked;
  vigil::timer watch;  // of `user`
  connection* user = nullptr;
};

class connection {
 public:
  connection(server& s, transport& t, session& between, const vigil::context& ctx);
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Answers what has come. Returns whether the connection is kept; there are no bytes
  // that belong to another request then. Caller: something has come.
  bool run();

 private:
  friend class response;

  class idle_limit;

  // While it lives, the end of the client ends the handler's context.
  class watched;

  // Receiving.
  boost::system::error_code receive_first();
  bool skip_empty_lines();
  unsigned receive_header(parser& p);
  bool has_end_of_header(std::size_t& searched) const;
  std::size_t line_size(const parser& p) const;
  std::size_t method_size() const;
  unsigned receive_body(parser& p);
  unsigned receive_more(std::size_t room);
  void limit_receiving(std::chrono::nanoseconds d);
  void take_deadline_away();
  bool serve_request();
  bool is_answered_early();
  bool call(const handler& f, response& out);

  // Watching whether the client is still there.
  void begin_watch();
  bool end_watch() noexcept;
  void watch();

  // Answering.
  void refuse(unsigned status);
  void tell_of_error();
  void send_earlier_answers() noexcept;
  void begin_answer(unsigned status, std::string_view fields, bool own_keep_alive);
  void send(std::string_view what);
  void flush();
  void write_all(std::string_view what);
  void write_piece(std::string_view piece);
  [[noreturn]] void lose(const boost::system::error_code& error);
  void finish();

  server& server_;
  transport& transport_;
  session& between_;
  vigil::cancellable handling_;
  std::unique_ptr<workspace> works_in_;
  boost::beast::flat_buffer& in_;
  std::string& out_;
  std::size_t earlier_ = 0;  // bytes of out_ when the handler began: earlier answers
  request& request_;
  bool has_deadline_ = false;  // for reading
  bool has_sent_ = false;      // anything since the handler began
  bool keep_ = true;
  bool is_head_ = false;
};

}  // namespace web
