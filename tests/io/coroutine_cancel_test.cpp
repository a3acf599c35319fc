// Coroutines of Asio's that are cancelled: by a stop, a context, a deadline and cancel(),
// before they have begun, between two steps and as they end.
#include "io/io_test.hpp"
#include "support/note.hpp"

#include <vigil/io/co.hpp>
#include <vigil/io/executor.hpp>
#include <vigil/io/pending.hpp>

#include <atomic>
#include <exception>
#include <memory>
#include <tuple>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/append.hpp>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/compose.hpp>
#include <boost/asio/consign.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <boost/asio/multiple_exceptions.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/prepend.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

using namespace vigil::io_testing;
using namespace asio::experimental::awaitable_operators;
namespace io = vigil::io;
using asio::any_io_executor;
using asio::use_awaitable;
using io::use_fiber;
using vigil::task;

namespace {

using nanoseconds = std::chrono::nanoseconds;

asio::awaitable<int> sleeps(nanoseconds d) {
  asio::steady_timer t(co_await asio::this_coro::executor, d);
  co_await t.async_wait(use_awaitable);
  co_return 1;
}

// Many short steps.
asio::awaitable<int> steps(int n) {
  asio::steady_timer t(co_await asio::this_coro::executor);
  for (int i = 0; i < n; ++i) {
    t.expires_after(2us);
    co_await t.async_wait(use_awaitable);
    co_await asio::post(co_await asio::this_coro::executor, use_awaitable);
  }
  co_return 1;
}

asio::awaitable<int> parent(nanoseconds d) {
  const any_io_executor ex = co_await asio::this_coro::executor;
  co_return co_await asio::co_spawn(ex, sleeps(d), use_awaitable);
}

asio::awaitable<int> either(nanoseconds d) {
  const auto won = co_await (sleeps(d) || sleeps(1h));
  co_return static_cast<int>(won.index()) + 1;
}

asio::awaitable<int> at_once() {
  co_return 1;
}

struct shape {
  // Both sides of || share a state without a lock: where several threads run handlers it
  // needs a strand.
  any_io_executor on(const any_io_executor& ex) const {
    return needs_strand ? asio::make_strand(ex) : ex;
  }

