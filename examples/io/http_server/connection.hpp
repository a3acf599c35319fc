// connection: the work of one fiber for one client.
//
// The danger. The idle list ends a connection from another fiber, at a moment when the
// next request may just have come; and an end that was meant for an idle connection must
// not reach a request.
//
// The rule. `state` says whose turn it is.
//
//   fiber      working ─ touch, waiting ─ reads ─ CAS waiting→working ─ serves
//   on_expire  CAS waiting→over ─ the read's deadline is now
//
// HC1 Only the caller that makes waiting→over sets the deadline to now. A fiber that
//     finds `over` removes its entry, which waits until that is done, and then takes the
//     deadline away. So the deadline hits no later read.
// HC2 Bytes that have arrived win: after the end of an idle wait the fiber looks once
//     more.
// HC3 A fiber that is going to wait says so first, and then looks whether the server is
//     stopping. A caller that stops the server says so first, and then goes through the
//     list.
// HC4 While a handler runs, reading and in_ belong to watch(), on a fiber of its timer;
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

  // Serves until the connection is over.
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

  // Watching whether the client is still there.
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
  vigil::timeout_list::entry entry_;  // last, so it dies before the members that its on_expire uses
};

}  // namespace web
