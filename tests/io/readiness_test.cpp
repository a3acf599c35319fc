// How a deadline_stream over a stream of the kernel's waits: Asio tells it when bytes may
// be there, and it transfers them itself.
#include "io/transports.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/post.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

using namespace vigil::io_testing;

namespace {

const error_code aborted = asio::error::operation_aborted;

template <class Stream>
void write_all(Stream& s, const std::string& bytes) {
  asio::write(s, asio::buffer(bytes));
}

// A pair of Unix streams of an io_context that nobody runs.
struct own_pair {
  explicit own_pair(asio::io_context& own) : near(own), far(own) {
    asio::local::connect_pair(near.next_layer(), far.next_layer());
  }

  unix_stream near;
  unix_stream far;
};

// A stream from which nothing can be read, and whose wait does what the test says.
class scripted {
 public:
  enum class kind { posts, fails, throws };

  using executor_type = asio::io_context::executor_type;
  static constexpr auto wait_read = asio::socket_base::wait_read;
  static constexpr auto wait_write = asio::socket_base::wait_write;

  struct script {
    kind wait = kind::posts;
    int tries = 0;
    int waits = 0;
    int cancels = 0;
  };

  scripted(asio::io_context& context, script& s) : context_(&context), script_(&s) {}

  executor_type get_executor() const { return context_->get_executor(); }

  bool non_blocking() const { return true; }

  void non_blocking(bool, error_code&) {}

  template <class Buffers>
  std::size_t read_some(const Buffers&, error_code& error) {
    constexpr int most = 100;  // so that a loop is a failure, not a hang
    error = asio::error::would_block;
    if (++script_->tries > most) error = asio::error::eof;
    return 0;
  }

  template <class Handler>
  void async_wait(asio::socket_base::wait_type, Handler handler) {
    ++script_->waits;
    if (script_->wait == kind::throws) throw std::bad_alloc();
    error_code error;
    if (script_->wait == kind::fails) error = asio::error::operation_not_supported;
    asio::post(*context_, [error, handler = std::move(handler)]() mutable { handler(error); });
  }

  void cancel(error_code&) { ++script_->cancels; }

 private:
  asio::io_context* context_;
  script* script_;
};

// Whether the number of a runtime's sleeps stays the same for a tenth of a second, within
// ten seconds.
bool comes_to_rest(vigil::runtime& rt) {
  const auto end = std::chrono::steady_clock::now() + 10s;
  auto since = std::chrono::steady_clock::now();
  auto sleeps = rt.stats().kernel_waits;
  while (std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(10ms);  // a plain thread looks on, so that no fiber wakes a worker
    const auto present = rt.stats().kernel_waits;
    if (std::exchange(sleeps, present) != present) since = std::chrono::steady_clock::now();
    if (std::chrono::steady_clock::now() - since >= 100ms) return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("io: waiting for readiness") {
  TEST_CASE("after a read that timed out, an operation on the stream below finds none before it") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [near, far] = tcp_connection();
      for (int i = 0; i < rounds(100); ++i) {
        near.set_read_deadline(clock::now() + 20us);
        REQUIRE(read_one(near) == timed_out);
        far.write_some(asio::buffer("ab", 2));
        while (near.next_layer().available() != 2)
          vigil::this_fiber::yield();
        std::array<char, 8> bytes;
        const auto now = use_fiber.until(long_ago);
        const auto [error, n] =
            near.next_layer().async_read_some(asio::buffer(bytes), asio::as_tuple(now));
        REQUIRE_FALSE(error);
        REQUIRE(n == 2);
      }
    });
  }