  const char* name;
  asio::awaitable<int> (*make)();
  bool needs_strand = false;
};

// Each lasts about as long as the requests to end are spread.
const shape shapes[] = {
    {"a timer", [] { return sleeps(100us); }},
    {"many steps", [] { return steps(10); }},
    {"a child", [] { return parent(100us); }},
    {"one of two", [] { return either(100us); }, true},
    {"one that never waits", [] { return at_once(); }},
};

struct place {
  const char* name;
  any_io_executor (*make)();
};

const place places[] = {
    {"io_context()", []() -> any_io_executor { return io::io_context().get_executor(); }},
    {"executor()", []() -> any_io_executor { return io::executor(); }},
    {"a strand", []() -> any_io_executor { return asio::make_strand(io::io_context()); }},
};

template <class F>
void for_each_shape(F f) {
  for (const place& p : places) {
    for (const shape& s : shapes) {
      NOTE(std::string(s.name), " on ", std::string(p.name));
      in_runtime({.workers = {1, 2, 4}}, [&] { f(s.on(p.make()), s.make); });
    }
  }
}

task<int> awaits(any_io_executor ex, asio::awaitable<int> (*make)()) {
  co_return co_await io::co::spawned(ex, make());
}

// A composed operation that awaits two coroutines, one after the other.
template <class Token>
auto twice(const any_io_executor& ex, asio::awaitable<int> (*make)(), Token&& token) {
  return asio::async_compose<Token, void(std::exception_ptr, int)>(
      [ex, make, begun = 0](auto& self, std::exception_ptr e = nullptr, int n = 0) mutable {
        if (e != nullptr || begun == 2) {
          self.complete(e, n);
          return;
        }
        ++begun;
        asio::co_spawn(ex, make(), std::move(self));
      },
      token,
      ex);
}

// An operation that passes its handler on.
template <class Token>
auto passed_on(const any_io_executor& ex, asio::awaitable<int> (*make)(), Token&& token) {
  return asio::async_initiate<Token, void(std::exception_ptr, int)>(
      [&](auto handler) { asio::co_spawn(ex, make(), std::move(handler)); }, token);
}

// Waits for a coroutine that something stands before: a wrapper, or another operation.
using hidden_wait = int (*)(const any_io_executor&,
                            asio::awaitable<int> (*)(),
                            const io::fiber_token&);
const hidden_wait hidden_waits[] = {
    [](auto& ex, auto make, auto& token) {
      return std::get<0>(asio::co_spawn(ex, make(), asio::append(token, 'a')));
    },
    [](auto& ex, auto make, auto& token) {  // its error is a value
      const auto [c, e, n] = asio::co_spawn(ex, make(), asio::prepend(token, 'a'));
      if (e != nullptr) std::rethrow_exception(e);
      return n;
    },
    [](auto& ex, auto make, auto& token) {
      return asio::co_spawn(ex, make(), asio::consign(token, std::make_unique<int>()));
    },
    [](auto& ex, auto make, auto& token) {
      const auto [n, c, d] =
          asio::co_spawn(ex, make(), asio::consign(asio::append(asio::append(token, 'a'), 'b'), 1));
      return n;
    },
    [](auto& ex, auto make, auto& token) {
      const asio::deferred_t deferred;
      return asio::co_spawn(ex, make(), deferred)(asio::consign(token, 1));
    },
    [](auto& ex, auto make, auto& token) { return twice(ex, make, token); },
    [](auto& ex, auto make, auto& token) {
      return std::get<0>(twice(ex, make, asio::append(token, 'a')));
    },
    [](auto& ex, auto make, auto& token) { return passed_on(ex, make, token); },
    [](auto& ex, auto make, auto&) {
      io::pending<int> p(
          [&](auto token) { return asio::co_spawn(ex, make(), asio::consign(token, 1)); });
      p.on_lost([](int) {});
      return p.get();
    },
    [](auto& ex, auto make, auto&) {
      io::pending<int> p([&](auto token) { return twice(ex, make, token); });
      p.on_lost([](int) {});
      return p.get();
    },
};

// The moment of the i-th request to end.
nanoseconds moment(int i) {
  return i * 4us;
}

}  // namespace

