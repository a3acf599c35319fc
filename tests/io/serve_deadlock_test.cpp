// io::serve: handlers and callbacks that a deadlock unwinds.
#include "io/serve_test.hpp"

#include <vigil/sync.hpp>

#include <filesystem>
#include <mutex>
#include <stdexcept>

using namespace vigil::io_testing;

namespace {

std::atomic<int> errors_of_deadlock{0};

}  // namespace

TEST_SUITE("io::serve") {
  TEST_CASE("handlers that wait for each other's mutex are unwound, and run throws deadlock") {
    errors_of_deadlock.store(0);
    int heard = 0;
    int handled = 0;
    const auto run_one = [&](bool in_on_error) {
      vigil::testing::virtual_options how;
      how.runtime.stop_limit = 1h;
      how.runtime.on_unhandled = [](std::exception_ptr) { errors_of_deadlock.fetch_add(1); };
      CHECK_THROWS_AS(vigil::testing::run_virtual(
                          how,
                          [&] {
                            memory_acceptor acceptor;
                            vigil::mutex a;
                            vigil::mutex b;
                            vigil::latch both_have_one{2};
                            const auto wait_in = [&](vigil::mutex& own, vigil::mutex& others) {
                              const std::lock_guard first(own);
                              both_have_one.count_down();
                              both_have_one.wait();
                              const std::lock_guard second(others);
                            };
                            bool is_first = true;
                            const auto turn = [&] {
                              if (std::exchange(is_first, false)) {
                                wait_in(a, b);
                              } else {
                                wait_in(b, a);
                              }
                            };
                            vigil::io::serve_limits limits;
                            limits.on_error = [&](const std::exception_ptr&) {
                              if (in_on_error) {
                                turn();
                              } else {
                                ++heard;
                              }
                            };
                            const auto one = acceptor.connect();
                            const auto other = acceptor.connect();
                            serve(
                                acceptor,
                                [&](const memory_stream&) {
                                  ++handled;
                                  if (in_on_error) throw std::runtime_error("to on_error");
                                  turn();
                                },
                                limits);
                          }),
                      vigil::deadlock);
    };
    run_one(false);
    run_one(true);
    CHECK(handled == 4);
    CHECK(heard == 0);
    CHECK(errors_of_deadlock.load() == 0);
  }

  TEST_CASE("an on_stop that can never have its lock is unwound, and run throws deadlock") {
    int heard = 0;
    vigil::testing::virtual_options how;
    how.runtime.stop_limit = 1h;
    CHECK_THROWS_AS(vigil::testing::run_virtual(
                        how,
                        [&] {
                          memory_acceptor acceptor;
                          vigil::mutex never_free;
                          const std::lock_guard held(never_free);
                          vigil::io::serve_limits limits;
                          limits.on_error = [&](const std::exception_ptr&) { ++heard; };
                          limits.on_stop = [&] { never_free.lock(); };
                          const auto stopping = vigil::with_cancel(vigil::background());
                          stopping.cancel();
                          serve(
                              stopping.ctx, acceptor, [](const memory_stream&) {}, limits);
                        }),
                    vigil::deadlock);
    CHECK(heard == 0);
  }
}
