#include "connection.hpp"

#include "parser.hpp"
#include "refusal.hpp"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <boost/beast/http/status.hpp>

namespace web {

using boost::system::error_code;
using std::chrono::nanoseconds;
using time_point = vigil::clock::time_point;

namespace {

constexpr std::size_t small_read = 2048;
constexpr std::size_t large_read = std::size_t{16} << 10;
constexpr std::size_t piece = std::size_t{64} << 10;
constexpr std::size_t read_ahead = std::size_t{16} << 10;

// No registered method is as long (UPDATEREDIRECTREF).
constexpr std::size_t longest_method = 32;

// Most handlers have returned by then, and cost no second reader.
constexpr nanoseconds unwatched = std::chrono::milliseconds(10);

const error_code timed_out = boost::asio::error::timed_out;

// The client has gone, or does not take its answer.
struct gone : boost::system::system_error {
  using system_error::system_error;
};

time_point later(time_point t, nanoseconds d) {
  return d > time_point::max() - t ? time_point::max() : t + d;
}

std::string_view reason_of(unsigned status) {
  const auto known = http::obsolete_reason(http::int_to_status(status));
  return {known.data(), known.size()};
}

}  // namespace

connection::connection(server& s, transport& t, session& between, const vigil::context& ctx)
    : server_(s),
      transport_(t),
      between_(between),
      handling_(vigil::with_cancel(ctx)),
      works_in_(s.take_workspace()),
      in_(works_in_->in),
      out_(works_in_->out),
      request_(works_in_->asked) {
  works_in_->user = this;
}

connection::~connection() {
  handling_.cancel();
  server_.give_back(std::move(works_in_));
}

bool connection::run() {
  try {
    const error_code error = receive_first();
    if (error == timed_out) return !server_.is_stopping() && server_.is_kept_idle(between_);
    if (error) return false;
    do {
      if (!serve_request()) {
        finish();
        return false;
      }
    } while (skip_empty_lines());
    flush();
  } catch (const gone&) {
    return false;
  }
  between_.idle_since = vigil::clock::now();
  return true;
}

// --- the beginning of a request

// While it lives, a read ends when the idle time is over, or the server stops.
class connection::idle_limit {
 public:
  explicit idle_limit(connection& c) : of_(c.transport_) {
    of_.set_read_deadline(later(c.between_.idle_since, c.server_.how_.idle));
    stops_ = vigil::after_func(c.server_.stopping_.ctx,
                               [this] { of_.set_read_deadline(time_point::min()); });
  }

  ~idle_limit() {
    const vigil::this_fiber::shield until_it_has_ended;
    stops_.stop_and_wait();
    of_.set_read_deadline(time_point::max());
  }

  idle_limit(const idle_limit&) = delete;
  idle_limit& operator=(const idle_limit&) = delete;

