// Code that the tree before 0.2.0 took, as UPGRADING.md shows it. Each region does not
// compile any more: the line before it says on how many of its lines there is an error
// (-: clang++ names none), and what an error of each of them says. after.cpp has the same
// functions as they are now.
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
  // errors: 5  no matching
  //! [contexts]
  permits.acquire(ctx, 2);
  vigil::scoped_permit held(permits, ctx, 2);
  ready.arrive_and_wait(ctx, 1);
  limiter.wait(ctx, 3);
  page index = pages.call(ctx, "/", load);
  //! [contexts]
}

void permits_in_time(vigil::semaphore& permits) {
  // errors: 2  no member named .acquire_(for|until).
  //! [permits]
  if (!permits.acquire_for(1s)) return;
  if (!permits.acquire_until(vigil::clock::now() + 1s, 3)) return;
  //! [permits]
}

void sockets() {
  // errors: 2  'context'
  //! [io_context]
  tcp::socket socket(vigil::io::context());
  tcp::acceptor acceptor(vigil::io::context(), tcp::endpoint(tcp::v4(), 8080));
  //! [io_context]
}

void elements(vigil::channel<std::string> lines, vigil::channel<int> numbers) {
  // errors: 2  no matching
  //! [elements]
  auto receive = vigil::on_recv<std::string>(lines, handle);
  auto send = vigil::on_send<int>(numbers, 7);
  //! [elements]
}

void cases(vigil::channel<std::string> lines, vigil::case_list& all) {
  // errors: 1  a temporary would be gone
  //! [cases]
  all.add(vigil::on_send(lines, std::string("hello")));
  //! [cases]
}

void wakeups() {
  // errors: 1  no member named .wakeups_per_second.
  //! [wakeups]
  vigil::options options;
  options.wakeups_per_second = 4;
  vigil::timer refresh = vigil::every(30s, [] { load(); });
  //! [wakeups]
}

void few() {
  // errors: 1  from 'int' to
  //! [few]
  vigil::options few{3};
  //! [few]
}

void signals(const vigil::options& options) {
  // errors: 2  conversion from
  //! [signals]
  std::vector<int> ending = options.stop_on;
  std::chrono::nanoseconds grace = options.grace;
  //! [signals]
}

void delays() {
  // errors: 1  'lateness_histogram'
  //! [delays]
  vigil::lateness_histogram lateness = vigil::stats().lateness;
  //! [delays]
}

void leaks() {
  // errors: 1  no member named .text.
  //! [leaks]
  for (const auto& fiber : vigil::inspect::find_stuck_fibers().certain)
    std::puts(fiber.text.c_str());
  //! [leaks]
}

// errors: -  write asio::awaitable<T>
//! [awaitable]
using executor = boost::asio::io_context::executor_type;

boost::asio::awaitable<int, executor> answer() {
  co_return 42;
}

int ask(boost::asio::io_context& io) {
  return boost::asio::co_spawn(io, answer(), use_fiber);
}

//! [awaitable]

}  // namespace

// errors: 1  reference to 'scoped_timer' is ambiguous
//! [declared]
namespace vigil {
class scoped_timer;
}

void keep(vigil::scoped_timer& timer);
//! [declared]
