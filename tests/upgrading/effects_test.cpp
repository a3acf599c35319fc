// Changes of UPGRADING.md that a compiler does not see: the code before has the effect
// that the page states, the code after has it not.
#include <vigil/io/memory_stream.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <boost/asio/ssl/context.hpp>
#include <boost/system/system_error.hpp>
#include <doctest/doctest.h>

#include <signal.h>

using namespace std::chrono_literals;
namespace io = vigil::io;
using boost::asio::ssl::stream_base;

namespace {

namespace before {

//! [lock_before]
void append(std::mutex& guard, vigil::channel<int> rows) {
  const std::lock_guard held(guard);
  for (int row = 0; row < 5'000; ++row)
    rows.send(row);  // there is room, so none of them waits
}

//! [lock_before]

int serve_until_told() {
  //! [status_before]
  return vigil::run({.grace = 0s, .stop_on = {SIGTERM}}, [] {
    raise(SIGTERM);
    vigil::sleep_for(1h);
  });
  //! [status_before]
}

void greet(vigil::channel<std::string> lines) {
  //! [ref_before]
  std::string line = "hello";
  auto sending = vigil::on_send(lines, std::ref(line));
  line = "changed";
  vigil::select(std::move(sending));
  //! [ref_before]
  CHECK(line.empty());
}

void shake(io::tls_stream<io::memory_stream>& peer) {
  //! [tls_before]
  peer.handshake(stream_base::client);
  //! [tls_before]
}

}  // namespace before

namespace after {

//! [lock_after]
void append(vigil::mutex& guard, vigil::channel<int> rows) {
  const std::lock_guard held(guard);
  for (int row = 0; row < 5'000; ++row)
    rows.send(row);
}

//! [lock_after]

int serve_until_told() {
  //! [status_after]
  vigil::run({.grace = 0s, .stop_on = {SIGTERM}}, [] {
    raise(SIGTERM);
    vigil::sleep_for(1h);
  });
  return 0;
  //! [status_after]
}

void greet(vigil::channel<std::string> lines) {
  //! [ref_after]
  std::string line = "hello";
  auto sending = vigil::on_send(lines, line);  // copied at once
  line = "changed";
  vigil::select(std::move(sending));
  //! [ref_after]
  CHECK(line == "changed");
}

void shake(io::tls_stream<io::memory_stream>& peer) {
  //! [tls_after]
  peer.set_host("example.org");  // or peer.skip_verification()
  peer.handshake(stream_base::client);
  //! [tls_after]
}

bool stays(vigil::options options) {
  bool same = true;
  //! [main]
  options.pin_main = true;
  vigil::run(options, [&] {
    const auto window = std::this_thread::get_id();
    for (int frame = 0; frame < 100; ++frame) {
      vigil::sleep_for(100us);
      same = same && std::this_thread::get_id() == window;
    }
  });
  //! [main]
  return same;
}

}  // namespace after

// Whether another fiber runs between two sends of append().
template <class Mutex>
bool gives_its_worker_away(void (*append)(Mutex&, vigil::channel<int>)) {
  bool seen = false;
  vigil::testing::run_virtual([&] {
    Mutex guard;
    auto rows = vigil::make_channel<int>(5'000);
    auto appends = vigil::spawn([&] { append(guard, rows); });
    auto looks = vigil::spawn([&] {
      while (rows.size() < 5'000) {
        seen = seen || rows.size() > 0;
        vigil::this_fiber::yield();
      }
    });
    appends.join();
    looks.join();
  });
  return seen;
}

std::string greeting_by(void (*greet)(vigil::channel<std::string>)) {
  std::string said;
  vigil::testing::run_virtual([&] {
    auto lines = vigil::make_channel<std::string>(1);
    greet(lines);
    said = *lines.recv();
  });
  return said;
}

// The server is gone; no_host_name comes before that is seen.
bool needs_a_name(void (*shake)(io::tls_stream<io::memory_stream>&)) {
  bool needs = false;
  vigil::testing::run_virtual([&] {
    boost::asio::ssl::context tls(boost::asio::ssl::context::tls_client);
    auto [client, server] = io::memory_pipe();
    server.close();
    io::tls_stream<io::memory_stream> peer(tls, std::move(client));
    try {
      shake(peer);
    } catch (const boost::system::system_error& error) {
      needs = error.code() == io::tls_error::no_host_name;
    }
  });
  return needs;
}

TEST_SUITE("upgrading") {
  TEST_CASE("sends that need not wait give the worker away, whatever lock is held") {
    CHECK(gives_its_worker_away(before::append));
    CHECK(gives_its_worker_away(after::append));
  }

  TEST_CASE("a main function that a signal ended gives 128 + the signal") {
    CHECK(before::serve_until_told() == 128 + SIGTERM);
    CHECK(after::serve_until_told() == 0);
  }

  TEST_CASE("a case that sends a reference moves from it when it is taken") {
    CHECK(greeting_by(before::greet) == "changed");
    CHECK(greeting_by(after::greet) == "hello");
  }

  TEST_CASE("a client of TLS names its server") {
    CHECK(needs_a_name(before::shake));
    CHECK_FALSE(needs_a_name(after::shake));
  }

  TEST_CASE("a main fiber that is pinned stays on its thread") {
    CHECK(after::stays({.workers = 3}));
  }
}

}  // namespace