 private:
  transport& of_;
  vigil::done_callback stops_;
};

// Reads what has come, until it is more than empty lines: these do not begin the idle
// time anew. The bytes are then in in_; with an error there are none.
error_code connection::receive_first() {
  std::optional<idle_limit> limit;
  for (;;) {
    error_code error;
    in_.commit(transport_.read(in_.prepare(small_read), error));
    if (error || skip_empty_lines()) return error;
    if (!limit.has_value()) limit.emplace(*this);
  }
}

// RFC 9112, 2.2: some clients send an empty line after a body. Returns whether there is
// more.
bool connection::skip_empty_lines() {
  const auto* const text = static_cast<const char*>(in_.cdata().data());
  std::size_t n = 0;
  while (n < in_.size() && (text[n] == '\r' || text[n] == '\n'))
    ++n;
  in_.consume(n);
  return in_.size() != 0;
}

// --- receiving a request

unsigned connection::receive_header(parser& p) {
  std::size_t size = 0;
  std::size_t searched = 0;
  for (bool is_first = true;; is_first = false) {
    error_code error;
    const std::size_t used = p.put(in_.cdata(), error);
    in_.consume(used);
    size += used;
    if (error && error != http::error::need_more) return status_of(error);
    if (used != 0) searched = 0;
    if (used == 0 && has_end_of_header(searched)) return status_of(http::error::bad_version);
    const std::size_t rest = p.is_header_done() ? 0 : in_.size();
    if (size + rest > server_.how_.header_bytes) {
      if (line_size(p) <= server_.how_.header_bytes) return 431;
      return method_size() > longest_method ? 501 : 414;
    }
    if (p.is_header_done()) return 0;
    if (is_first) limit_receiving(server_.how_.header);
    if (const unsigned status = receive_more(small_read)) return status;
  }
}

// Returns whether the end of a header has come. The parser would wait for more if the
// version has fewer bytes than "HTTP/1.1". `searched`: how many are known not to have it.
bool connection::has_end_of_header(std::size_t& searched) const {
  constexpr std::string_view end = "\r\n\r\n";
  const std::string_view text(static_cast<const char*>(in_.cdata().data()), in_.size());
  const bool is_there = text.find(end, searched) != text.npos;
  searched = text.size() - std::min(text.size(), end.size() - 1);
  return is_there;
}

// Returns the length of the request line, or of the part that has arrived.
std::size_t connection::line_size(const parser& p) const {
  if (p.line_size() != 0) return p.line_size();
  const std::string_view text(static_cast<const char*>(in_.cdata().data()), in_.size());
  return std::min(text.find('\n'), text.size() - 1) + 1;
}

// Returns the length of the method, or of the part that has arrived.
std::size_t connection::method_size() const {
  if (!request_.method().empty()) return request_.method().size();
  const std::string_view text(static_cast<const char*>(in_.cdata().data()), in_.size());
  return std::min(text.find(' '), text.size());
}

unsigned connection::receive_body(parser& p) {
  if (in_.size() == 0 && request_.version() > 10 && expects_continue(request_)) {
    out_ += "HTTP/1.1 100 Continue\r\n\r\n";
  }
  limit_receiving(server_.how_.body);
  p.eager(true);
  for (;;) {
    if (in_.size() != 0) {
      error_code error;
      in_.consume(p.put(in_.cdata(), error));
      if (error && error != http::error::need_more) return status_of(error);
      if (p.is_done()) return 0;
      // The rest is the head of a chunk, or a trailer.
      if (in_.size() > server_.how_.header_bytes) return 431;
    }
    if (const unsigned status = receive_more(large_read)) return status;
  }
}

unsigned connection::receive_more(std::size_t room) {
  flush();
  error_code error;
  in_.commit(transport_.read(in_.prepare(room), error));
  if (error == timed_out) return 408;
  if (error) throw gone(error, "the rest of a request");
  return 0;
}

// Limits the receiving to `d` from now.
void connection::limit_receiving(nanoseconds d) {
  transport_.set_read_deadline(vigil::deadline_in(d));
  has_deadline_ = true;
}

void connection::take_deadline_away() {
  if (std::exchange(has_deadline_, false)) transport_.set_read_deadline(time_point::max());
}

// Returns false if the connection is to be closed.
bool connection::serve_request() {
  between_.ask_for_request({});
  parser p(request_, server_.how_.body_bytes);
  unsigned status = receive_header(p);
  if (status == 0) status = status_of(request_);
  if (status == 0 && !p.is_done()) {
    if (is_answered_early()) return false;
    status = receive_body(p);
  }
  take_deadline_away();
  if (status != 0) {
    refuse(status);
    return false;
  }
  keep_ = p.keep_alive() && !server_.is_stopping();
  if (request_.version() == 10 && says_close(request_)) keep_ = false;
  response out(*this);
  const bool was_long = call(server_.answer_, out);
  out.end();
  if (was_long) flush();  // the next request may already be here, and may be long as well
  server_.served_.fetch_add(1);
  between_.ask_for_request(std::move(out.keeps_idle));
  return keep_;
}

// Whether the program has answered without the body, which is then not received.
bool connection::is_answered_early() {
  if (!server_.how_.before_body) return false;
  take_deadline_away();
  keep_ = false;
  response out(*this);
  call(server_.how_.before_body, out);
  if (!out.has_begun_ && out.status == 200) return false;
  out.end();
  server_.served_.fetch_add(1);
  return true;
}

// --- whether the client is still there

class connection::watched {
 public:
  explicit watched(connection& c) : of_(c) { of_.begin_watch(); }

  ~watched() { end(); }

  watched(const watched&) = delete;
  watched& operator=(const watched&) = delete;

  // Returns whether watch() has begun.
  bool end() noexcept { return !std::exchange(has_ended_, true) && of_.end_watch(); }

