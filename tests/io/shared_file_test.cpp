// deadline_stream over a file whose flags others may change, and over a pipe whose reader
// has gone.
#include "io/transports.hpp"

#include <vigil/io/select.hpp>
#include <vigil/select.hpp>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <string>
#include <thread>

#include <boost/asio/connect_pipe.hpp>
#include <boost/asio/readable_pipe.hpp>
#include <boost/asio/writable_pipe.hpp>

#include <fcntl.h>
#include <sys/socket.h>

using namespace vigil::io_testing;

namespace {

// As another process does that has inherited the socket.
void make_blocking(int descriptor) {
  const int flags = ::fcntl(descriptor, F_GETFL);
  REQUIRE((flags & O_NONBLOCK) != 0);
  REQUIRE(::fcntl(descriptor, F_SETFL, flags & ~O_NONBLOCK) == 0);
}

// Ends a connection from a plain thread, if a call blocks its worker: then the test fails
// instead of hanging.
class rescue {
 public:
  explicit rescue(int descriptor)
      : thread_([this, descriptor] {
          std::unique_lock lock(lock_);
          if (over_.wait_for(lock, 60s, [this] { return is_over_; })) return;
          was_needed_ = true;
          ::shutdown(descriptor, SHUT_RDWR);
        }) {}

  ~rescue() {
    {
      const std::lock_guard guard(lock_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }

  rescue(const rescue&) = delete;
  rescue& operator=(const rescue&) = delete;

  bool was_needed() {
    const std::lock_guard guard(lock_);
    return was_needed_;
  }

 private:
  std::mutex lock_;
  std::condition_variable over_;
  bool is_over_ = false;
  bool was_needed_ = false;
  std::thread thread_;  // is made last
};

template <class Stream>
void keeps_deadlines_when_blocking(Stream& near) {
  rescue by_thread(near.next_layer().native_handle());
  near.set_deadline(clock::now() + 5ms);
  CHECK(vigil::io_testing::read_one(near) == timed_out);
  make_blocking(near.next_layer().native_handle());
  near.set_read_deadline(clock::now() + 5ms);
  CHECK(vigil::io_testing::read_one(near) == timed_out);
  near.set_write_deadline(clock::now() + 5ms);
  CHECK(vigil::io_testing::write_until_error(near) == timed_out);
  near.set_read_deadline(clock::now() + 5ms);
  char byte = 0;
  CHECK_THROWS_AS(
      vigil::select(vigil::io::on_read(near, asio::buffer(&byte, 1), [](std::size_t) {})),
      boost::system::system_error);
  near.set_write_deadline(clock::now() + 5ms);
  const std::string many(1 << 20, 'x');
  // A full socket may have room again once its bytes have been acknowledged.
  const auto write_on = [&] {
    for (;;)
      vigil::select(vigil::io::on_write(near, asio::buffer(many), [](std::size_t) {}));
  };
  CHECK_THROWS_AS(write_on(), boost::system::system_error);
  CHECK_FALSE(by_thread.was_needed());
}

}  // namespace

TEST_SUITE("deadline_stream: files that others use") {
  TEST_CASE("a socket keeps its deadlines when others have made it blocking") {
    over_tcp::run([](auto& near, auto&) { keeps_deadlines_when_blocking(near); });
    over_unix::run([](auto& near, auto&) { keeps_deadlines_when_blocking(near); });
  }

  TEST_CASE("a pipe without a reader is an error once the program ignores SIGPIPE") {
    const auto before = std::signal(SIGPIPE, SIG_IGN);
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      asio::readable_pipe reader(c);
      vigil::io::deadline_stream<asio::writable_pipe> writer(c);
      asio::connect_pipe(reader, writer.next_layer());
      auto writes = vigil::spawn([&] { return vigil::io_testing::write_until_error(writer); });
      vigil::sleep_for(1ms);  // full, as a rule
      reader.close();
      CHECK(writes.join() == asio::error::broken_pipe);
      CHECK(vigil::io_testing::write_until_error(writer) == asio::error::broken_pipe);
    });
    std::signal(SIGPIPE, before);
  }
}
