// connection: what one fiber does for one client.
//
// The danger. The idle list ends a connection from another fiber, at the moment at
// which the next request may just have come; and an end that was meant for an idle
// connection must not reach a request.
//
// The rule. `state` says whose turn it is.
//
//   fiber      working ─ touch, waiting ─ reads ─ CAS waiting→working ─ serves
//   on_expire  CAS waiting→over ─ the read's deadline is now
//
// C1  Only who makes waiting→over sets the deadline to now. A fiber that finds
//     `over` removes its entry, which waits until that is done, and then takes the
//     deadline away. So it hits no later read.
// C2  What has arrived wins: after the end of an idle wait the fiber looks once more.
// C3  A fiber that is to wait says so first, and looks whether the server is stopping
//     then; who stops it says so first, and goes through the list then.
// C4  While a handler runs, reading and in_ belong to watch(), on a fiber of its timer;
//     end_watch() moves the read's deadline into the past and waits for it.
#pragma once

#include "server.hpp"

#include <vigil/timer.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include <boost/beast/core/flat_buffer.hpp>

namespace web {

class parser;

class connection {
 public:
  connection(server& s, transport& t, const vigil::context& ctx);
  ~connection();
  connection(const connection&) = delete;
  connection& operator=(const connection&) = delete;

  // Until the connection is over.
  void run();

  // The list's on_expire.
  static void expire_entry(vigil::timeout_list::entry& e);

 private:
  friend class response;

  enum class state { working, waiting, over };

  // While it lives, the end of the client ends the handler's context.
  class watched;

  // Receiving. Bytes that the fiber has not looked at yet are in in_.
  bool wait_for_request();
  bool read_idle(boost::system::error_code& error);
  boost::system::error_code wait_idle();
  void to_working();
  void skip_empty_lines();
  unsigned receive(parser& p);
  unsigned receive_header(parser& p);
  std::size_t line_size(const parser& p) const;
  std::size_t method_size() const;
  unsigned receive_body(parser& p);
  unsigned receive_more(std::size_t room);
  void limit_receiving(std::chrono::nanoseconds d);
  void take_deadline_away();
  bool serve_request();
  bool answer(response& out);

  // Looking whether the client is still there.
  void begin_watch();
  bool end_watch() noexcept;
  void watch();

  // Answering. Bytes to be sent are in out_.
  void refuse(unsigned status);
  void tell_of_error(const response& out);
  void begin_answer(unsigned status, std::string_view fields, bool own_keep_alive);
  void send(std::string_view what);
  void flush();
  void write_all(std::string_view what);
  void write_piece(std::string_view piece);
  [[noreturn]] void lose(const boost::system::error_code& error);
  void finish();

  void expire();

  server& server_;
  transport& transport_;
  vigil::cancellable handling_;
  boost::beast::flat_buffer in_;
  std::string out_;
  request request_;
  bool has_deadline_ = false;  // for reading
  bool keep_ = true;
  bool is_head_ = false;
  vigil::timer watch_;
  std::atomic<state> state_{state::working};
  vigil::timeout_list::entry entry_;  // the last: it dies before what its on_expire uses
};

}  // namespace web
