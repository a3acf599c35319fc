// The code of before.cpp as it is now, for UPGRADING.md. It is compiled, and not run.
#include <vigil/fwd.hpp>
#include <vigil/io.hpp>
#include <vigil/leaks.hpp>
#include <vigil/rate_limiter.hpp>
#include <vigil/single_flight.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include <signal.h>

using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using vigil::io::use_fiber;

namespace {

struct page {};

page load();
void handle(std::optional<std::string> line);

void contexts(const vigil::context& ctx,
              vigil::semaphore& permits,
              vigil::latch& ready,
              vigil::rate_limiter& limiter,
              vigil::single_flight<std::string, page>& pages) {
  //! [contexts]
  permits.acquire(2, ctx);
  vigil::scoped_permit held(permits, 2, ctx);
  ready.arrive_and_wait(1, ctx);
  limiter.wait(3, ctx);
  page index = pages.call("/", ctx, load);
  //! [contexts]
}

void permits_in_time(vigil::semaphore& permits) {
  //! [permits]
  if (!permits.try_acquire_for(1s)) return;
  if (!permits.try_acquire_until(vigil::clock::now() + 1s, 3)) return;
  //! [permits]
}

void sockets() {
  //! [io_context]
  tcp::socket socket(vigil::io::io_context());
  tcp::acceptor acceptor(vigil::io::io_context(), tcp::endpoint(tcp::v4(), 8080));
  //! [io_context]
}

void elements(vigil::channel<std::string> lines, vigil::channel<int> numbers) {
  //! [elements]
  auto receive = vigil::on_recv(lines, handle);
  auto send = vigil::on_send(numbers, 7);
  //! [elements]
}

void cases(vigil::channel<std::string> lines, vigil::case_list& all) {
  //! [cases]
  const std::string greeting = "hello";
  all.add(vigil::on_send(lines, greeting));  // copies it
  //! [cases]
}

void wakeups() {
  //! [wakeups]
  vigil::options options;
  vigil::timer refresh = vigil::every(30s, [] { load(); });
  refresh.set_slack(250ms);
  //! [wakeups]
}

void few() {
  //! [few]
  vigil::options few{.workers = 3};
  //! [few]
}

void signals(const vigil::options& options) {
  //! [signals]
  std::vector<int> ending(options.stop_on.begin(), options.stop_on.end());
  std::chrono::nanoseconds grace = options.grace.value_or(0s);
  //! [signals]
}

void delays() {
  //! [delays]
  vigil::delay_histogram lateness = vigil::stats().lateness;
  //! [delays]
}

void leaks() {
  //! [leaks]
  std::puts(vigil::inspect::find_stuck_fibers().text.c_str());
  //! [leaks]
}

//! [awaitable]
boost::asio::awaitable<int> answer() {
  co_return 42;
}

int ask(boost::asio::io_context& io) {
  return boost::asio::co_spawn(io, answer(), use_fiber);
}

//! [awaitable]

}  // namespace

//! [declared]
// #include <vigil/fwd.hpp>
void keep(vigil::scoped_timer& timer);
//! [declared]
