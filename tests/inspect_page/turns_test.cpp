// The turns of the page's fibers on their only worker: in none of them is a fiber of the
// program looked at, or more than one piece of an answer written.
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect_page/held_walk.hpp"
#include "inspect_page/page_client.hpp"
#include "inspect_page/page_http.hpp"
#include "support/note.hpp"

#include <vigil/io.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

#include <boost/asio/generic/stream_protocol.hpp>
#include <doctest/doctest.h>

#include <sys/socket.h>
#include <unistd.h>

using namespace vigil::testing_support;

namespace {

// The thread on which the fibers of the page run.
int page_thread() {
  int thread = 0;
  vigil::detail::for_each_running([&](const vigil::detail::scheduler& s, auto&) {
    if (s.settings().is_observer) thread = s.workers().front()->kernel_thread.load();
  });
  return thread;
}

// All that has come since the last call.
std::size_t arrived(const descriptor& at, bool& has_ended) {
  std::size_t sum = 0;
  char bytes[16384];
  for (;;) {
    const ssize_t n = ::recv(at.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (n == 0) has_ended = true;
    if (n <= 0) return sum;
    sum += static_cast<std::size_t>(n);
  }
}

}  // namespace

TEST_SUITE("live page's turns") {
  TEST_CASE("a walk over the fibers is not on the page's worker, which serves others meanwhile") {
    const auto page = local_page();
    vigil::run({.workers = 2}, [&] {
      held_walk& walk = walk_of_this_runtime();
      vigil::blocking([&] {
        for (const char* const target : {"/state.json", "/metrics"}) {
          NOTE("target: ", target);
          walk.hold();
          const descriptor looking = connect_to(page);
          send_text(looking, request("GET", target, "localhost"));
          const int thread = walk.wait_for_walk();
          CHECK(thread != page_thread());
          if (thread == page_thread()) walk.let_go();  // it would hold all that follows
          CHECK(get(page, "/").status == 200);
          CHECK(get(page, "/nothing").status == 404);
          walk.let_go();
          CHECK(answer_from(looking).status != 0);
        }
      });
    });
  }

  TEST_CASE("between two pieces of an answer other fibers come first") {
    using socket = boost::asio::generic::stream_protocol::socket;
    constexpr std::size_t piece = 64 * 1024;
    constexpr std::size_t size = 16 * piece;
    vigil::run({.workers = 1}, [&] {
      int ends[2];
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
      auto writer = vigil::spawn([end = ends[0]] {
        const boost::asio::generic::stream_protocol protocol(AF_UNIX, 0);
        vigil::detail::page_stream peer(socket(vigil::io::io_context(), protocol, end));
        vigil::detail::waiting_peers alone(1);
        vigil::detail::waiting_peers::member self(alone, end);
        vigil::detail::write_answer(
            peer, vigil::detail::text_answer(200, std::string(size, 'x')), false, self);
      });
      std::size_t sum = 0;
      std::size_t most_in_a_turn = 0;
      // The worker has no other fibers: the writer has one turn between two looks. Not
      // main, which may come later than its turn.
      vigil::spawn([&, end = ends[1]] {
        const descriptor peer(end);
        for (bool has_ended = false; !has_ended;) {
          const std::size_t n = arrived(peer, has_ended);
          sum += n;
          most_in_a_turn = std::max(most_in_a_turn, n);
          vigil::this_fiber::yield();
        }
      }).join();
      writer.join();
      CHECK(sum > size);  // with the head
      CHECK(most_in_a_turn <= piece + 1'024);
    });
  }
}
