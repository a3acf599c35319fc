// System calls that fail, one after the other: each error is reported to the fiber that
// waits for that operation, or recovered from; nothing hangs, is lost or spins.
#include "io/faults.hpp"

#include "io/io_test.hpp"
#include "support/note.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/serve.hpp>

#include <algorithm>
#include <array>
#include <cerrno>

#include <boost/asio/connect_pipe.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/readable_pipe.hpp>
#include <boost/asio/writable_pipe.hpp>

using namespace vigil::io_testing;
using vigil::fault::call;

namespace {

using tcp = asio::ip::tcp;
using tcp_stream = vigil::io::deadline_stream<tcp::socket>;

// The effects of an injected error.
struct effects {
  int error = 0;   // the injected one
  int told = 0;    // operations that ended with it
  int broken = 0;  // ... that ended because their connection had been given up
  int tries = 0;

  void count(const error_code& code) {
    const bool is_it = code.category() == boost::system::system_category() && code.value() == error;
    ++(is_it ? told : broken);
  }

  // Retries a failed call, as a program would.
  template <class F>
  auto attempt(F f) {
    for (int left = 3;; --left) {
      try {
        ++tries;
        return f();
      } catch (const boost::system::system_error& e) {
        count(e.code());
        if (left == 1) throw;
      }
    }
  }
};

// Asio does not check whether its epoll_ctl(MOD) for a connect has failed. Then nobody
// hears that the connection is there, and the deadline ends the wait.
bool connects_are_lost = false;

void connect(tcp::socket& s, const tcp::endpoint& server) {
  if (!connects_are_lost) {
    s.async_connect(server, use_fiber);
    return;
  }
  error_code error;
  do {
    s.close();
    s.async_connect(server, asio::redirect_error(use_fiber.within(20ms), error));
  } while (error == asio::error::timed_out);
  if (error) throw boost::system::system_error(error);
}

// Two pieces there, two pieces back, by each kind of call.
void talk(const tcp::endpoint& server) {
  tcp::socket s(vigil::io::io_context());
  connect(s, server);
  // A caller of native_handle() may have duplicated the descriptor, so Asio itself takes
  // it out of epoll at its close.
  REQUIRE(s.native_handle() >= 0);
  s.set_option(tcp::no_delay(true));
  std::array<char, 2> one{'a', 'b'};
  std::array<char, 2> other{'c', 'd'};
  const std::array<asio::mutable_buffer, 2> both{asio::buffer(one), asio::buffer(other)};
  asio::async_write(s, asio::buffer(one), use_fiber);
  asio::async_read(s, asio::buffer(one), use_fiber);
  asio::async_write(s, both, use_fiber);
  asio::async_read(s, both, use_fiber);
  REQUIRE(one == std::array<char, 2>{'a', 'b'});
  REQUIRE(other == std::array<char, 2>{'c', 'd'});
}

void talk_with_deadlines(const tcp::endpoint& server) {
  tcp_stream s(vigil::io::io_context());
  connect(s.next_layer(), server);
  s.set_deadline(vigil::clock::now() + 1h);
  std::string text = "some text";
  asio::write(s, asio::buffer(text));
  std::string back(text.size(), ' ');
  asio::read(s, asio::buffer(back));
  REQUIRE(back == text);
}

void through_a_pipe() {
  auto& c = vigil::io::io_context();
  asio::readable_pipe r(c);
  asio::writable_pipe w(c);
  asio::connect_pipe(r, w);
  std::array<char, 2> one{'a', 'b'};
  std::array<char, 2> other{'c', 'd'};
  const std::array<asio::mutable_buffer, 2> both{asio::buffer(one), asio::buffer(other)};
  auto reader = vigil::spawn([&] {
    asio::async_read(r, both, use_fiber);
    return asio::async_read(r, asio::buffer(one), use_fiber);
  });
  vigil::this_fiber::yield();
  asio::async_write(w, both, use_fiber);
  asio::async_write(w, asio::buffer(other), use_fiber);
  const std::size_t last = reader.join();
  REQUIRE(last == 2);
  REQUIRE(one == other);
}

// A write that has to wait until the other end has read some of it.
void a_long_write() {
  socket_pair pair(vigil::io::io_context());
  const std::string more_than_fits(1'000'000, 'x');
  std::string there(more_than_fits.size(), ' ');
  auto reader = vigil::spawn([&] {
    unix_socket far(std::move(pair.far));  // closed if the read fails
    return error_of([&] { asio::async_read(far, asio::buffer(there), use_fiber); });
  });
  error_code error =
      error_of([&] { asio::async_write(pair.near, asio::buffer(more_than_fits), use_fiber); });
  pair.near.close();
  // One of the two ends reports the error, the other that its peer is gone.
  const error_code read = reader.join();
  if (read && read != asio::error::eof) error = read;
  if (error) throw boost::system::system_error(error);
  REQUIRE(there == more_than_fits);
}

// A server, its clients, a pipe and sleeps.
void program(effects& seen) {
  in_runtime({.workers = {1}}, [&] {
    seen.attempt([] { vigil::io::io_context(); });
    auto acceptor = seen.attempt([] {
      return tcp::acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
    });
    const auto stopping = vigil::with_cancel(vigil::background());
    auto server = vigil::spawn([&] {
      vigil::io::serve(stopping.ctx, acceptor, [&](tcp::socket peer) {
        peer.set_option(tcp::no_delay(true));
        std::array<char, 3> bytes;
        std::array<char, 3> more;
        const std::array<asio::mutable_buffer, 2> room{asio::buffer(bytes), asio::buffer(more)};
        for (;;) {
          error_code error;
          const std::size_t n = peer.async_read_some(room, asio::redirect_error(use_fiber, error));
          if (error == asio::error::eof) return;
          const std::size_t in_first = std::min(n, bytes.size());
          const std::array<asio::const_buffer, 2> back{asio::buffer(bytes, in_first),
                                                       asio::buffer(more, n - in_first)};
          if (!error) asio::async_write(peer, back, asio::redirect_error(use_fiber, error));
          if (error) {
            seen.count(error);
            return;
          }
        }
      });
    });
    const auto where = acceptor.local_endpoint();
    seen.attempt([&] { talk(where); });
    vigil::sleep_for(50us);
    seen.attempt([&] { talk_with_deadlines(where); });
    seen.attempt([] { through_a_pipe(); });
    seen.attempt([] { a_long_write(); });
    vigil::sleep_for(50us);
    stopping.cancel();
    server.join();
  });
}

constexpr int all_calls = static_cast<int>(call::count);

std::vector<long> calls_made() {
  std::vector<long> n;
  for (int c = 0; c < all_calls; ++c)
    n.push_back(vigil::fault::calls(static_cast<call>(c)));
  return n;
}

// The calls that Asio or vigil-io repeats after a signal has interrupted them.
bool is_repeated(call c) {
  switch (c) {
    case call::socket:
    case call::connect:
    case call::epoll_create:
    case call::epoll_add:
    case call::epoll_mod:
    case call::timerfd_create:
    case call::eventfd:
      return false;
    default:
      return true;
  }
}

}  // namespace

