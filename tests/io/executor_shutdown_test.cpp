// io::executor() at the end of a run: what waits there is stopped, and handlers start as
// long as somebody may wait for them.
#include "core/guest/host_loop.hpp"
#include "io/io_test.hpp"
#include "support/note.hpp"

#include <vigil/guest.hpp>
#include <vigil/io/co.hpp>
#include <vigil/io/executor.hpp>
#include <vigil/io/pending.hpp>

#include <atomic>
#include <csignal>
#include <functional>
#include <memory>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/channel.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

using namespace vigil::io_testing;
using asio::ip::tcp;
using vigil::io::fiber_executor;

namespace {

// A pair whose ends complete on fibers.
struct fiber_pair {
  explicit fiber_pair(const fiber_executor& ex) : near(ex), far(ex) {
    asio::local::connect_pair(near, far);
  }

  unix_socket near;
  unix_socket far;
};

asio::awaitable<void> coroutine_sleeps(std::chrono::nanoseconds d) {
  asio::steady_timer t(co_await asio::this_coro::executor, d);
  co_await t.async_wait(asio::use_awaitable);
}

vigil::task<> awaits_sleep() {
  co_await vigil::io::co::spawned(vigil::io::executor(), coroutine_sleeps(1h));
}

struct way {
  const char* name;
  void (*wait)();  // for ever
};

// Each waits for what only io::executor() can bring.
const way ways[] = {
    {"a timer", [] { asio::steady_timer(vigil::io::executor(), 1h).async_wait(use_fiber); }},
    {"a timer with a limit",
     [] { asio::steady_timer(vigil::io::executor(), 1h).async_wait(use_fiber.within(2h)); }},
    {"a socket",
     [] {
       fiber_pair s(vigil::io::executor());
       char byte = 0;
       asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
     }},
    {"an acceptor",
     [] {
       tcp::acceptor a(vigil::io::executor(), {asio::ip::address_v4::loopback(), 0});
       a.async_accept(use_fiber);
     }},
    {"a channel of Asio's",
     [] {
       asio::experimental::channel<void(error_code, int)> c(vigil::io::executor(), 1);
       c.async_receive(use_fiber);
     }},
    {"a strand",
     [] {
       asio::steady_timer(asio::make_strand(vigil::io::executor()), 1h).async_wait(use_fiber);
     }},
    {"bind_executor",
     [] {
       asio::steady_timer t(vigil::io::io_context(), 1h);
       t.async_wait(asio::bind_executor(vigil::io::executor(), use_fiber));
     }},
    {"a pending",
     [] {
       asio::steady_timer t(vigil::io::executor(), 1h);
       vigil::io::pending<void> p([&](auto token) { return t.async_wait(token); });
       vigil::select(vigil::io::on_result(p));
     }},
    {"a pending that is not waited for",
     [] {
       asio::steady_timer t(vigil::io::executor(), 1h);
       const vigil::io::pending<void> p([&](auto token) { return t.async_wait(token); });
       vigil::make_channel<int>().recv();
     }},
    {"a coroutine", [] { asio::co_spawn(vigil::io::executor(), coroutine_sleeps(1h), use_fiber); }},
    {"a task that awaits a coroutine", [] { vigil::spawn(awaits_sleep()).join(); }},
};

// The threads of the runtimes, the way in, and how the run is to end.
template <class F>
void for_each_way(F f) {
  for (const unsigned workers : {1U, 2U, 4U}) {
    for (const way& w : ways) {
      NOTE(std::string(w.name), ", workers: ", workers);
      f(w, workers);
    }
  }
}

// Waits on the way, and says how the wait has ended.
void wait_on(const way& w, std::atomic<int>& stopped) {
  try {
    w.wait();
  } catch (const vigil::stopped&) {
    ++stopped;
    throw;
  } catch (const vigil::cancelled& e) {  // a join
    if (e.is_by_shutdown()) ++stopped;
    throw;
  }
}

void run_with(unsigned workers, vigil::options o, const std::function<void()>& main) {
  o.workers = workers;
  try {
    vigil::run(o, main);
  } catch (const vigil::cancelled&) {
    // main itself was stopped
  }
}

// Posts itself for ever.
struct posts_itself {
  void operator()() const {
    ++*count;
    if (then) then();
    asio::post(on, *this);
    if (wait) wait();
  }

  fiber_executor on;
  std::shared_ptr<std::atomic<int>> count = std::make_shared<std::atomic<int>>(0);
  std::function<void()> then{};
  std::function<void()> wait{};
};

asio::awaitable<void> posts_for_ever() {
  for (;;)
    co_await asio::post(co_await asio::this_coro::executor, asio::use_awaitable);
}

void rearm(std::shared_ptr<asio::steady_timer> t) {
  t->expires_after(0s);
  auto& timer = *t;
  timer.async_wait([t = std::move(t)](error_code e) {
    if (!e) rearm(t);
  });
}

}  // namespace

