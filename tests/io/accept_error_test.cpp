// io::serve when accept fails: which errors it retries, when, and which end it.
#include "io/serve_test.hpp"
#include "support/note.hpp"

#include <cerrno>
#include <deque>
#include <new>
#include <system_error>

#include <boost/asio/ip/tcp.hpp>

using namespace vigil::io_testing;

namespace {

using tcp = asio::ip::tcp;

// Fails as its list says, then accepts the connections that come.
class failing_acceptor {
 public:
  template <class Token>
  auto async_accept(Token&& token) {
    calls.push_back(vigil::clock::now());
    if (errors.empty()) return below.async_accept(std::forward<Token>(token));
    const int code = errors.front();
    errors.pop_front();
    if (code == no_memory) throw std::bad_alloc();
    if (throws_std) throw std::system_error(code, std::generic_category());
    return asio::async_initiate<Token, void(error_code, memory_stream)>(
        [code](auto handler) {
          std::move(handler)(error_code(code, boost::system::system_category()),
                             memory_stream(nullptr, nullptr));
        },
        token);
  }

  bool is_open() const { return below.is_open(); }

  static constexpr int no_memory = -1;

  bool throws_std = false;  // its errors are of the standard's type
  std::deque<int> errors;
  std::vector<vigil::clock::time_point> calls;
  memory_acceptor below;
};

// The waits between its calls.
std::vector<std::chrono::nanoseconds> waits_of(const failing_acceptor& a) {
  std::vector<std::chrono::nanoseconds> waits;
  for (std::size_t i = 1; i < a.calls.size(); ++i)
    waits.push_back(a.calls[i] - a.calls[i - 1]);
  return waits;
}

}  // namespace

