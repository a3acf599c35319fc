// A runtime in a program that has its own io_context, handlers, signals and threads.
#include "io/io_test.hpp"
#include "support/at_rest.hpp"
#include "support/send_to_process.hpp"

#include <vigil/context.hpp>

#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include <signal.h>

using namespace vigil::io_testing;

namespace {

vigil::options waits_in(asio::io_context& c, unsigned workers = 2) {
  vigil::options o;
  o.workers = workers;
  vigil::io::attach(o, c);
  return o;
}

void send_a_byte(asio::io_context& c) {
  socket_pair s(c);
  auto reader = vigil::spawn([&] {
    char byte = 0;
    asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
    return byte;
  });
  asio::async_write(s.far, asio::buffer("x", 1), use_fiber);
  CHECK(reader.join() == 'x');
}

}  // namespace

TEST_SUITE("io: in an existing program") {
  TEST_CASE("the program's threads come back from run() once the run has ended") {
    asio::io_context context;
    vigil::runtime rt(waits_in(context));
    for (int run = 0; run < 3; ++run) {
      std::thread mine;
      rt.run([&] {
        mine = std::thread([&] { context.run(); });
        send_a_byte(context);
      });
      mine.join();
    }
  }

  TEST_CASE("a thread that began before the first run stays until that has ended") {
    asio::io_context context;
    vigil::runtime rt(waits_in(context));
    std::thread mine([&] { context.run(); });
    rt.run([&] { send_a_byte(context); });
    mine.join();
  }

  TEST_CASE("after the run, run() on the program's thread ends with the program's own work") {
    asio::io_context context;
    vigil::runtime rt(waits_in(context));
    bool has_fired = false;
    asio::steady_timer t(context, 10ms);
    t.async_wait([&](const error_code&) { has_fired = true; });
    rt.run([&] { send_a_byte(context); });
    context.run();
    CHECK(has_fired);
    rt.run([&] { send_a_byte(context); });  // it had run out of work
  }

  TEST_CASE("one that was stopped in a run stays stopped in the next until io::restart") {
    asio::io_context context;
    vigil::runtime rt(waits_in(context));
    rt.run([&] {
      send_a_byte(context);
      context.stop();
    });
    rt.run([&] {
      CHECK(context.stopped());
      vigil::io::restart(context);
      send_a_byte(context);
    });
    rt.run([&] { send_a_byte(context); });
  }

  TEST_CASE("a runtime whose run has ended takes nothing from another one in the io_context") {
    asio::io_context context;
    vigil::runtime first(waits_in(context));
    vigil::runtime second(waits_in(context));
    std::thread mine([&] { context.run(); });
    second.run([&] {
      std::thread other([&] { first.run([&] { send_a_byte(context); }); });
      other.join();
      send_a_byte(context);
      CHECK_FALSE(context.stopped());
    });
    mine.join();
  }

  TEST_CASE("a handler of a signal_set may end the run, whose main waits for that") {
    for (const unsigned workers : {1u, 2u}) {
      asio::io_context context;
      vigil::options o = waits_in(context, workers);
      o.deadlock = vigil::on_deadlock::fatal;
      vigil::runtime rt(o);
      asio::signal_set signals(context, SIGUSR1);
      signals.async_wait([&](const error_code& error, int) {
        if (!error) rt.request_stop();
      });
      std::thread sender;
      bool went_on = false;
      rt.run([&] {
        vigil::io::io_context();
        sender = std::thread([&sched = *vigil::detail::current_scheduler()] {
          wait_until_at_rest(sched);
          send_to_process(SIGUSR1);
        });
        vigil::background().done().recv();
        went_on = true;
      });
      sender.join();
      CHECK(went_on);
    }
  }

  TEST_CASE("main may wait for the run's end without a thread beside the workers") {
    for (const unsigned workers : {1u, 2u}) {
      asio::io_context context;
      vigil::options o = waits_in(context, workers);
      o.deadlock = vigil::on_deadlock::fatal;
      vigil::runtime rt(o);
      asio::steady_timer t(context, 20ms);
      t.async_wait([&](const error_code&) { rt.request_stop(); });
      bool went_on = false;
      rt.run([&] { vigil::select(vigil::on_done(vigil::background(), [&] { went_on = true; })); });
      CHECK(went_on);
    }
  }

  TEST_CASE("fibers that wait for each other are a deadlock, although handlers may come") {
    asio::io_context context;
    vigil::options o = waits_in(context);
    o.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(o,
                               [] {
                                 auto other = vigil::spawn(
                                     [] { vigil::make_channel<int>().recv(vigil::background()); });
                                 other.join();
                               }),
                    vigil::deadlock);
  }
}
