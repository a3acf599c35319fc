// options::stuck_limit beside a handler that a sleeping worker runs in its watch: the
// worker counts as asleep all the while.
#include "core/sched/worker/scheduler.hpp"
#include "io/io_test.hpp"
#include "support/child.hpp"

#include <vigil/channel.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>

#include <boost/asio/steady_timer.hpp>

#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
namespace asio = boost::asio;

namespace {

constexpr const char* report = "is kept by a handler of its io_context";

// Whether the overseer looks for stuck workers. Caller: a worker.
bool is_looked_after() {
  return vigil::detail::current_scheduler()->idle().overseen.attends();
}

// Reads until the report has come, which is written to the other end.
void await_report(int from) {
  std::string seen;
  char text[512];
  while (seen.find(report) == std::string::npos) {
    const ssize_t n = ::read(from, text, sizeof text);
    if (n <= 0) std::abort();
    seen.append(text, static_cast<std::size_t>(n));
  }
}

}  // namespace

TEST_SUITE("a handler that does not return") {
  TEST_CASE("child: blocks the one worker in a handler" * doctest::skip()) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    vigil::options o;
    o.workers = 1;
    o.stuck_limit = 1s;  // the report comes once: not before the handler has it come
    vigil::runtime rt(o);
    const auto guard = rt.make_work_guard();
    // On a busy machine the one report may come before.
    const int terminal = ::dup(2);
    ::dup2(ends[1], 2);
    rt.run([&] {
      bool was_stuck = false;
      while (!was_stuck) {
        bool sleeps = true;
        auto over = vigil::make_channel<int>(1);
        asio::steady_timer t(vigil::io::io_context(), 1ms);
        t.async_wait([&](boost::system::error_code) {
          // Otherwise it tries again: a worker that gets up rings for the overseer.
          was_stuck = sleeps && is_looked_after();
          if (was_stuck) await_report(ends[0]);
          static_cast<void>(over.try_send(1));
        });
        vigil::sleep_for(3ms);  // due while the handler waits for the report
        sleeps = false;
        over.recv();
      }
    });
    ::dup2(terminal, 2);
    std::puts("over");
  }

  TEST_CASE("is reported to keep its worker if a timer is due, although all workers sleep") {
    const child_result child = run_child("child: blocks the one worker in a handler");
    CHECK_MESSAGE(child.succeeded(), child.output);
    CHECK(child.says("over"));
  }
}