TEST_SUITE("io::serve: errors of accept") {
  TEST_CASE("an error of the acceptor itself is thrown") {
    in_runtime({.workers = {1, 2}}, [] {
      tcp::acceptor a(vigil::io::io_context());
      CHECK(error_of([&] { serve(a, echo_bytes); }) == asio::error::bad_descriptor);
      a.open(tcp::v4());  // nobody listens
      CHECK(error_of([&] { serve(a, echo_bytes); }) == asio::error::invalid_argument);
    });
    for_each_seed(5, [] {
      failing_acceptor acceptor;
      acceptor.below.connect();
      memory_stream s = acceptor.below.connect();
      int served = 0;
      auto server = vigil::spawn([&] {
        return error_of([&] {
          serve(acceptor, [&](memory_stream peer) {
            ++served;
            while (read_byte(peer)) {
            }
          });
        });
      });
      vigil::sleep_for(1s);
      CHECK(served == 2);
      acceptor.errors = {ENOTSOCK};
      acceptor.below.connect();  // ends the pending accept
      const auto start = vigil::clock::now();
      const error_code error = server.join();
      CHECK(error.value() == ENOTSOCK);
      CHECK(since(start) == 10s);  // the connections being served had the grace
    });
  }

  TEST_CASE("a passing error is forgotten, a lasting one ends it at once, of either type") {
    const auto error_after = [](std::deque<int> codes, bool throws_std) {
      int error = 0;
      in_virtual([&] {
        failing_acceptor acceptor;
        acceptor.errors = std::move(codes);
        acceptor.throws_std = throws_std;
        memory_stream s = acceptor.below.connect();
        write_byte(s);
        auto server = vigil::spawn([&] {
          try {
            serve(acceptor, echo_bytes, {.grace = 0s});
          } catch (const boost::system::system_error& e) {
            error = e.code().value();
          } catch (const std::system_error& e) {
            error = e.code().value();
          }
        });
        vigil::sleep_for(1s);
        acceptor.below.close();
        server.join();
        CHECK(acceptor.errors.empty() == (error == 0));
        CHECK(read_byte(s) == (error == 0));
      });
      return error;
    };
    for (const bool throws_std : {false, true}) {
      NOTE("throws_std: ", throws_std);
      for (const int code : {ECONNABORTED,
                             ECONNRESET,
                             EINTR,
                             EPERM,
                             EPROTO,
                             ENOPROTOOPT,
                             ENETDOWN,
                             ENETUNREACH,
                             EHOSTDOWN,
                             EHOSTUNREACH,
                             ENONET,
                             ETIMEDOUT,
                             EMFILE,
                             ENFILE,
                             ENOBUFS,
                             ENOMEM,
                             ENOSPC}) {
        NOTE("code: ", code);
        CHECK(error_after({code}, throws_std) == 0);
      }
      // After such an error accept is not called again.
      for (const int code : {EBADF, EINVAL, ENOTSOCK, EOPNOTSUPP, EFAULT, EACCES}) {
        NOTE("code: ", code);
        CHECK(error_after({code, EMFILE}, throws_std) == code);
      }
    }
  }

  TEST_CASE("without descriptors or memory it backs off, doubling up to a second, never spins") {
    for_each_seed(3, [] {
      failing_acceptor acceptor;
      for (int i = 0; i < 2; ++i) {
        for (const int code : {EMFILE, ENFILE, ENOBUFS, ENOMEM, failing_acceptor::no_memory})
          acceptor.errors.push_back(code);
      }
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, echo_bytes, {.grace = 0s}); });
      vigil::sleep_for(1h);
      CHECK(waits_of(acceptor) == std::vector<std::chrono::nanoseconds>{
                                      5ms, 10ms, 20ms, 40ms, 80ms, 160ms, 320ms, 640ms, 1s, 1s});
      // A success resets the back-off, and nothing was lost.
      acceptor.errors = {EMFILE, EMFILE};
      acceptor.calls.clear();
      memory_stream s = acceptor.below.connect();
      write_byte(s);
      CHECK(read_byte(s));
      vigil::sleep_for(1h);
      CHECK(waits_of(acceptor) == std::vector<std::chrono::nanoseconds>{5ms, 10ms});
      // Stopping ends the wait.
      acceptor.errors = {EMFILE};
      acceptor.below.connect();
      acceptor.below.connect();
      vigil::testing::settle();
      const auto start = vigil::clock::now();
      stopping.cancel();
      server.join();
      CHECK(since(start) == 0s);
    });
  }

  TEST_CASE("a connection that is gone before it is accepted is forgotten, at once") {
    for_each_seed(3, [] {
      failing_acceptor acceptor;
      acceptor.errors = {ECONNABORTED, EINTR, EPROTO, ENETDOWN, ECONNABORTED};
      memory_stream s = acceptor.below.connect();
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, echo_bytes); });
      const auto start = vigil::clock::now();
      write_byte(s);
      CHECK(read_byte(s));
      CHECK(since(start) == 0s);
      // If it retries without end it backs off, too.
      acceptor.calls.clear();
      acceptor.errors.assign(1000, ECONNABORTED);
      acceptor.below.connect();
      vigil::sleep_for(10s);
      CHECK(acceptor.calls.size() < 40);
      stopping.cancel();
      server.join();
    });
  }

  TEST_CASE("if no fiber can be had the connection is closed, and the next one waits") {
    vigil::options o;
    o.max_fibers = 4;  // main, server, two connections
    in_virtual({.seed = 1, .runtime = o}, [] {
      memory_acceptor acceptor;
      const auto stopping = vigil::with_cancel(vigil::background());
      auto server = vigil::spawn([&] { serve(stopping.ctx, acceptor, echo_bytes); });
      {
        memory_stream one = acceptor.connect();
        memory_stream two = acceptor.connect();
        memory_stream refused = acceptor.connect();
        CHECK_FALSE(read_byte(refused));
      }
      memory_stream later = acceptor.connect();
      const auto start = vigil::clock::now();
      write_byte(later);
      CHECK(read_byte(later));
      CHECK(since(start) == 5ms);
      stopping.cancel();
      server.request_stop();
      CHECK_THROWS_AS(server.join(), vigil::cancelled);
    });
  }
}
