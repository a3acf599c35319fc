// close_write of a deadline_stream while others write, at exact times. The peer's view of
// it is in deadline_stream_test.
#include "io/io_test.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/memory_stream.hpp>

using namespace vigil::io_testing;

TEST_SUITE("io::deadline_stream: close_write") {
  TEST_CASE("close_write waits its turn, until the write deadline or a stop at most") {
    for_each_seed(5, [] {
      auto ends = vigil::io::memory_pipe(1);
      vigil::io::deadline_stream<vigil::io::memory_stream> near(std::move(ends.first));
      vigil::io::deadline_stream<vigil::io::memory_stream> far(std::move(ends.second));
      const auto write_one = [&] {
        error_code error;
        near.write_some(asio::buffer("x", 1), error);
        return error;
      };
      const auto read_one = [&] {
        char byte = 0;
        error_code error;
        far.read_some(asio::buffer(&byte, 1), error);
        return error;
      };
      const auto start = vigil::clock::now();
      near.set_write_deadline(start + 10s);
      CHECK_FALSE(write_one());  // the pipe is full
      auto writer = vigil::spawn(write_one);
      vigil::sleep_for(1s);
      auto next = vigil::spawn(write_one);
      vigil::sleep_for(1s);
      auto stopped = vigil::spawn([&] {
        error_code error;
        near.close_write(error);
      });
      vigil::sleep_for(1s);
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      CHECK(since(start) == 3s);
      error_code error;
      near.close_write(error);
      CHECK_FALSE(error);
      CHECK(since(start) == 10s);
      CHECK(writer.join() == asio::error::timed_out);
      CHECK(next.join() == asio::error::timed_out);
      CHECK_FALSE(read_one());
      CHECK(read_one() == asio::error::eof);
    });
  }

  TEST_CASE("a memory_stream is closed as a socket is, with an error_code and without") {
    in_virtual([] {
      for (const bool with_code : {false, true}) {
        auto [near, far] = vigil::io::memory_pipe();
        if (with_code) {
          error_code error = asio::error::eof;
          near.close(error);
          CHECK_FALSE(error);
        } else {
          near.close();
        }
        char byte = 0;
        const auto room = asio::buffer(&byte, 1);
        CHECK(error_of([&, &near = near] { near.async_read_some(room, use_fiber); }) ==
              asio::error::bad_descriptor);
        CHECK(error_of([&, &far = far] { far.async_read_some(room, use_fiber); }) ==
              asio::error::eof);
        CHECK(error_of([&, &far = far] { far.async_write_some(room, use_fiber); }) ==
              asio::error::broken_pipe);
      }
    });
  }
}
