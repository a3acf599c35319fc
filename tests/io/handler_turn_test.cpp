// Calls that are served at once in a handler of the io_context, on a worker's own stack:
// there is no budget there, and the fibers before and after have the whole of theirs.
// src/core/sched/worker/turn_budget.hpp
#include "io/io_test.hpp"
#include "support/in_runtime.hpp"

#include <vigil/rate_limiter.hpp>
#include <vigil/single_flight.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
namespace asio = boost::asio;
using vigil::make_channel;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::otherwise;
using vigil::select;

namespace {

constexpr int budget = 256;       // options::turn_budget
constexpr int many_calls = 5000;  // many budgets

// Runs f in a handler of the present runtime's io_context while the caller waits.
template <class F>
void in_handler(F f) {
  const auto guard = vigil::runtime::current().make_work_guard();
  const auto done = make_channel<void>(1);
  asio::post(vigil::io::io_context(), [&f, done] {
    f();
    CHECK(done.try_send());
  });
  done.recv();
}

// The same, while a fiber that never waits gives its worker away: the worker takes the
// handler between two turns of it.
template <class F>
void in_polled_handler(F f) {
  bool done = false;
  asio::post(vigil::io::io_context(), [&] {
    f();
    done = true;
  });
  while (!done)
    vigil::this_fiber::yield();
}

// Calls that wait nowhere.
struct ready_calls {
  vigil::channel<int> full_of_one = make_channel<int>(1);
  vigil::channel<int> closed = make_channel<int>();
  vigil::mutex m;
  vigil::shared_mutex s;
  vigil::semaphore permits{2};
  vigil::wait_group none;
  vigil::latch open{0};
  vigil::once once;
  vigil::rate_limiter unlimited{vigil::rate::unlimited(), 1};
  vigil::single_flight<int, int> flights;
  vigil::timer later = vigil::after_func(1h, [] {});

  ready_calls() { closed.close(); }

  ~ready_calls() { later.stop(); }

  ready_calls(const ready_calls&) = delete;
  ready_calls& operator=(const ready_calls&) = delete;

  void make_all() {
    CHECK(full_of_one.try_send(1));
    CHECK(full_of_one.try_recv());
    full_of_one.send(1);
    CHECK(full_of_one.recv().value() == 1);
    CHECK(full_of_one.send_for(1, 1s));
    CHECK(full_of_one.recv_for(1s).value() == 1);
    CHECK_FALSE(closed.recv());
    CHECK(select(on_recv(full_of_one), otherwise()) == 1);
    CHECK(select(on_recv(closed), on_timeout(1s)) == 0);
    CHECK(m.try_lock());
    m.unlock();
    m.lock();
    m.unlock();
    CHECK(m.try_lock_for(1s));
    m.unlock();
    {
      vigil::mutex fresh;
      const std::scoped_lock both(m, fresh);
    }
    s.lock();
    s.unlock();
    s.lock_shared();
    s.unlock_shared();
    permits.acquire(2);
    CHECK_FALSE(permits.try_acquire());
    CHECK_FALSE(permits.try_acquire_for(0s));
    permits.release(2);
    none.add();
    none.done();
    none.wait();
    open.wait();
    once.call([] {});
    unlimited.wait();
    CHECK(unlimited.allow());
    CHECK(flights.call(1, [] { return 2; }) == 2);
    later.stop_and_wait();
    later.reset(1h);
  }
};

// Makes calls until another fiber, which is ready all the time, has had a turn; returns
// their number.
int calls_of_a_turn() {
  bool had_turn = false;
  auto other = vigil::spawn([&] { had_turn = true; });
  const auto c = make_channel<int>();
  c.close();
  int calls = 0;
  while (!had_turn && calls < many_calls) {
    c.recv();
    ++calls;
  }
  other.join();
  return calls;
}

void spend(int calls) {
  const auto c = make_channel<int>();
  c.close();
  for (int i = 0; i < calls; ++i)
    c.recv();
}

}  // namespace

TEST_SUITE("a turn's budget in Asio's handlers") {
  TEST_CASE("a handler on a worker's own stack makes any number of ready calls in one go") {
    for (const std::uint32_t limit : {0u, 1u, 256u}) {
      CAPTURE(limit);
      in_runtime({.workers = {1}, .settings = {.turn_budget = limit}}, [] {
        ready_calls calls;
        const auto run = [&] {
          const auto had_turn = std::make_shared<bool>(false);
          vigil::go([had_turn] { *had_turn = true; });
          for (int i = 0; i < rounds(many_calls); ++i)
            calls.make_all();
          CHECK_FALSE(*had_turn);
        };
        in_handler(run);
        in_polled_handler(run);
      });
    }
  }

  TEST_CASE("what a handler has called counts against no fiber, before it or after it") {
    in_runtime({.workers = {1}}, [] {
      for (const int in_between : {1, 100, 255, 256, 257, 300, 511, 512, 700}) {
        for (const int before : {0, 1, 200, 255}) {
          CAPTURE(in_between);
          CAPTURE(before);
          spend(before);
          in_handler([&] { spend(in_between); });
          const int after_wait = calls_of_a_turn();
          CHECK(after_wait >= budget);
          CHECK(after_wait < many_calls);
          spend(before);
          in_polled_handler([&] { spend(in_between); });
          const int after_yield = calls_of_a_turn();
          CHECK(after_yield >= budget);
          CHECK(after_yield < many_calls);
        }
      }
    });
  }

  TEST_CASE("the handler of a timer keeps its worker, too") {
    in_runtime({.workers = {1}}, [] {
      const auto had_turn = std::make_shared<bool>(false);
      const auto done = make_channel<bool>(1);
      asio::steady_timer t(vigil::io::io_context(), 1ms);
      const auto guard = vigil::runtime::current().make_work_guard();
      t.async_wait([&](vigil::io_testing::error_code) {
        vigil::go([had_turn] { *had_turn = true; });
        spend(many_calls);
        CHECK(done.try_send(*had_turn));
      });
      CHECK_FALSE(done.recv().value());
    });
  }

  TEST_CASE("handlers on several workers' stacks and fibers make such calls side by side") {
    in_runtime({.workers = {2, 4}}, [] {
      vigil::mutex m;
      const auto c = make_channel<int>(64);
      std::atomic<int> in_handlers{0};
      int counted = 0;
      const auto work = [&] {
        for (int i = 0; i < rounds(2000); ++i) {
          // Another may hold it for a moment, for which a handler may not wait.
          if (m.try_lock()) {
            ++counted;
            m.unlock();
          }
          static_cast<void>(c.try_send(i));
          static_cast<void>(select(on_recv(c), otherwise()));
        }
      };
      {
        const auto guard = vigil::runtime::current().make_work_guard();
        constexpr int all = 16;
        std::vector<vigil::fiber<>> fibers;
        for (int i = 0; i < all; ++i) {
          asio::post(vigil::io::io_context(), [&] {
            work();
            ++in_handlers;
          });
          fibers.push_back(vigil::spawn(work));
        }
        for (auto& f : fibers)
          f.join();
        while (in_handlers.load() != all)
          vigil::sleep_for(100us);
      }
      CHECK(counted > 0);
    });
  }
}
