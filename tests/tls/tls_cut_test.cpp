// TLS is cut short at each point at which it waits, on either side: nobody hangs, and
// nothing is left.
#include "io/cut_test.hpp"
#include "tls/tls_transports.hpp"

#include <array>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io_testing {
namespace {

using stream = io::tls_stream<io::memory_stream>;

// A step, which ends at the first error; `task` is told of each one.
struct step {
  bool operator()(const char* point, auto call) {
    if (failed) return false;
    task.at(point);
    error_code error;
    call(error);
    failed = failed || error;
    return !failed;
  }

  whereabouts& task;
  bool failed = false;
};

void talk(stream& s, stream_base::handshake_type side, whereabouts& task) {
  step next{task};
  std::array<char, 300> bytes{};
  const auto read = [&](error_code& e) { asio::read(s, asio::buffer(bytes), e); };
  const auto write = [&](error_code& e) { asio::write(s, asio::buffer(bytes), e); };
  next("handshake", [&](error_code& e) { s.handshake(side, e); });
  for (int i = 0; i < 2; ++i) {
    if (side == stream_base::client) next("writing", write);
    next("reading", read);
    if (side == stream_base::server) next("writing", write);
  }
  const auto read_eof = [&](error_code& e) {
    s.read_some(asio::buffer(bytes), e);
    if (e == asio::error::eof) e.clear();
  };
  if (side == stream_base::server) next("parting", read_eof);
  next("shutdown", [&](error_code& e) { s.shutdown(e); });
  if (side == stream_base::client) next("parting", read_eof);
  if (!next.failed) task.done();
}

using cut_stream = void (*)(fiber<>&, stream&);

// The pipe is narrow: records come in parts, and writes wait, too.
void cut_one(bool server, cut_stream cut, int turns, whereabouts& task) {
  auto [one, other] = io::memory_pipe(16);
  tls_in_memory c({timed_memory_stream(std::move(one)), timed_memory_stream(std::move(other))});
  whereabouts elsewhere;
  auto near = spawn([&] { talk(c.near, stream_base::server, server ? task : elsewhere); });
  auto far = spawn([&] { talk(c.far, stream_base::client, server ? elsewhere : task); });
  pass(turns);
  auto& cut_fiber = server ? near : far;
  auto& cut_end = server ? c.near : c.far;
  cut(cut_fiber, cut_end);
  join_cut(cut_fiber);
  cut_end.close();
  join_cut(server ? far : near);
}

}  // namespace

TEST_SUITE("tls_stream: cut short at each point") {
  TEST_CASE("a stop, a close and a deadline, of a server and of a client") {
    const cut_stream cuts[] = {
        [](fiber<>& f, stream&) { f.request_stop(); },
        [](fiber<>&, stream& s) { s.close(); },
        [](fiber<>&, stream& s) { s.set_deadline(clock::now()); },
    };
    cut_points all;
    for (const cut_stream cut : cuts) {
      for (const bool server : {true, false}) {
        cut_points ended;
        cut_after_each_turn(
            6, ended, [&](int turns, whereabouts& task) { cut_one(server, cut, turns, task); });
        check_cut_at(ended, {"handshake", "writing", "reading"});
        all.merge(ended);
      }
    }
    check_cut_at(all, {"shutdown", "parting"});
  }
}

}  // namespace vigil::io_testing