  TEST_CASE("a deadline, its move, a stop and close end a read of an io_context that nobody runs") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::io_context own;
      own_pair p(own);
      for (int i = 0; i < 3; ++i) {
        const auto due = clock::now() + 1ms;
        p.near.set_read_deadline(due);
        CHECK(read_one(p.near) == timed_out);
        CHECK(clock::now() >= due);
      }
      p.near.set_read_deadline(no_deadline);
      const auto begin = [&] {
        auto reader = vigil::spawn([&] { return read_one(p.near); });
        vigil::sleep_for(1ms);
        return reader;
      };
      auto moved = begin();
      p.near.set_read_deadline(long_ago);
      CHECK(moved.join() == timed_out);
      p.near.set_read_deadline(no_deadline);
      auto stopped = begin();
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      auto closed = begin();
      auto writer = vigil::spawn([&] { return write_until_error(p.near); });
      p.near.close();
      const error_code one = closed.join();
      const error_code other = writer.join();
      const error_code bad = asio::error::bad_descriptor;
      CHECK((one == aborted || one == bad));
      CHECK((other == aborted || other == bad));
    });
  }

  TEST_CASE("a stream outlives its wait, and the wait its stream and its runtime") {
    asio::io_context own;
    in_runtime({.workers = {1, 2}}, [&] {
      for (int i = 0; i < rounds(100); ++i) {
        own_pair p(own);
        p.near.set_deadline(clock::now() + 10us);
        p.far.set_deadline(clock::now() + 10us);
        CHECK(read_one(p.near) == timed_out);
        CHECK(write_until_error(p.far) == timed_out);
        unix_stream moved(std::move(p.near));
        CHECK(read_one(moved) == timed_out);
        p.far = std::move(moved);
        CHECK(read_one(p.far) == timed_out);
      }
      auto abandoned = std::make_unique<own_pair>(own);
      vigil::go([p = std::move(abandoned)] { read_one(p->near); });  // the end stops it
      vigil::this_fiber::yield();
    });
    own.run();
  }

  TEST_CASE("an io_context that is destroyed ends the read, which leaves the stream alone") {
    in_runtime({.workers = {1}}, [] {
      auto own = std::make_unique<asio::io_context>();
      scripted::script s;
      vigil::io::deadline_stream<scripted> stream(*own, s);
      auto reader = vigil::spawn([&] { return read_one(stream); });
      while (s.waits == 0)
        vigil::this_fiber::yield();
      vigil::this_fiber::yield();  // on one worker: it waits by now
      own.reset();
      CHECK(reader.join() == aborted);
      CHECK(s.cancels == 0);
    });
  }

  TEST_CASE("a wait that fails is the error of the call, not a reason to try again") {
    in_runtime({.workers = {1}}, [] {
      scripted::script s;
      s.wait = scripted::kind::fails;
      vigil::io::deadline_stream<scripted> stream(vigil::io::io_context(), s);
      CHECK(read_one(stream) == asio::error::operation_not_supported);
      CHECK(s.waits == 1);
      s.wait = scripted::kind::posts;
      CHECK(read_one(stream) == asio::error::eof);
    });
  }

  TEST_CASE("a wait for which there is no memory leaves a stream that can wait") {
    in_runtime({.workers = {1}}, [] {
      scripted::script s;
      s.wait = scripted::kind::throws;
      vigil::io::deadline_stream<scripted> stream(vigil::io::io_context(), s);
      for (int i = 0; i < 2; ++i)
        CHECK_THROWS_AS(read_one(stream), std::bad_alloc);
      s.wait = scripted::kind::posts;
      CHECK(read_one(stream) == asio::error::eof);
    });
  }

  TEST_CASE("reads as long as what was sent, and others, lose nothing, in both directions") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [near, far] = tcp_connection();
      const int all = rounds(4000);
      const auto send = [all](tcp_stream& to, std::uint64_t seed) {
        seeded sizes(seed);
        unsigned char next = 0;
        for (int i = 0; i < all; ++i) {
          std::string bytes(1 + sizes.next() % 12, ' ');
          for (char& c : bytes)
            c = static_cast<char>(next++);
          write_all(to, bytes);
          for (auto pause = sizes.next() % 3; pause != 0; --pause)
            vigil::this_fiber::yield();
        }
        error_code ignored;
        to.close_write(ignored);
      };
      // The same sizes, except now and then.
      const auto receive = [](tcp_stream& from, std::uint64_t seed) {
        seeded sizes(seed);
        seeded others(seed + 1);
        unsigned char next = 0;
        std::array<char, 32> bytes;
        for (;;) {
          auto size = 1 + sizes.next() % 12;
          for (auto pause = sizes.next() % 3; pause != 0; --pause)
            vigil::this_fiber::yield();
          if (others.next() % 8 == 0) size = 1 + others.next() % bytes.size();
          error_code error;
          const std::size_t n = from.read_some(asio::buffer(bytes.data(), size), error);
          for (std::size_t i = 0; i < n; ++i)
            REQUIRE(static_cast<unsigned char>(bytes[i]) == next++);
          if (error == asio::error::eof) return next;
          REQUIRE_FALSE(error);
        }
      };
      auto one = vigil::spawn([&, &near = near] { send(near, 1); });
      auto other = vigil::spawn([&, &far = far] { send(far, 2); });
      auto reader = vigil::spawn([&, &near = near] { return receive(near, 2); });
      const auto sent = [all](std::uint64_t seed) {
        seeded sizes(seed);
        unsigned char n = 0;
        for (int i = 0; i < all; ++i) {
          n = static_cast<unsigned char>(n + 1 + sizes.next() % 12);
          sizes.next();
        }
        return n;
      };
      CHECK(receive(far, 1) == sent(1));
      CHECK(reader.join() == sent(2));
      one.join();
      other.join();
    });
  }

  TEST_CASE("bytes that come with the end are read before it") {
    over_each([](auto& near, auto& far) {
      write_all(far, "abc");
      error_code error;
      far.close_write(error);
      std::array<char, 3> bytes;
      CHECK(near.read_some(asio::buffer(bytes)) == 3);
      CHECK(read_one(near) == asio::error::eof);
      CHECK(read_one(near) == asio::error::eof);
    });
  }

  TEST_CASE("a read into nothing returns at once, whatever was read before") {
    over_each([](auto& near, auto& far) {
      const auto read_nothing = [&near = near] {
        error_code error = asio::error::eof;
        CHECK(near.read_some(asio::mutable_buffer(), error) == 0);
        CHECK_FALSE(error);
        std::vector<asio::mutable_buffer> empty(20);
        CHECK(near.read_some(empty, error) == 0);
        CHECK_FALSE(error);
      };
      read_nothing();
      write_all(far, "abc");
      CHECK_FALSE(read_one(near));  // there was room for more
      read_nothing();
      write_all(far, "d");
      CHECK_FALSE(read_one(near));
    });
  }

  TEST_CASE("any number of buffers can be read into, empty ones among them") {
    in_runtime({.workers = {1, 2}}, [] {
      auto [near, far] = tcp_connection();
      constexpr std::size_t many = 100;
      for (const std::size_t empty : {0u, 15u, 16u, 17u, 40u}) {
        std::string sent;
        for (std::size_t i = 0; i < many; ++i)
          sent += static_cast<char>('a' + i % 26);
        write_all(far, sent);
        std::string got(many, ' ');
        for (std::size_t done = 0; done < many;) {
          std::vector<asio::mutable_buffer> buffers(empty);
          for (std::size_t i = done; i < many; ++i)
            buffers.push_back(asio::buffer(&got[i], 1));
          const std::size_t n = near.read_some(buffers);
          REQUIRE(n != 0);
          done += n;
        }
        CHECK(got == sent);
      }
    });
  }

  TEST_CASE("a socket that is opened anew below is waited for, in whichever io_context") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      asio::io_context own;
      unix_stream s(own);
      for (int i = 0; i < rounds(100); ++i) {
        unix_socket peer(c);
        if (i % 4 == 0) {  // a wait whose handler never comes
          s.next_layer() = unix_socket(own);
        } else {
          s.next_layer() = unix_socket(c);
        }
        asio::local::connect_pair(s.next_layer(), peer);
        s.set_deadline(clock::now() + 20us);
        CHECK(read_one(s) == timed_out);
        if (i % 4 == 0) continue;
        s.set_deadline(no_deadline);
        auto reader = vigil::spawn([&] { return read_one(s); });
        vigil::this_fiber::yield();
        asio::write(peer, asio::buffer("x", 1));
        CHECK_FALSE(reader.join());
        s.next_layer().close();
      }
    });
  }

  TEST_CASE("a socket that is no TCP one keeps no descriptor that its peer sends along") {
    in_runtime({.workers = {1}}, [] {
      auto [near, far] = unix_connection();
      vigil::io::deadline_stream<asio::generic::stream_protocol::socket> generic(
          std::move(near.next_layer()));
      std::array<int, 2> ends{};
      REQUIRE(::pipe(ends.data()) == 0);
      char byte = 'x';
      iovec bytes{&byte, 1};
      alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
      msghdr message{};
      message.msg_iov = &bytes;
      message.msg_iovlen = 1;
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const sent = CMSG_FIRSTHDR(&message);
      sent->cmsg_level = SOL_SOCKET;
      sent->cmsg_type = SCM_RIGHTS;
      sent->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(sent), &ends[1], sizeof(int));
      REQUIRE(::sendmsg(far.next_layer().native_handle(), &message, 0) == 1);
      ::close(ends[1]);
      CHECK_FALSE(read_one(generic));
      pollfd end{ends[0], POLLIN, 0};
      ::poll(&end, 1, 0);
      CHECK((end.revents & POLLHUP) != 0);  // nobody has the other end
      ::close(ends[0]);
    });
  }

  TEST_CASE("deadlines that move often are kept, and a program that is idle again sleeps") {
    in_runtime({.workers = {1, 2}}, [](vigil::runtime& rt) {
      auto [near, far] = tcp_connection();
      auto echo = vigil::spawn([&far = far] {
        char byte = 0;
        error_code error;
        while (far.set_deadline(clock::now() + 1h),
               far.read_some(asio::buffer(&byte, 1), error) == 1)
          far.write_some(asio::buffer(&byte, 1));
      });
      const auto talk = [&near = near](int times) {
        for (int i = 0; i < times; ++i) {
          char byte = 'x';
          near.set_deadline(clock::now() + 2h);
          near.write_some(asio::buffer(&byte, 1));
          near.read_some(asio::buffer(&byte, 1));
        }
      };
      for (const auto d : {10us, 1000us, 3900us, 4000us, 4100us, 20'000us}) {
        talk(50);
        const auto due = clock::now() + d;
        near.set_read_deadline(due);
        CHECK(read_one(near) == timed_out);
        CHECK(clock::now() >= due);
      }
      talk(200);
      near.set_deadline(no_deadline);
      std::atomic<bool> rested{false};
      std::thread outside([&, &far = far] {
        rested.store(comes_to_rest(rt));
        ::send(far.next_layer().native_handle(), "x", 1, MSG_NOSIGNAL);
      });
      CHECK_FALSE(read_one(near));
      outside.join();
      CHECK(rested.load());
      near.close();
      echo.join();
    });
  }
}
