// tls_stream: the messages that it sends by itself, in answer to errors and to new keys.
#include "tls/tls_transports.hpp"

#include <algorithm>
#include <string>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <unistd.h>

namespace vigil::io_testing {
namespace {

using stream = io::tls_stream<io::memory_stream>;

std::size_t unsent(stream& s) {
  return BIO_ctrl_pending(SSL_get_wbio(s.native_handle()));
}

}  // namespace

TEST_SUITE("tls_stream: automatic answers") {
  TEST_CASE("a read that fails tells the other end so, with a fatal alert") {
    for_each_seed(5, [] {
      tls_in_memory c(memory_connection());
      c.handshake();
      c.near.next_layer().write_some(asio::buffer("\x17\x03\x03\x00\x05wrong", 10));
      CHECK(is_of_tls(tls_read_byte(c.far)));
      CHECK(unsent(c.far) == 0);
      const error_code heard = tls_read_byte(c.near);
      CHECK(is_of_tls(heard));
      CHECK(heard.message().find("alert") != std::string::npos);
    });
  }

  TEST_CASE("so does one that fails while another fiber writes, behind that fiber's bytes") {
    for_each_seed(20, [] {
      tls_in_memory c(memory_connection());
      c.handshake();
      const std::string all(200'000, 'x');  // more than the pipe takes
      auto writer = spawn([&] {
        error_code error;
        return asio::write(c.far, asio::buffer(all), error);
      });
      sleep_for(1s);
      c.near.next_layer().write_some(asio::buffer("\x17\x03\x03\x00\x05wrong", 10));
      CHECK(is_of_tls(tls_read_byte(c.far)));  // without a wait for the writer
      std::string got(all.size(), ' ');
      error_code heard;
      const std::size_t n = asio::read(c.near, asio::buffer(got), heard);
      CHECK(is_of_tls(heard));
      CHECK(writer.join() <= n);
      CHECK(n < all.size());
    });
  }

  TEST_CASE("new keys are answered by a stream that only reads, and nothing piles up") {
    for_each_seed(is_short_form() ? 1 : 3, [] {
      tls_in_memory c(memory_connection());
      c.handshake();
      error_code error;
      std::size_t answers = 0;
      SSL_set_msg_callback(
          c.far.native_handle(),
          [](int is_written, int, int type, const void* bytes, std::size_t, SSL*, void* count) {
            const bool is_message = is_written == 0 && type == SSL3_RT_HANDSHAKE;
            if (is_message && *static_cast<const char*>(bytes) == SSL3_MT_KEY_UPDATE) {
              ++*static_cast<std::size_t*>(count);
            }
          });
      SSL_set_msg_callback_arg(c.far.native_handle(), &answers);
      for (int i = 0; i < 1000; ++i) {
        ask_for_keys(c.far, error);
        REQUIRE(!error);
        CHECK(!tls_read_byte(c.near));
        CHECK(unsent(c.near) == 0);
      }
      c.far.set_read_deadline(clock::now() + 1s);
      CHECK(tls_read_byte(c.far) == timed_out);
      CHECK(answers == 1000);
    });
  }

  TEST_CASE("a peer that asks for new keys and takes no answer is not read from for ever") {
    for_each_seed(is_short_form() ? 1 : 3, [] {
      tls_in_memory c(memory_connection());
      c.handshake();
      std::size_t most = 0;
      auto reader = spawn([&] {
        std::size_t n = 0;
        while (!tls_read_byte(c.near)) {
          most = std::max(most, unsent(c.near));
          ++n;
        }
        return n;
      });
      error_code error;
      std::size_t rounds = 0;
      c.far.set_write_deadline(clock::now() + 1h);
      for (; !error; ++rounds) {
        REQUIRE(rounds < 100'000);
        ask_for_keys(c.far, error);
      }
      CHECK(error == timed_out);  // it is held back
      CHECK(most > 1000);
      CHECK(most < 100'000);
      // Once the answers are taken all of it is read.
      auto takes = spawn([&] { tls_read_byte(c.far); });
      sleep_for(1s);
      CHECK(unsent(c.near) == 0);
      c.near.set_read_deadline(clock::now());
      CHECK(reader.join() > 1000);
      c.far.set_read_deadline(clock::now());
      takes.join();
    });
  }

  TEST_CASE("a stream that may write no more answers no more, and reads on") {
    for_each_seed(is_short_form() ? 1 : 3, [] {
      tls_in_memory c(memory_connection());
      c.handshake();
      error_code error;
      c.near.set_write_deadline(clock::now() + 1s);
      while (!error)
        asio::write(c.near, asio::buffer("a line that nobody reads", 24), error);
      CHECK(error == timed_out);
      for (int i = 0; i < 6000; ++i) {
        error.clear();
        ask_for_keys(c.far, error);
        REQUIRE(!error);
        REQUIRE(!tls_read_byte(c.near));
        REQUIRE(unsent(c.near) < 100'000);
      }
    });
  }
}

}  // namespace vigil::io_testing
