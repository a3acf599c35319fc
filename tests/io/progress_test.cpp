// Continuous activity beside I/O that must not hold it back: handled signals, functions
// that post the next one.
#include "io/io_test.hpp"

#include <vigil/io/deadline_stream.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <functional>

using namespace vigil::io_testing;

namespace {

std::atomic<int> handled{0};

// Sends SIGUSR1, which is handled, to a thread all the time.
class disturbing {
 public:
  explicit disturbing(pthread_t whom) {
    struct sigaction counts {};

    counts.sa_handler = [](int) { ++handled; };
    ::sigaction(SIGUSR1, &counts, &before_);
    sender_ = std::thread([this, whom] {
      while (!done_.load()) {
        ::pthread_kill(whom, SIGUSR1);
        std::this_thread::sleep_for(100us);  // blocks on purpose: the thread must make progress
      }
    });
  }

  ~disturbing() {
    done_.store(true);
    sender_.join();
    ::raise(SIGUSR1);  // returns when all signals sent are handled
    ::sigaction(SIGUSR1, &before_, nullptr);
  }

  disturbing(const disturbing&) = delete;
  disturbing& operator=(const disturbing&) = delete;

 private:
  std::atomic<bool> done_{false};
  std::thread sender_;

  struct sigaction before_ {};
};

}  // namespace

TEST_SUITE("io: progress") {
  // The only worker waits in the io_context.
  // Node, libuv: a signal does not fail a blocking call (eintr_handling).
  TEST_CASE("signals handled while it waits in the io_context end no sleep, and no operation") {
    in_runtime({.workers = {1}}, [] {
      socket_pair s(vigil::io::io_context());
      const disturbing signals(::pthread_self());
      const int enough = handled.load() + 100;
      while (handled.load() < enough) {
        auto start = vigil::clock::now();
        vigil::sleep_for(1ms);
        CHECK(since(start) >= 1ms);
        start = vigil::clock::now();
        char byte = 0;
        CHECK(error_of([&] {
                asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber.within(1ms));
              }) == asio::error::timed_out);
        CHECK(since(start) >= 1ms);
        asio::async_write(s.far, asio::buffer("a", 1), use_fiber);
        asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
        CHECK(byte == 'a');
      }
    });
  }

  // Node: test-next-tick-intentional-starvation, the other way round.
  // Node, libuv: recursive setImmediate lets others through; recursive nextTick starves
  // them.
  TEST_CASE("an endless chain of posts keeps no byte of a pipe and no deadline from coming") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      std::atomic<bool> over{false};
      std::atomic<int> posts{0};
      std::atomic<bool> ended{false};
      const std::function<void()> chain = [&] {
        ++posts;
        if (over.load()) {
          ended.store(true);
        } else {
          vigil::post(chain);
        }
      };
      vigil::post(chain);
      std::thread echo([&] {
        char byte = 0;
        error_code error;
        while (s.far.read_some(asio::buffer(&byte, 1), error) == 1)
          asio::write(s.far, asio::buffer(&byte, 1), error);
      });
      socket_pair silent(vigil::io::io_context());
      for (int i = 0; i < 50 || posts.load() < 1000; ++i) {
        char byte = 'a';
        asio::async_write(s.near, asio::buffer(&byte, 1), use_fiber);
        byte = 'b';
        asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
        CHECK(byte == 'a');
        CHECK(error_of([&] {
                asio::async_read(silent.near, asio::buffer(&byte, 1), use_fiber.within(100us));
              }) == asio::error::timed_out);
      }
      s.near.close();
      echo.join();
      over.store(true);
      while (!ended.load())
        vigil::sleep_for(100us);
    });
  }

  // Each slice is longer than the time between two looks for I/O, so the number of slices
  // that an operation waits for is the same on any machine.
  TEST_CASE("I/O whose data is there waits for two slices of a fiber that computes and yields") {
    in_runtime({.workers = {1}}, [] {
      socket_pair s(vigil::io::io_context());
      std::atomic<bool> over{false};
      std::atomic<int> slices{0};
      auto computing = vigil::spawn([&] {
        while (!over.load()) {
          const auto until = vigil::clock::now() + 2ms;
          while (vigil::clock::now() < until) {
          }
          ++slices;
          vigil::this_fiber::yield();
        }
      });
      auto talking = vigil::spawn([&] {
        while (slices.load() < 20)
          vigil::this_fiber::yield();
        int most = 0;
        for (int i = 0; i < 20; ++i) {
          char byte = 'a';
          int before = slices.load();
          asio::async_write(s.near, asio::buffer(&byte, 1), use_fiber);
          most = std::max(most, slices.load() - before);
          before = slices.load();
          asio::async_read(s.far, asio::buffer(&byte, 1), use_fiber);
          most = std::max(most, slices.load() - before);
        }
        CHECK(most <= 2);
      });
      talking.join();
      over.store(true);
      computing.join();
    });
  }

  // A fiber that finds something at each read, as beside a client that pipelines
  // endlessly, never parks.
  TEST_CASE("reads and writes that are served at once let other fibers run after 64 of them") {
    in_runtime({.workers = {1}}, [] {
      constexpr int reads = 500;
      constexpr int writes = 150;  // the kernel has room for them
      socket_pair pair(vigil::io::io_context());
      asio::write(pair.far, asio::buffer(std::string(reads, 'x')));
      vigil::io::deadline_stream<unix_socket> s(std::move(pair.near));
      std::atomic<bool> over{false};
      std::atomic<int> turns{0};
      auto other = vigil::spawn([&] {
        for (; !over.load(); vigil::this_fiber::yield())
          ++turns;
      });
      // The most calls between two turns of the other fiber.
      const auto most_of = [&](int calls, const auto& call) {
        int most = 0;
        int now = 0;
        int before = turns.load();
        for (int i = 0; i < calls; ++i) {
          call();
          now = turns.load() == before ? now + 1 : 1;
          before = turns.load();
          most = std::max(most, now);
        }
        return most;
      };
      vigil::spawn([&] {
        char byte = 'x';
        CHECK(most_of(reads, [&] { s.read_some(asio::buffer(&byte, 1)); }) <= 64);
        CHECK(most_of(writes, [&] { s.write_some(asio::buffer(&byte, 1)); }) <= 64);
      }).join();
      over.store(true);
      other.join();
    });
  }
}