TEST_SUITE("coroutines of Asio's that are cancelled") {
  TEST_CASE("a task that awaits one may be stopped at any moment") {
    for_each_shape([](const any_io_executor& ex, asio::awaitable<int> (*make)()) {
      repeat(rounds(40), [&](int i) {
        auto t = vigil::spawn(awaits(ex, make));
        vigil::sleep_for(moment(i));
        t.request_stop();
        try {
          const int result = t.join();
          CHECK(result == 1);
        } catch (const vigil::cancelled&) {
        }
      });
    });
  }

  TEST_CASE("a fiber that waits for one may be stopped at any moment") {
    for_each_shape([](const any_io_executor& ex, asio::awaitable<int> (*make)()) {
      repeat(rounds(40), [&](int i) {
        auto f = vigil::spawn([&] { return asio::co_spawn(ex, make(), use_fiber); });
        vigil::sleep_for(moment(i));
        f.request_stop();
        try {
          const int result = f.join();
          CHECK(result == 1);
        } catch (const vigil::cancelled&) {
        }
      });
    });
  }

  TEST_CASE("a context and a deadline may end at any moment") {
    for_each_shape([](const any_io_executor& ex, asio::awaitable<int> (*make)()) {
      repeat(rounds(40), [&](int i) {
        try {
          const int result = asio::co_spawn(ex, make(), use_fiber.within(moment(i)));
          CHECK(result == 1);
        } catch (const boost::system::system_error& e) {
          CHECK(e.code() == asio::error::timed_out);
        } catch (const asio::multiple_exceptions&) {  // of both sides of ||
        }
        auto [ctx, cancel] = vigil::with_timeout(vigil::background(), moment(i));
        try {
          const int result = asio::co_spawn(ex, make(), use_fiber.under(ctx));
          CHECK(result == 1);
        } catch (const vigil::cancelled&) {
        } catch (const asio::multiple_exceptions&) {
        }
      });
    });
  }

  TEST_CASE("a pending may be cancelled, and destroyed, at any moment") {
    for_each_shape([](const any_io_executor& ex, asio::awaitable<int> (*make)()) {
      repeat(rounds(40), [&](int i) {
        io::pending<int> p([&](auto token) { return asio::co_spawn(ex, make(), token); });
        p.on_lost([](int) {});
        vigil::sleep_for(moment(i));
        if (i % 2 == 0) p.cancel();
        if (i % 4 != 0) return;
        error_code e;
        try {
          p.get(e);
        } catch (const boost::system::system_error& thrown) {
          CHECK(thrown.code() == asio::error::operation_aborted);
        } catch (const asio::multiple_exceptions&) {
        }
      });
    });
  }

  TEST_CASE("on an io_context that several threads of the program run") {
    asio::io_context context;
    const run_by_threads threads(context, 3);
    for (const shape& s : shapes) {
      NOTE(std::string(s.name));
      in_runtime({.workers = {1, 2}}, [&] {
        const any_io_executor ex = s.on(context.get_executor());
        repeat(rounds(40), [&](int i) {
          auto f = vigil::spawn([&] { return asio::co_spawn(ex, s.make(), use_fiber); });
          auto t = vigil::spawn(awaits(ex, s.make));
          vigil::sleep_for(moment(i));
          f.request_stop();
          t.request_stop();
        });
      });
    }
  }

  TEST_CASE("no stop is lost: a coroutine that would wait for an hour ends") {
    for (const place& p : places) {
      NOTE(std::string(p.name));
      in_runtime({.workers = {1, 2, 4}}, [&] {
        const shape endless[] = {
            {"a timer", [] { return sleeps(1h); }},
            {"a child", [] { return parent(1h); }},
            {"one of two", [] { return either(1h); }, true},
            {"many steps", [] { return steps(1 << 30); }},
        };
        repeat(rounds(40), [&](int i) {
          std::vector<vigil::task_handle<int>> tasks;
          std::vector<vigil::fiber<int>> fibers;
          for (const shape& s : endless) {
            const any_io_executor ex = s.on(p.make());
            tasks.push_back(vigil::spawn(awaits(ex, s.make)));
            fibers.push_back(
                vigil::spawn([ex, &s] { return asio::co_spawn(ex, s.make(), use_fiber); }));
          }
          if (i % 2 != 0) vigil::sleep_for(moment(i));
          for (auto& t : tasks)
            t.request_stop();
          for (auto& f : fibers)
            f.request_stop();
          for (auto& t : tasks)
            CHECK_THROWS_AS(t.join(), vigil::cancelled);
          for (auto& f : fibers)
            CHECK_THROWS_AS(f.join(), vigil::cancelled);
        });
      });
    }
  }

  TEST_CASE("one behind append, prepend, consign, async_compose or a function") {
    for_each_shape([](const any_io_executor& ex, asio::awaitable<int> (*make)()) {
      for (const hidden_wait waits : hidden_waits) {
        repeat(rounds(10), [&](int i) {
          const nanoseconds later = 2 * moment(i);
          auto f = vigil::spawn([&] {
            try {
              const int result = waits(ex, make, io::fiber_token().within(later + 2us));
              CHECK(result == 1);
            } catch (const boost::system::system_error&) {
            } catch (const asio::multiple_exceptions&) {
            }
          });
          vigil::sleep_for(later);
          if (i % 2 != 0) f.request_stop();
          try {
            f.join();
          } catch (const vigil::cancelled&) {
          }
        });
      }
    });
  }

  TEST_CASE("no stop of a hidden one is lost") {
    for (const place& p : places) {
      INFO(std::string(p.name));
      in_runtime({.workers = {1, 2, 4}}, [&] {
        repeat(rounds(20), [&](int i) {
          std::vector<vigil::fiber<int>> fibers;
          for (const hidden_wait waits : hidden_waits) {
            fibers.push_back(vigil::spawn([&p, waits] {
              return waits(
                  p.make(), [] { return sleeps(1h); }, io::fiber_token());
            }));
          }
          if (i % 2 != 0) vigil::sleep_for(moment(i));
          for (auto& f : fibers)
            f.request_stop();
          for (auto& f : fibers)
            CHECK_THROWS(f.join());
        });
      });
    }
  }

  TEST_CASE("the cancellation comes once: a coroutine may clean up after it") {
    for (const place& p : places) {
      NOTE(std::string(p.name));
      in_runtime({.workers = {1, 2, 4}}, [&] {
        bool cleaned = false;
        const auto cleans = [&]() -> asio::awaitable<void> {
          const auto ex = co_await asio::this_coro::executor;
          try {
            co_await sleeps(1h);
          } catch (const boost::system::system_error& e) {
            CHECK(e.code() == asio::error::operation_aborted);
          }
          co_await asio::this_coro::reset_cancellation_state();
          co_await sleeps(1ms);
          co_await asio::post(ex, use_awaitable);
          cleaned = true;
        };
        asio::co_spawn(p.make(), cleans(), use_fiber.within(1ms));
        CHECK(cleaned);
      });
    }
  }

  TEST_CASE("a coroutine that waits as a fiber is cancelled afterwards") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      auto in = vigil::make_channel<int>();
      auto begun = vigil::make_channel<int>();
      bool received = false;
      const auto waits = [&]() -> asio::awaitable<void> {
        begun.send(1);
        received = in.recv() == 1;
        co_await sleeps(1h);
      };
      auto f = vigil::spawn([&] { asio::co_spawn(io::executor(), waits(), use_fiber); });
      begun.recv();
      f.request_stop();
      in.send(1);
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(received);
    });
  }

  TEST_CASE("it may wait as a fiber for what it has posted to its own executor") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const auto waits = []() -> asio::awaitable<int> {
        const any_io_executor ex = co_await asio::this_coro::executor;
        auto c = vigil::make_channel<int>();
        const auto sends = [c]() -> asio::awaitable<void> { c.send(co_await sleeps(1ms) + 1); };
        asio::co_spawn(ex, sends(), asio::detached);
        asio::post(ex, [c] { c.send(1); });
        co_return c.recv().value() + c.recv().value();
      };
      CHECK(asio::co_spawn(io::executor(), waits(), use_fiber) == 3);
    });
  }

  TEST_CASE("tokens in wrappers, and a slot of the program's own") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      const any_io_executor ex = io::executor();
      const auto [error, n] = asio::co_spawn(ex, sleeps(1h), asio::as_tuple(use_fiber.within(1ms)));
      CHECK(error != nullptr);
      CHECK(n == 0);
      CHECK_THROWS_AS(
          asio::co_spawn(
              ex, sleeps(1h), asio::bind_executor(io::io_context(), use_fiber.within(1ms))),
          boost::system::system_error);
      asio::cancellation_signal signal;
      auto f = vigil::spawn([&] {
        asio::co_spawn(ex, sleeps(1h), asio::bind_cancellation_slot(signal.slot(), use_fiber));
      });
      vigil::sleep_for(1ms);
      signal.emit(asio::cancellation_type::terminal);
      CHECK_THROWS_AS(f.join(), boost::system::system_error);
    });
  }

  TEST_CASE("nothing of a coroutine is left when it has ended or was cancelled") {
    for (const place& p : places) {
      NOTE(std::string(p.name));
      in_runtime({.workers = {1, 2, 4}}, [&] {
        const auto holds = [](std::shared_ptr<int> held, nanoseconds d) -> asio::awaitable<int> {
          co_return co_await sleeps(d) + *held;
        };
        auto mark = std::make_shared<int>(1);
        const std::weak_ptr<int> left = mark;
        CHECK(asio::co_spawn(p.make(), holds(mark, 1us), use_fiber) == 2);
        CHECK_THROWS_AS(asio::co_spawn(p.make(), holds(std::move(mark), 1h), use_fiber.within(1ms)),
                        boost::system::system_error);
        while (!left.expired())  // its frame goes after its handler
          vigil::this_fiber::yield();
      });
    }
  }
}
