// Listeners hear that a run ends: under no lock, and never after their removal.
#include "core/timer/timer_service.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

using namespace std::chrono_literals;
using vigil::detail::run_listeners;

namespace {

class listener final : public vigil::detail::run_listener {
 public:
  explicit listener(std::function<void()> f) : told_(std::move(f)) {}

  void run_ends() noexcept override { told_(); }

 private:
  std::function<void()> told_;
};

// Returns whether `what` becomes true within `patience`; the thread yields its processor
// meanwhile.
bool comes_true(const std::atomic<bool>& what, std::chrono::nanoseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!what.load() && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  return what.load();
}

run_listeners& listeners_of(vigil::runtime& rt) {
  run_listeners* found = nullptr;
  rt.run(
      [&] { found = &vigil::detail::service_of(*vigil::detail::current_scheduler()).listeners(); });
  return *found;
}

}  // namespace

TEST_SUITE("run listeners") {
  TEST_CASE("others come and go while one is notified of the run's end") {
    vigil::runtime rt({.workers = 1});
    run_listeners& listeners = listeners_of(rt);
    std::atomic<bool> has_come_and_gone{false};
    std::thread other;
    int times_told = 0;
    listener second([] {});
    listener first([&] {
      ++times_told;
      other = std::thread([&] {
        listeners.add(second);
        listeners.remove(second);
        has_come_and_gone.store(true);
      });
      CHECK(comes_true(has_come_and_gone, 60s));
    });
    listeners.add(first);
    rt.run([] {});
    other.join();
    CHECK(times_told == 1);
    listeners.remove(first);
  }

  TEST_CASE("one that removes the next during its notification keeps it from being notified") {
    vigil::runtime rt({.workers = 1});
    run_listeners& listeners = listeners_of(rt);
    int told = 0;
    listener last([&] { told += 100; });
    listener taken_out([&] { told += 10; });
    listener first([&] {
      ++told;
      listeners.remove(taken_out);
    });
    listeners.add(first);
    listeners.add(taken_out);
    listeners.add(last);
    rt.run([] {});
    CHECK(told == 101);
    listeners.remove(first);
    listeners.remove(last);
  }

  TEST_CASE("removing one waits until it has been notified") {
    vigil::runtime rt({.workers = 1});
    run_listeners& listeners = listeners_of(rt);
    std::atomic<bool> is_being_told{false};
    std::atomic<bool> is_out{false};
    listener slow([&] {
      is_being_told.store(true);
      // Long enough to catch a removal that does not wait.
      CHECK_FALSE(comes_true(is_out, 50ms));
    });
    listeners.add(slow);
    std::thread other([&] {
      while (!is_being_told.load())
        std::this_thread::yield();
      listeners.remove(slow);
      is_out.store(true);
    });
    rt.run([] {});
    other.join();
    CHECK(is_out.load());
  }
}
