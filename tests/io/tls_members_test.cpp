// tls_stream has each member of a deadline_stream, with the same meaning.
#include "io/tls_transports.hpp"

#include <chrono>
#include <cstddef>
#include <string>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io_testing {

using namespace std::chrono_literals;
using namespace testing_support;

namespace {

template <class Stream>
void write_text(Stream& s, const std::string& text) {
  asio::write(s, asio::buffer(text));
}

template <class Stream>
std::string read_text(Stream& s, std::size_t n) {
  std::string text(n, ' ');
  asio::read(s, asio::buffer(text));
  return text;
}

// Calls each member that a deadline_stream has, on either kind of stream.
template <class Stream>
void use_as_deadline_stream(Stream& near, Stream& far) {
  near.set_no_delay(false);
  CHECK(near.get_executor() == far.get_executor());
  near.set_read_deadline(long_ago);
  CHECK(near.read_error() == timed_out);
  CHECK_FALSE(near.write_error());
  near.set_read_deadline(no_deadline);
  near.set_write_deadline(long_ago);
  CHECK_FALSE(near.read_error());
  CHECK(near.write_error() == timed_out);
  near.set_deadline(no_deadline);
  write_text(near, "last words");
  error_code error;
  near.close_write(error);
  CHECK_FALSE(error);
  near.close_write(error);
  CHECK(read_text(far, 10) == "last words");
  CHECK(read_one(far) == asio::error::eof);
  write_text(far, "and mine");
  CHECK(read_text(near, 8) == "and mine");
  near.close();
  CHECK(near.read_error() == asio::error::bad_descriptor);
  CHECK(near.write_error() == asio::error::bad_descriptor);
}

}  // namespace

TEST_SUITE("tls_stream: a deadline_stream with TLS") {
  TEST_CASE("a function for deadline_streams takes it, and finds the same") {
    over_virtual_tls::run([](auto& near, auto& far) { use_as_deadline_stream(near, far); });
    over_tls::run([](auto& near, auto& far) { use_as_deadline_stream(near, far); });
    over_tcp::run([](auto& near, auto& far) { use_as_deadline_stream(near, far); });
  }

  TEST_CASE("its idle list sees the bytes of TLS, from the handshake on") {
    for_each_seed(5, [] {
      io::idle_list idle(10s);
      tls_in_memory c(memory_connection());
      c.far.set_idle_list(idle);
      CHECK(idle.size() == 1);
      const auto start = clock::now();
      error_code error;
      c.far.handshake(stream_base::client, error);
      CHECK(error == timed_out);
      CHECK(since(start) == 10s);
      c.handshake();
      CHECK(read_one(c.far) == timed_out);
      CHECK(since(start) == 20s);
      c.far.close();
      CHECK(idle.size() == 0);
    });
  }
}

}  // namespace vigil::io_testing
