// A worker that runs a handler of Asio's is not idle: what main's worker leaves to idle
// ones (docs/decisions/0014) does not wait for that handler.
//
// The handler computes until the fiber has been seen to run: if that one waits for it,
// the case never ends. Nothing here looks at a clock.
#include "io/io_test.hpp"
#include "sched/scheduler.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <thread>
#include <utility>

#include <boost/asio/post.hpp>

using namespace std::chrono_literals;
namespace asio = boost::asio;

namespace {

vigil::options two_workers() {
  vigil::options o;
  o.workers = 2;
  return o;
}

// A handler that keeps the other worker, inside the watch.
class busy_handler {
 public:
  // Main's worker does nothing else meanwhile, so it is the other one's.
  void begin(std::function<void()> first = [] {}) {
    asio::post(vigil::io::context(), [this, first = std::move(first)] {
      has_begun_ = true;
      first();
      while (!is_over_.load())
        asm volatile("");  // clang drops a loop that nothing can end
      has_ended_ = true;
    });
    while (!has_begun_.load())
      asm volatile("");
  }

  void end() { is_over_ = true; }

  bool has_ended() const { return has_ended_.load(); }

 private:
  std::atomic<bool> has_begun_{false};
  std::atomic<bool> is_over_{false};
  std::atomic<bool> has_ended_{false};
};

// Both workers have lain down, one of them to run the handler.
void until_main_sleeps(vigil::internal::scheduler& s) {
  while (s.idle().asleep() != 2)
    std::this_thread::yield();
}

struct outcome_of_fiber {
  std::thread::id ran_on;
  bool handler_had_ended = false;
};

// `ready` gets what is to run as an unpinned fiber, and starts it or makes it ready;
// then main sleeps for an hour, unless that fiber runs.
template <class Ready>
outcome_of_fiber beside_a_handler(Ready ready) {
  outcome_of_fiber result;
  vigil::run(two_workers(), [&] {
    busy_handler handler;
    const auto done = vigil::make_channel<bool>(1);
    ready(handler, [&result, &handler, done] {
      result.ran_on = std::this_thread::get_id();
      result.handler_had_ended = handler.has_ended();
      handler.end();
      done.send(true);
    });
    CHECK(done.recv_for(1h).value() == true);
    while (!handler.has_ended())
      vigil::this_fiber::yield();
  });
  return result;
}

void check_ran_on_main_worker(const outcome_of_fiber& o) {
  CHECK(o.ran_on == std::this_thread::get_id());
  CHECK_FALSE(o.handler_had_ended);
}

}  // namespace

TEST_SUITE("beside a handler that computes in the watch") {
  TEST_CASE("a fiber that main has started runs on main's worker") {
    check_ran_on_main_worker(beside_a_handler([](busy_handler& handler, auto f) {
      handler.begin();
      vigil::go(f);
    }));
  }

  TEST_CASE("a fiber that the handler itself starts runs on main's worker") {
    check_ran_on_main_worker(beside_a_handler([](busy_handler& handler, auto f) {
      auto& s = *vigil::internal::current_scheduler();
      handler.begin([&s, f] {
        until_main_sleeps(s);
        vigil::go(f);
      });
    }));
  }

  TEST_CASE("a fiber that a plain thread makes ready runs on main's worker") {
    std::thread outside;
    check_ran_on_main_worker(beside_a_handler([&](busy_handler& handler, auto f) {
      const auto news = vigil::make_channel<int>();
      std::atomic<bool> has_begun{false};
      vigil::go([&has_begun, news, f] {
        has_begun = true;
        static_cast<void>(news.recv());
        f();
      });
      while (!has_begun.load())
        vigil::this_fiber::yield();
      handler.begin();  // when the fiber has left the other worker
      auto& s = *vigil::internal::current_scheduler();
      outside = std::thread([&s, news] {
        until_main_sleeps(s);
        news.send(1);
      });
    }));
    outside.join();
  }

  TEST_CASE("a fiber that is started while main waits without a deadline runs as well") {
    check_ran_on_main_worker([] {
      outcome_of_fiber result;
      vigil::run(two_workers(), [&] {
        busy_handler handler;
        auto& s = *vigil::internal::current_scheduler();
        const auto done = vigil::make_channel<bool>(1);
        const auto outside_work = vigil::runtime::current().make_work_guard();
        handler.begin([&] {
          until_main_sleeps(s);
          vigil::go([&] {
            result.ran_on = std::this_thread::get_id();
            result.handler_had_ended = handler.has_ended();
            handler.end();
            done.send(true);
          });
        });
        CHECK(done.recv() == true);
        while (!handler.has_ended())
          vigil::this_fiber::yield();
      });
      return result;
    }());
  }
}
