// options::on_unhandled and before_end with captures.
#include "support/in_runtime.hpp"

#include <vigil/co.hpp>
#include <vigil/task.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

using namespace std::chrono_literals;

namespace {

using on_unhandled = decltype(vigil::options::on_unhandled);
using before_end = decltype(vigil::options::before_end);

std::atomic<int> plain_calls{0};

void plain(std::exception_ptr) noexcept {
  plain_calls.fetch_add(1);
}

void overloaded(std::exception_ptr) {
  plain_calls.fetch_add(1);
}

[[maybe_unused]] void overloaded(int) {}

bool never_again() {
  return false;
}

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  }
}

void fail() {
  throw std::runtime_error("planted");
}

}  // namespace

TEST_SUITE("a function in options") {
  TEST_CASE("may be plain, a lambda, a std::function, move-only, or nothing") {
    const vigil::options nothing{.before_end = nullptr, .on_unhandled = nullptr};
    CHECK(nothing.before_end == nullptr);
    CHECK_FALSE(nothing.on_unhandled);
    const vigil::options some{.before_end = &never_again, .on_unhandled = &plain};
    CHECK(some.before_end != nullptr);
    CHECK_FALSE(some.before_end());
    const vigil::options lambdas{.before_end = [] { return true; },
                                 .on_unhandled = [](std::exception_ptr) {}};
    CHECK(lambdas.before_end());
    vigil::options o;
    o.on_unhandled = plain;
    o.on_unhandled = &overloaded;
    o.on_unhandled = [n = std::make_unique<int>(7)](const std::exception_ptr&) { return *n; };
    CHECK(o.on_unhandled != nullptr);
    o.on_unhandled = std::function<void(std::exception_ptr)>();
    CHECK(o.on_unhandled == nullptr);
    o.on_unhandled = static_cast<void (*)(std::exception_ptr)>(nullptr);
    CHECK(o.on_unhandled == nullptr);
    o.before_end = std::function<bool()>([] { return true; });
    CHECK(o.before_end());
    CHECK_FALSE(std::is_constructible_v<on_unhandled, int>);
    CHECK_FALSE(std::is_constructible_v<on_unhandled, void (*)(int)>);
    CHECK_FALSE(std::is_constructible_v<before_end, void (*)()>);
  }

  TEST_CASE("on_unhandled hears of fibers, callbacks and tasks, with its captures") {
    for (const unsigned workers : {1u, 4u}) {
      std::atomic<int> heard{0};
      vigil::options o;
      o.workers = workers;
      o.on_unhandled = [&heard, expected = std::string("planted")](std::exception_ptr error) {
        if (text_of(error) == expected) heard.fetch_add(1);
      };
      vigil::run(o, [&] {
        vigil::go(&fail);
        vigil::after_func(0s, &fail);
        vigil::post(&fail);
        vigil::go([]() -> vigil::task<> {
          fail();
          co_return;
        }());
        { auto given_up = vigil::spawn(&fail); }
        vigil::spawn(&fail).detach();
        while (heard.load() != 6)
          vigil::sleep_for(100us);
      });
      CHECK(heard.load() == 6);
    }
  }

  TEST_CASE("captures live with the runtime, and longer while an error may need them") {
    const auto alive = std::make_shared<std::atomic<int>>(0);
    const auto settings = [&] {
      vigil::options o;
      o.workers = 2;
      o.on_unhandled = [alive](const std::exception_ptr&) { alive->fetch_add(1); };
      return o;
    };
    vigil::run(settings(), [] {});
    CHECK(alive.use_count() == 1);

    // These outlive the runtime: dropped, taken out, and dropped on another thread.
    std::optional<vigil::fiber<void>> dropped;
    std::optional<vigil::fiber<void>> joined;
    std::optional<vigil::fiber<void>> elsewhere;
    std::optional<vigil::task_handle<void>> task;
    vigil::run(settings(), [&] {
      dropped = vigil::spawn(&fail);
      joined = vigil::spawn(&fail);
      elsewhere = vigil::spawn(&fail);
      task = vigil::spawn([]() -> vigil::task<> {
        fail();
        co_return;
      }());
      vigil::sleep_for(1ms);
      while (vigil::stats().fibers_alive > 1)
        vigil::sleep_for(100us);
    });
    CHECK(alive.use_count() > 1);
    CHECK_THROWS_AS(joined->join(), std::runtime_error);
    CHECK(alive->load() == 0);
    dropped.reset();
    CHECK(alive->load() == 1);
    std::thread([&] { elsewhere.reset(); }).join();
    CHECK(alive->load() == 2);
    task.reset();
    CHECK(alive->load() == 3);
    CHECK(alive.use_count() == 1);
  }

  TEST_CASE("before_end counts in its own captures") {
    int ended = 0;
    vigil::testing::virtual_options how;
    how.runtime.exit = vigil::exit_when::all_done;
    how.runtime.before_end = [&ended, left = 3]() mutable {
      if (left-- == 0) return false;
      vigil::after_func(10ms, [&ended] { ++ended; });
      return true;
    };
    vigil::testing::run_virtual(how, [] {});
    CHECK(ended == 3);
  }
}
