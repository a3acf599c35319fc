// tls_stream has each member of a deadline_stream, with the same meaning; and other
// fibers may call it as they may call that.
#include "io/used_by_many.hpp"
#include "tls/tls_transports.hpp"

#include <chrono>
#include <cstddef>
#include <string>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace vigil::io_testing {

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

  TEST_CASE("after close() a call says so, whatever had ended writing before") {
    over_virtual_tls::run([](auto& near, auto&) {
      near.set_write_deadline(clock::now() + 1s);
      CHECK(write_until_error(near) == timed_out);
      near.set_write_deadline(no_deadline);
      CHECK(write_until_error(near) == timed_out);  // a record was cut off
      near.close();
      CHECK(write_until_error(near) == asio::error::bad_descriptor);
      CHECK(read_one(near) == asio::error::bad_descriptor);
    });
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

TEST_SUITE("from other fibers") {
  TEST_CASE("tls_stream: reads, writes, setters, shutdown and close") {
    in_runtime({.workers = {2, 4}}, [] {
      io::idle_list idle(1h);
      repeat(rounds(60), [&](int i) {
        tls_over_tcp made(tcp_connection());
        made.near.set_idle_list(idle);
        made.handshake();
        if (i % 2 == 0) {
          use_by_many(made.near, made.far);
        } else {
          end_writing_by_another(made.near, made.far);
        }
      });
    });
  }

  TEST_CASE("tls_stream: calls during a handshake, which others limit and end") {
    in_runtime({.workers = {2, 4}}, [] {
      repeat(rounds(60), [](int) {
        tls_over_tcp made(tcp_connection());
        fibers_at_once all;
        const auto shake = [](auto& s, stream_base::handshake_type side) {
          error_code error;
          do {
            s.handshake(side, error);
            this_fiber::yield();
          } while (error == timed_out && !s.read_error() && !s.write_error());
        };
        all.add([&] { shake(made.near, stream_base::server); });
        all.add([&] { shake(made.far, stream_base::client); });
        all.add([&] {
          for (int n = 0; n < 10; ++n) {
            made.near.set_read_deadline(long_ago);
            made.near.set_deadline(no_deadline);
            this_fiber::yield();
          }
          made.near.close();
        });
        all.add([&] { static_cast<void>(read_one(made.near)); });
        all.add([&] {
          error_code ignored;
          made.near.write_some(asio::buffer("x", 1), ignored);
        });
        all.join();
      });
    });
  }
}

}  // namespace vigil::io_testing
