// Exceptions that leave handlers of the io_context, which workers run on their own
// stacks.
#include "io/io_test.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/planted_throw.hpp"

#include <vigil/io/executor.hpp>

#include <atomic>
#include <exception>
#include <stdexcept>
#include <string>

#include <boost/asio/post.hpp>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
namespace asio = boost::asio;

namespace {

// Posts the handler so that an idle worker takes it, or one that polls between two
// fibers.
void post_to_worker(bool busy, void (*handler)()) {
  asio::post(vigil::io::io_context(), handler);
  if (!busy) vigil::sleep_for(1h);
  for (;;)
    vigil::this_fiber::yield();
}

std::atomic<int> errors_of_handlers{0};

void run_with(std::size_t workers, void (*on_unhandled)(std::exception_ptr), void (*body)()) {
  vigil::options o;
  o.workers = workers;
  o.on_unhandled = on_unhandled;
  vigil::run(o, body);
}

}  // namespace

TEST_SUITE("exception of an Asio handler") {
  TEST_CASE("a worker hands it to on_unhandled, and the handlers behind it run") {
    errors_of_handlers.store(0);
    for (const std::size_t workers : {1u, 2u}) {
      run_with(
          workers,
          [](std::exception_ptr e) {
            CHECK_THROWS_WITH_AS(std::rethrow_exception(e), "planted", std::runtime_error);
            errors_of_handlers.fetch_add(1);
          },
          [] {
            const int before = errors_of_handlers.load();
            auto done = vigil::make_channel<void>(1);
            const auto guard = vigil::runtime::current().make_work_guard();
            for (int i = 0; i < 3; ++i)
              asio::post(vigil::io::io_context(), [] { throw_planted(); });
            asio::post(vigil::io::io_context(), [done] { CHECK(done.try_send()); });
            done.recv();
            vigil::sleep_for(1ms);
            // Polled, between the turns of a fiber that never waits.
            asio::post(vigil::io::io_context(), [] { throw_planted(); });
            while (errors_of_handlers.load() != before + 4)
              vigil::this_fiber::yield();
          });
    }
    CHECK(errors_of_handlers.load() == 8);
  }

  TEST_CASE("child: a handler throws" * doctest::skip()) {
    std::set_terminate(&say_what_is_left);
    try {
      run_with(std::getenv("VIGIL_TEST_TWO") != nullptr ? 2 : 1, nullptr, [] {
        post_to_worker(std::getenv("VIGIL_TEST_BUSY") != nullptr, [] { throw_planted(); });
      });
    } catch (const std::exception&) {  // not reached: run() does not throw it
      std::puts("came out of run()");
    }
  }

  TEST_CASE("without on_unhandled it ends the program on the stack of the throw") {
    using environment = std::vector<std::pair<const char*, const char*>>;
    for (const environment& how : {environment{},
                                   environment{{"VIGIL_TEST_TWO", "1"}},
                                   environment{{"VIGIL_TEST_BUSY", "1"}}}) {
      const child_result r = run_child("child: a handler throws", how);
      CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
      CHECK_MESSAGE(r.says("an exception has left a handler of the io_context, run by a worker"),
                    r.output);
      CHECK_MESSAGE(r.says("planted"), r.output);
      CHECK_MESSAGE(r.says("the throw's stack is there, its destructors have not run"), r.output);
    }
  }

  TEST_CASE("child: on_unhandled throws given an exception of a handler" * doctest::skip()) {
    run_with(
        1,
        [](std::exception_ptr) { throw std::logic_error("of the program's"); },
        [] { post_to_worker(false, [] { throw_planted(); }); });
  }

  TEST_CASE("an on_unhandled that throws ends the program with a message that names it") {
    const child_result r = run_child("child: on_unhandled throws given an exception of a handler");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK_MESSAGE(r.says("options::on_unhandled, which was given what has left a handler"),
                  r.output);
    CHECK_MESSAGE(r.says("itself: of the program's"), r.output);
  }

  TEST_CASE("child: a handler of the executor throws" * doctest::skip()) {
    run_with(2, nullptr, [] {
      asio::post(vigil::io::executor(), [] { throw_planted(); });
      vigil::sleep_for(1h);
    });
  }

  TEST_CASE("a handler of io::executor() is named as such, and not by a line of the library") {
    const child_result r = run_child("child: a handler of the executor throws");
    CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
    CHECK_MESSAGE(r.says("vigil::io::executor(), as a handler of it)"), r.output);
    CHECK_MESSAGE(r.output.find("executor.cpp") == std::string::npos, r.output);
  }
}