TEST_SUITE("io: system calls that fail") {
  // Node, libuv: a signal does not fail a blocking call (eintr_handling).
  TEST_CASE("at each call in turn: one operation reports it, or none, and the rest goes on") {
    effects none;
    vigil::fault::start();
    program(none);
    vigil::fault::stop();
    REQUIRE(none.told + none.broken == 0);
    const std::vector<long> usual = calls_made();
    for (const int error : {EMFILE, ENOMEM, EINTR}) {
      for (int c = 0; c < all_calls; ++c) {
        const auto which = static_cast<call>(c);
        const long step = rounds(20) == 20 ? 1 : 7;
        CHECK(usual[static_cast<std::size_t>(c)] > 0);
        for (long nth = 1; nth <= usual[static_cast<std::size_t>(c)]; nth += step) {
          NOTE(std::string(vigil::fault::name_of(which)), ", call ", nth, ", errno ", error);
          effects seen;
          seen.error = error;
          connects_are_lost = which == call::epoll_mod;
          vigil::fault::start(which, nth, error);
          program(seen);
          vigil::fault::stop();
          REQUIRE(seen.told <= 1);
          REQUIRE(seen.broken <= 2);  // the one at the other end, and the one it had begun
          if (error == EINTR && is_repeated(which)) REQUIRE(seen.told + seen.broken == 0);
          if (which == call::epoll_del) REQUIRE(seen.told + seen.broken == 0);  // closed
          const std::vector<long> made = calls_made();
          for (std::size_t k = 0; k < made.size(); ++k)
            REQUIRE(made[k] <= 10 * usual[k] + 100);
        }
      }
    }
  }

  TEST_CASE("as long as there are no descriptors serve retries now and then, and loses no client") {
    for (const int error : {EMFILE, ENFILE, ENOMEM, ENOBUFS}) {
      in_runtime({.workers = {1, 2}}, [&] {
        tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
        const auto stopping = vigil::with_cancel(vigil::background());
        vigil::fault::start(call::accept, 1, error, 1'000'000);
        const auto start = vigil::clock::now();
        auto server = vigil::spawn([&] {
          vigil::io::serve(stopping.ctx, acceptor, [](tcp::socket peer) {
            asio::async_write(peer, asio::buffer("x", 1), use_fiber);
          });
        });
        tcp::socket s(vigil::io::io_context());
        s.async_connect(acceptor.local_endpoint(), use_fiber);
        while (vigil::fault::calls(call::accept) == 0)
          vigil::sleep_for(100us);
        const long waits_before = vigil::fault::calls(call::epoll_wait);
        vigil::sleep_for(30ms);
        const long looks = vigil::fault::calls(call::accept);
        const long waits = vigil::fault::calls(call::epoll_wait) - waits_before;
        CHECK(looks >= 1);
        CHECK(looks <= since(start) / 5ms + 2);
        CHECK(waits <= 20 * looks + 100);
        vigil::fault::stop();  // one is free again
        char byte = 0;
        CHECK(asio::async_read(s, asio::buffer(&byte, 1), use_fiber) == 1);
        stopping.cancel();
        server.join();
      });
    }
  }

  TEST_CASE("a timeout of TCP itself is reported as such, with and without an idle list") {
    for (const bool with_list : {false, true}) {
      in_runtime({.workers = {1}}, [with_list] {
        using stream = vigil::io::deadline_stream<unix_socket>;
        stream near(vigil::io::io_context());
        stream far(vigil::io::io_context());
        asio::local::connect_pair(near.next_layer(), far.next_layer());
        vigil::io::idle_list idle(1h);
        if (with_list) near.set_idle_list(idle);
        std::array<char, 8> bytes;
        error_code error;
        asio::write(far, asio::buffer("ab", 2));
        CHECK(near.read_some(asio::buffer(bytes), error) == 2);  // all there was: no try next
        far.close();
        vigil::fault::start(call::recv, 1, ETIMEDOUT);
        near.read_some(asio::buffer(bytes), error);
        vigil::fault::stop();
        CHECK(error == asio::error::timed_out);
        near.read_some(asio::buffer(bytes), error);
        CHECK(error == asio::error::eof);
      });
    }
  }

  TEST_CASE("a connection that is gone when it is accepted does not hide the one behind it") {
    for (const int error : {ECONNABORTED, EPROTO}) {
      in_runtime({.workers = {1, 2}}, [&] {
        tcp::acceptor acceptor(vigil::io::io_context(), {asio::ip::address_v4::loopback(), 0});
        tcp::socket s(vigil::io::io_context());
        s.async_connect(acceptor.local_endpoint(), use_fiber);
        const auto stopping = vigil::with_cancel(vigil::background());
        vigil::fault::start(call::accept, 1, error);
        auto server = vigil::spawn([&] {
          vigil::io::serve(stopping.ctx, acceptor, [](tcp::socket peer) {
            asio::async_write(peer, asio::buffer("x", 1), use_fiber);
          });
        });
        char byte = 0;
        CHECK(asio::async_read(s, asio::buffer(&byte, 1), use_fiber) == 1);
        vigil::fault::stop();
        stopping.cancel();
        server.join();
      });
    }
  }
}

