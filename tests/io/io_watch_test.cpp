// The watch inside an io_context by itself: deadlines, interruptions, and a stopped
// io_context.
#include "io/io_watch.hpp"

#include "core/base/clock_source.hpp"
#include "io/io_test.hpp"
#include "support/at_rest.hpp"

#include <atomic>

using namespace vigil::io_testing;

namespace {

// A thread waits in `w`, whose io_context is stopped, until tell(rests_or_is_out) makes
// it return. If it never does, main.cpp ends the test.
template <class Tell>
void tell_until_out(vigil::detail::io_watch& w, Tell tell) {
  w.prepare();
  std::atomic<bool> out{false};
  std::atomic<pid_t> waits{0};
  std::thread worker([&] {
    waits.store(::gettid());
    waits.notify_one();
    w.wait_until(vigil::detail::never);
    out.store(true);
  });
  waits.wait(0);
  const auto rests_or_is_out = [&] { return out.load() || is_asleep(waits.load()); };
  while (!out.load()) {
    while (!rests_or_is_out())
      std::this_thread::yield();
    tell(rests_or_is_out);
  }
  w.interrupt();
  worker.join();
}

}  // namespace

TEST_SUITE("io: the watch") {
  TEST_CASE("once its deadline has come, or it was interrupted, it waits as before") {
    vigil::detail::io_watch w;
    const auto waits_until_interrupted = [&w] {
      w.prepare();
      const auto start = std::chrono::steady_clock::now();
      std::thread other([&w] {
        // Blocks on purpose, for the loop below: a wait that returns before the 20 ms are
        // over has not waited, however late this thread is.
        std::this_thread::sleep_for(20ms);
        w.interrupt();
      });
      int waits = 0;
      do {
        ++waits;
        w.wait_until(vigil::detail::never);
      } while (std::chrono::steady_clock::now() - start < 20ms && waits < 5);
      other.join();
      CHECK(waits == 1);
    };
    w.prepare();
    w.wait_until(vigil::detail::monotonic_now() + 1'000'000);
    waits_until_interrupted();
    waits_until_interrupted();
  }

  TEST_CASE("in a stopped io_context it hears of an operation that begins or is cancelled") {
    for (const bool is_cancelled : {false, true}) {
      asio::io_context own;
      vigil::detail::io_watch w(own);
      own.stop();
      int told = 0;
      // A cancelled operation is told about alone here: with another one pending a worker
      // looks every 10 ms anyway.
      tell_until_out(w, [&](const auto&) {
        ++told;
        is_cancelled ? w.operation_cancelled() : w.operation_begins();
      });
      for (; told > 0; --told) {
        if (is_cancelled) w.operation_begins();
        w.operation_ends(is_cancelled);
      }
    }
  }

  TEST_CASE("in a stopped io_context it hears of the restart") {
    asio::io_context own;
    vigil::detail::io_watch w(own);
    own.stop();
    tell_until_out(w, [&own](const auto& rests_or_is_out) {
      vigil::io::restart(own);
      while (!rests_or_is_out())
        std::this_thread::yield();
      own.stop();
    });
  }
}