 private:
  connection& of_;
  bool has_ended_ = false;
};

// Returns whether it took long.
bool connection::call(const handler& f, response& out) {
  is_head_ = request_.method() == "HEAD";
  earlier_ = out_.size();
  has_sent_ = false;
  std::exception_ptr error;
  try {
    watched w(*this);
    f(request_, out, handling_.ctx);
    return w.end();
  } catch (const gone&) {
    throw;
  } catch (const vigil::cancelled&) {
    send_earlier_answers();
    throw;
  } catch (const vigil::stopped&) {
    send_earlier_answers();
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  tell_of_error();
  std::rethrow_exception(error);
}

void connection::begin_watch() {
  workspace& w = *works_in_;
  if (w.watch) {
    w.watch.reset(unwatched);
  } else {
    w.watch = vigil::after_func(unwatched, [&w] { w.user->watch(); });
  }
}

// Returns whether watch() has begun (HC1).
bool connection::end_watch() noexcept {
  if (works_in_->watch.stop()) return false;
  const vigil::this_fiber::shield until_it_has_ended;
  transport_.set_read_deadline(time_point::min());
  works_in_->watch.stop_and_wait();
  transport_.set_read_deadline(time_point::max());
  return true;
}

// Reads ahead: bytes belong to the next request, and their end is the client's end.
void connection::watch() {
  while (in_.size() < read_ahead) {
    error_code error;
    try {
      in_.commit(transport_.read(in_.prepare(small_read), error));
    } catch (const std::bad_alloc&) {
      return;
    }
    if (error == timed_out) return;
    if (error) {
      handling_.cancel(std::error_code(error));
      return;
    }
  }
}

// --- answering

// A HEAD whose first line is wrong or incomplete is known by its beginning.
void connection::refuse(unsigned status) {
  constexpr std::string_view head = "HEAD ";
  const std::string_view text(static_cast<const char*>(in_.cdata().data()), in_.size());
  keep_ = false;
  is_head_ = request_.method().empty() ? text.starts_with(head) : request_.method() == "HEAD";
  response out(*this);
  out.status = status;
  out.set("Content-Type", "text/plain");
  out.send(std::string(reason_of(status)) + "\n");
}

// Tells the client. If it has gone, the handler's error is reported all the same.
void connection::tell_of_error() {
  if (has_sent_) return;  // the client sees that the end of an answer is missing
  try {
    out_.resize(earlier_);
    refuse(500);
    finish();
  } catch (...) {  // gone, stopped or short of memory: the error is reported next
  }
}

// The handler has ended early: what it has written is dropped, what was whole before is
// sent. A stopped fiber sends what the kernel takes at once.
void connection::send_earlier_answers() noexcept {
  if (has_sent_ || earlier_ == 0) return;
  try {
    out_.resize(earlier_);
    finish();
  } catch (...) {  // gone, stopped or short of memory: the connection ends in any case
  }
}

void connection::begin_answer(unsigned status, std::string_view fields, bool own_keep_alive) {
  out_ += "HTTP/1.1 ";
  out_ += std::to_string(status);
  out_ += ' ';
  out_ += reason_of(status);
  out_ += "\r\n";
  server_.date_.append_to(out_);
  out_ += fields;
  if (!keep_) {
    out_ += "Connection: close\r\n";
  } else {
    if (request_.version() == 10) out_ += "Connection: keep-alive\r\n";
    if (!own_keep_alive) out_ += server_.keep_alive_field_;
  }
}

void connection::send(std::string_view what) {
  if (out_.size() + what.size() > piece) flush();
  if (what.size() > piece) {
    write_all(what);
  } else {
    out_ += what;
  }
}

void connection::flush() {
  if (out_.empty()) return;
  write_all(out_);
  out_.clear();
  if (out_.capacity() > small_read) out_.shrink_to_fit();
}

void connection::write_all(std::string_view what) {
  has_sent_ = true;
  while (!what.empty()) {
    const std::string_view now = what.substr(0, piece);
    what.remove_prefix(now.size());
    write_piece(now);
  }
}

// The kernel reports a socket writable only once a third of its buffer is free, which may
// be far more than a piece. So when the time is over, the write is tried once more; and a
// client that has taken something by then, which the kernel counts in its own segments,
// has the same time again for the rest.
void connection::write_piece(std::string_view now) {
  for (bool is_last = false;; is_last = true) {
    transport_.set_write_deadline(later(vigil::clock::now(), server_.how_.write));
    error_code error;
    while (!error) {
      now.remove_prefix(transport_.write(boost::asio::buffer(now), error));
      if (now.empty()) return;
    }
    if (error != timed_out) lose(error);
    const std::size_t n = transport_.write_now(boost::asio::buffer(now), error);
    now.remove_prefix(n);
    if (now.empty()) return;
    if (n == 0 || is_last) lose(error ? error : timed_out);
  }
}

// Other fibers' work for the handler, under its context, ends as well.
void connection::lose(const error_code& error) {
  handling_.cancel(std::error_code(error));
  throw gone(error, "an answer");
}

// A close with unread bytes would be a reset, which may destroy the answer on its way. So
// the client is told that this was all, and may go on for a while with what it was
// sending: most clients look at the answer only afterwards.
void connection::finish() {
  flush();
  if (!transport_.end_writing()) return;
  const time_point end = vigil::deadline_in(server_.how_.body);
  error_code error;
  while (!error) {
    transport_.set_read_deadline(std::min(end, vigil::deadline_in(server_.how_.linger)));
    in_.clear();
    transport_.read(in_.prepare(large_read), error);
  }
}

}  // namespace web