TEST_SUITE("io: number of system calls") {
  TEST_CASE("a stream whose last read took all is not tried before the next one waits") {
    in_runtime({.workers = {1}}, [] {
      using unix_stream = vigil::io::deadline_stream<unix_socket>;
      unix_stream near(vigil::io::io_context());
      unix_stream far(vigil::io::io_context());
      asio::local::connect_pair(near.next_layer(), far.next_layer());
      const auto reads = [] {
        using vigil::fault::calls;
        return calls(call::recv) + calls(call::recvmsg) + calls(call::read) + calls(call::readv);
      };
      constexpr long trips = 100;
      std::array<char, 64> bytes;
      const auto take = [&](unix_stream& from) { return from.read_some(asio::buffer(bytes)); };
      auto echo = vigil::spawn([&] {
        for (long i = 0; i < trips; ++i) {
          const std::size_t n = far.read_some(asio::buffer(bytes.data() + 32, 32));
          far.write_some(asio::buffer(bytes.data() + 32, n));
        }
      });
      vigil::fault::start();
      for (long i = 0; i < trips; ++i) {
        near.write_some(asio::buffer("x", 1));
        near.read_some(asio::buffer(bytes.data(), 32));
      }
      echo.join();
      // Asio's own look, and the read; the first look of each side is tried.
      CHECK(reads() <= 2 * 2 * trips + 4);

      // Where more may have come it is tried, and found without a wait.
      far.write_some(asio::buffer("abcdefgh", 8));
      CHECK(take(near) == 8);
      far.write_some(asio::buffer("abcdefgh", 8));
      char byte = 0;
      CHECK(near.read_some(asio::buffer(&byte, 1)) == 1);
      vigil::fault::start();
      for (int i = 1; i < 8; ++i)
        CHECK(near.read_some(asio::buffer(&byte, 1)) == 1);
      CHECK(byte == 'h');
      CHECK(reads() == 7);
      vigil::fault::stop();
    });
  }
}
