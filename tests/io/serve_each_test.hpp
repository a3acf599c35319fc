// Helpers that the tests of io::serve_each share: a server of lines, and its clients.
#pragma once

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_acceptor.hpp>
#include <vigil/io/serve_each.hpp>
#include <vigil/vigil.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/read_until.hpp>
#include <boost/asio/write.hpp>

namespace vigil::serve_each_testing {

namespace asio = boost::asio;
using each_client = io::deadline_stream<io::memory_stream>;

struct each_session {
  int lines = 0;
};

// Reads one line and answers with its number in the connection and its text.
template <class Connection>
io::afterwards answer_line(Connection& peer) {
  boost::system::error_code error;
  const std::size_t n =
      asio::read_until(peer.stream(), asio::dynamic_buffer(peer.input()), '\n', error);
  if (error) return io::afterwards::close;
  const std::string answer = std::to_string(++peer.state().lines) + " " + peer.input().substr(0, n);
  peer.input().erase(0, n);
  asio::write(peer.stream(), asio::buffer(answer), error);
  return error ? io::afterwards::close : io::afterwards::keep;
}

inline constexpr auto answer_lines = [](auto& peer, const context&) {
  return peer.is_idle() ? io::afterwards::close : answer_line(peer);
};

template <class Stream>
void say(Stream& to, const std::string& text) {
  asio::write(to, asio::buffer(text));
}

// Returns the next line, or "" at the end of the stream.
template <class Stream>
std::string next_line(Stream& from, std::string& kept) {
  boost::system::error_code error;
  const std::size_t n = asio::read_until(from, asio::dynamic_buffer(kept), '\n', error);
  if (error) return "";
  std::string line = kept.substr(0, n - 1);
  kept.erase(0, n);
  return line;
}

// A server on a fiber, until its scope ends.
template <class Handler>
class running_server {
 public:
  running_server(Handler handler, const io::serve_limits& limits = {})
      : server_(spawn([this, handler, limits] {
          io::serve_each<each_session>(stopping_.ctx, acceptor, handler, limits);
        })) {}

  ~running_server() {
    const this_fiber::shield until_it_has_ended;
    end();
  }

  void stop() { stopping_.cancel(); }

  void end() {
    stop();
    if (server_.joinable()) server_.join();
  }

  each_client connect() { return each_client(acceptor.connect()); }

  io::memory_acceptor acceptor;

 private:
  cancellable stopping_ = with_cancel(background());
  fiber<void> server_;
};

// All fibers that options::max_fibers leaves, until end().
class all_fibers {
 public:
  all_fibers() {
    try {
      for (;;)
        fibers_.push_back(spawn([open = open_] { open.recv(); }));
    } catch (const limit_reached&) {
    }
  }

  void end() {
    open_.close();
    for (auto& f : fibers_)
      f.join();
  }

 private:
  channel<void> open_ = make_channel<void>();
  std::vector<fiber<void>> fibers_;
};

}  // namespace vigil::serve_each_testing