TEST_SUITE("fiber_executor: the shutdown") {
  TEST_CASE("every wait there ends as the main fiber returns") {
    for_each_way([](const way& w, unsigned workers) {
      std::atomic<int> stopped = 0;
      run_with(workers, {}, [&] {
        vigil::go([&] { wait_on(w, stopped); });
        vigil::sleep_for(1ms);
      });
      CHECK(stopped == 1);
    });
  }

  TEST_CASE("every wait there of the main fiber ends upon a signal") {
    for_each_way([](const way& w, unsigned workers) {
      std::atomic<int> stopped = 0;
      vigil::options o;
      o.stop_on = {SIGUSR1};
      o.grace = 0s;  // the wait is what ends here, at once
      run_with(workers, o, [&] {
        vigil::go([] {
          vigil::sleep_for(1ms);
          ::raise(SIGUSR1);  // to this thread, which TSan hands over at once
        });
        wait_on(w, stopped);
      });
      CHECK(stopped == 1);
    });
  }

  TEST_CASE("every wait there ends after the grace, and with exit_when::all_done") {
    for_each_way([](const way& w, unsigned workers) {
      std::atomic<int> stopped = 0;
      vigil::options o;
      o.grace = 1ms;
      o.exit = vigil::exit_when::all_done;
      run_with(workers, o, [&] {
        vigil::go([&] { wait_on(w, stopped); });
        vigil::go([rt = &vigil::runtime::current()] {
          vigil::sleep_for(1ms);
          rt->request_stop();
        });
      });
      CHECK(stopped == 1);
    });
  }

  TEST_CASE("every wait there ends when one fiber is stopped") {
    for_each_way([](const way& w, unsigned workers) {
      run_with(workers, {}, [&] {
        std::atomic<int> stopped = 0;
        auto waits = vigil::spawn([&] { wait_on(w, stopped); });
        vigil::sleep_for(1ms);
        waits.request_stop();
        CHECK_THROWS_AS(waits.join(), vigil::cancelled);
      });
    });
  }

  TEST_CASE("every wait there ends in a guest that ends") {
    for (const way& w : ways) {
      NOTE(std::string(w.name));
      std::atomic<int> stopped = 0;
      vigil::guest_runtime g;
      g.start([&] {
        vigil::go([&] { wait_on(w, stopped); });
        vigil::sleep_for(1ms);
      });
      serve(g);
      CHECK(stopped == 1);
    }
  }

  TEST_CASE("in the grace operations complete") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      bool completed = false;
      vigil::options o;
      o.grace = 1h;
      run_with(workers, o, [&] {
        vigil::go([&] {
          asio::steady_timer(vigil::io::executor(), 5ms).async_wait(use_fiber);
          asio::co_spawn(vigil::io::executor(), coroutine_sleeps(1ms), use_fiber);
          completed = true;
        });
        vigil::this_fiber::yield();
      });
      CHECK(completed);
    }
  }

  TEST_CASE("under a shield operations complete, after the stop as well") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      bool completed = false;
      run_with(workers, {}, [&] {
        vigil::go([&] {
          const auto ex = vigil::io::executor();
          fiber_pair s(ex);
          const vigil::this_fiber::shield shield;
          asio::steady_timer(ex, 5ms).async_wait(use_fiber);  // main returns meanwhile
          char byte = 'x';
          asio::async_write(s.far, asio::buffer(&byte, 1), use_fiber);
          asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber);
          asio::co_spawn(ex, coroutine_sleeps(1ms), use_fiber);
          asio::post(asio::make_strand(ex), use_fiber);
          asio::steady_timer late(ex, 1ms);
          vigil::io::pending<void> p([&](auto token) { return late.async_wait(token); });
          p.get();
          completed = true;
        });
        vigil::sleep_for(1ms);
      });
      CHECK(completed);
    }
  }

  TEST_CASE("a handler that waits under a shield, for another one, is waited for") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      bool completed = false;
      run_with(workers, {}, [&] {
        const auto ex = vigil::io::executor();
        auto begun = vigil::make_channel<int>(1);
        asio::post(ex, [&completed, ex, begun] {
          const vigil::this_fiber::shield shield;
          begun.send(1);
          asio::steady_timer(ex, 5ms).async_wait(use_fiber);
          std::atomic<bool> set = false;
          asio::post(ex, [&] { set = true; });
          while (!set)
            vigil::this_fiber::yield();
          completed = true;
        });
        begun.recv();
      });
      CHECK(completed);
    }
  }

  TEST_CASE("a coroutine that is cancelled by the stop runs to its end") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      bool cleaned = false;
      run_with(workers, {}, [&] {
        vigil::go([&] {
          const auto cleans = [&]() -> asio::awaitable<void> {
            const auto ex = co_await asio::this_coro::executor;
            try {
              co_await coroutine_sleeps(1h);
            } catch (const boost::system::system_error&) {
            }
            co_await asio::this_coro::reset_cancellation_state();
            for (int i = 0; i < 10; ++i)
              co_await asio::post(ex, asio::use_awaitable);
            cleaned = true;
          };
          asio::co_spawn(vigil::io::executor(), cleans(), use_fiber);
        });
        vigil::sleep_for(1ms);
      });
      CHECK(cleaned);
    }
  }

  TEST_CASE("handlers that post themselves for ever do not keep the run") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      std::weak_ptr<std::atomic<int>> left;
      std::atomic<int> ends = 0;
      run_with(workers, {}, [&] {
        const auto ex = vigil::io::executor();
        const posts_itself one{ex};
        left = one.count;
        for (int i = 0; i < 5; ++i)
          asio::post(ex, one);
        asio::co_spawn(ex, posts_for_ever(), asio::detached);
        rearm(std::make_shared<asio::steady_timer>(ex));
        // Another fiber waits there, and ends.
        vigil::go([&] { wait_on(ways[0], ends); });
        vigil::sleep_for(1ms);
      });
      CHECK(ends == 1);
      CHECK(left.expired());
    }
  }

  TEST_CASE("those of them that wait are stopped") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      constexpr int most = 20;
      std::atomic<int> waiting = 0;
      std::atomic<int> stopped = 0;
      vigil::mutex m;
      run_with(workers, {}, [&] {
        const auto ex = vigil::io::executor();
        auto all_wait = vigil::make_channel<int>(1);
        const auto waits = [&, all_wait] {
          const int n = ++waiting;
          if (n == most) all_wait.send(1);
          if (n > most) return;
          try {
            vigil::make_channel<int>().recv();
          } catch (const vigil::stopped&) {
            ++stopped;
            throw;
          }
        };
        const auto locks = [&] { const std::lock_guard guard(m); };
        for (int i = 0; i < 5; ++i)
          asio::post(ex, posts_itself{.on = ex, .then = locks, .wait = waits});
        all_wait.recv();
      });
      CHECK(stopped == most);
    }
  }

  TEST_CASE("functions of post do not start although handlers do; their captures die") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      std::atomic<bool> posted_ran = false;
      std::weak_ptr<int> left;
      int handlers = 0;
      run_with(workers, {}, [&] {
        vigil::go([&] {
          const auto ex = vigil::io::executor();
          try {
            vigil::make_channel<int>().recv();
          } catch (const vigil::stopped&) {
            const vigil::this_fiber::shield shield;
            auto mark = std::make_shared<int>(0);
            left = mark;
            for (int i = 0; i < 3; ++i) {
              vigil::post([&, mark] { posted_ran = true; });
              vigil::after_func(0s, [&, mark] { posted_ran = true; });
              asio::post(ex, use_fiber);
              ++handlers;
            }
            throw;
          }
        });
        vigil::sleep_for(1ms);
      });
      CHECK(handlers == 3);
      CHECK_FALSE(posted_ran);
      CHECK(left.expired());
    }
  }

  TEST_CASE("a capture's destructor at the end may wait there") {
    struct waits_at_end {
      explicit waits_at_end(bool& done) : on(vigil::io::executor()), waited(done) {}

      ~waits_at_end() {
        asio::steady_timer(on, 1ms).async_wait(use_fiber);
        waited = true;
      }

      fiber_executor on;
      bool& waited;
    };

    for (const unsigned workers : {1U, 2U, 4U}) {
      bool waited = false;
      run_with(workers, {}, [&] {
        auto held = std::make_shared<waits_at_end>(waited);
        vigil::after_func(1h, [held] {});
      });
      CHECK(waited);
    }
  }

  TEST_CASE("handlers that have not started when the last fiber ends are destroyed") {
    for (const unsigned workers : {1U, 2U, 4U}) {
      std::weak_ptr<int> left;
      run_with(workers, {}, [&] {
        auto mark = std::make_shared<int>(0);
        left = mark;
        const auto ex = vigil::io::executor();
        for (int i = 0; i < 100; ++i)
          asio::post(ex, [mark] { vigil::make_channel<int>().recv(); });
      });
      CHECK(left.expired());
    }
  }
}
