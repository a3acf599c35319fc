// exit_when::all_done, and handlers of Asio's that are still to come.
#include "io/io_test.hpp"

#include <vigil/io/executor.hpp>

#include <memory>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/steady_timer.hpp>

using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

// Returns whether a handler that is due in 5 ms runs when the main fiber waits for
// nothing.
template <class Start>
bool runs_before_the_end(Start start) {
  vigil::options o;
  o.workers = 2;
  o.exit = vigil::exit_when::all_done;
  bool ran = false;
  vigil::run(o, [&] {
    const auto t = std::make_shared<asio::steady_timer>(vigil::io::io_context(), 5ms);
    start(t, [t, &ran] { ran = true; });
  });
  return ran;
}

}  // namespace

TEST_SUITE("all_done with handlers of Asio's") {
  TEST_CASE("one that holds a work_guard holds the program until it has run") {
    CHECK(runs_before_the_end([](const auto& t, auto mark) {
      t->async_wait([mark, guard = vigil::runtime::current().make_work_guard()](auto) { mark(); });
    }));
  }

  TEST_CASE("one that is bound to io::executor() holds the program by itself") {
    CHECK(runs_before_the_end([](const auto& t, auto mark) {
      t->async_wait(asio::bind_executor(vigil::io::executor(), [mark](auto) { mark(); }));
    }));
  }
}
