// Tasks that read, write and await operations of Asio; and its coroutines await tasks.
#include "io/io_test.hpp"

#include <vigil/io/co.hpp>
#include <vigil/io/executor.hpp>
#include <vigil/io/memory_stream.hpp>

#include <array>
#include <atomic>
#include <optional>
#include <stdexcept>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>

using namespace vigil::io_testing;
namespace co = vigil::co;
namespace io = vigil::io;
using boost::asio::ip::tcp;
using vigil::clock;
using vigil::spawn;
using vigil::task;
using vigil::task_handle;

namespace {

using memory = io::deadline_stream<io::memory_stream>;

template <class Stream>
task<std::size_t> echoes(Stream& s) {
  std::array<char, 8> room;
  std::size_t all = 0;
  try {
    for (;;) {
      const std::size_t n = co_await io::co::read_some(s, asio::buffer(room));
      all += n;
      co_await io::co::write(s, asio::buffer(room.data(), n));
    }
  } catch (const boost::system::system_error& e) {
    if (e.code() != asio::error::eof) throw;
  }
  co_return all;
}

asio::awaitable<int> of_asio(int n) {
  asio::steady_timer timer(co_await asio::this_coro::executor, 1ms);
  co_await timer.async_wait(asio::use_awaitable);
  if (n == 0) throw std::runtime_error("from Asio");
  co_return n + 1;
}

task<int> of_vigil(int n) {
  co_await co::sleep_for(1ms);
  if (n == 0) throw std::runtime_error("from vigil");
  co_return n * 2;
}

asio::awaitable<int> awaits_task(int n) {
  co_return 1 + co_await io::async_run(of_vigil(n), asio::use_awaitable);
}

// The ends of a coroutine of Asio's and of the task that awaits it.
struct ends_in_turn {
  vigil::latch begun{1};
  std::atomic<bool> asio_aborted{false};
  std::atomic<bool> asio_ended{false};
  std::atomic<bool> stopped_afterwards{false};  // the task
};

// Ends by an error only. If it is deaf, a cancellation does not end the wait.
asio::awaitable<void> waits_for(asio::steady_timer& timer, ends_in_turn& how, bool is_deaf) {
  if (is_deaf) co_await asio::this_coro::reset_cancellation_state(asio::disable_cancellation());
  how.begun.count_down();
  try {
    co_await timer.async_wait(asio::use_awaitable);
  } catch (const boost::system::system_error& e) {
    how.asio_aborted = e.code() == asio::error::operation_aborted;
    how.asio_ended = true;
    throw;
  }
}

// Hears no cancellation.
asio::awaitable<int> succeeds_all_the_same(asio::steady_timer& timer, ends_in_turn& how) {
  try {
    co_await waits_for(timer, how, true);
  } catch (const boost::system::system_error&) {
  }
  co_return 7;
}

task<> notes_end_of(task<> spawned, ends_in_turn& how) {
  try {
    co_await std::move(spawned);
  } catch (const vigil::stopped&) {
    how.stopped_afterwards = how.asio_ended.load();
    throw;
  }
}

// Whether f throws a std::runtime_error. Its text is not read: other threads may own the
// exception as well, and ThreadSanitizer does not see libstdc++ count its owners.
template <class F>
bool fails(F f) {
  try {
    f();
  } catch (const std::runtime_error&) {
    return true;
  }
  return false;
}

}  // namespace

TEST_SUITE("tasks and I/O") {
  TEST_CASE("a task reads and writes a stream in memory, to its end") {
    for_each_seed(5, [] {
      auto [a, b] = io::memory_pipe();
      memory near(std::move(a));
      memory far(std::move(b));
      auto t = spawn(echoes(near));
      std::string got;
      for (const std::string text : {"one", "and a longer one"}) {
        asio::write(far, asio::buffer(text));
        std::string back(text.size(), ' ');
        asio::read(far, asio::buffer(back));
        got += back;
      }
      CHECK(got == "oneand a longer one");
      error_code ignored;
      far.close_write(ignored);
      CHECK(t.join() == got.size());
    });
  }

  TEST_CASE("a select takes a channel or bytes, and leaves the other where it is") {
    in_virtual([] {
      auto [a, b] = io::memory_pipe();
      memory near(std::move(a));
      memory far(std::move(b));
      auto ch = vigil::make_channel<int>();
      const auto selects = [](memory& s, vigil::channel<int> from) -> task<std::string> {
        std::string taken;
        std::array<char, 8> room{};
        for (int i = 0; i < 3; ++i) {
          co_await co::select(
              vigil::on_recv(from, [&](std::optional<int> v) { taken += std::to_string(*v); }),
              io::on_read(
                  s, asio::buffer(room), [&](std::size_t n) { taken.append(room.data(), n); }),
              vigil::on_timeout(1s, [&] { taken += "time"; }));
          if (taken == "1") CHECK(room[0] == 0);
        }
        co_return taken;
      };
      auto t = spawn(selects(near, ch));
      ch.send(1);
      vigil::sleep_for(10ms);
      asio::write(far, asio::buffer("ab", 2));
      CHECK(t.join() == "1abtime");
    });
  }

  TEST_CASE("a stream's deadline, and a stop, end a read of a task") {
    in_virtual([] {
      auto [a, b] = io::memory_pipe();
      memory near(std::move(a));
      memory far(std::move(b));
      const auto start = clock::now();
      near.set_read_deadline(start + 5ms);
      CHECK(error_of([&] { spawn(echoes(near)).join(); }) == asio::error::timed_out);
      CHECK(since(start) == 5ms);
      near.set_read_deadline(clock::time_point::max());
      auto t = spawn(echoes(near));
      vigil::testing::settle();
      t.request_stop();
      CHECK_THROWS_AS(t.join(), vigil::cancelled);
      // The turn was given back.
      asio::write(far, asio::buffer("x", 1));
      char byte = 0;
      CHECK(near.read_some(asio::buffer(&byte, 1)) == 1);
    });
  }

  TEST_CASE("many tasks on sockets, with one worker and with several") {
    in_runtime({.workers = {1, 2, 4}}, [] {
      tcp::acceptor accepts(io::io_context(), {asio::ip::address_v4::loopback(), 0});
      const auto client = [](tcp::endpoint to, int laps) -> task<int> {
        tcp::socket raw(io::io_context());
        {
          io::pending<void> connects([&](auto token) { return raw.async_connect(to, token); });
          co_await io::co::result(connects);
        }
        io::deadline_stream<tcp::socket> s(std::move(raw));
        int good = 0;
        for (int i = 0; i < laps; ++i) {
          std::array<char, 4> room{};
          co_await io::co::write(s, asio::buffer("ping", 4));
          std::size_t n = 0;
          while (n < 4)
            n += co_await io::co::read_some(s, asio::buffer(room) + n);
          if (std::string(room.data(), 4) == "ping") ++good;
        }
        co_return good;
      };
      const auto serves = [](tcp::socket accepted) -> task<std::size_t> {
        io::deadline_stream<tcp::socket> s(std::move(accepted));
        co_return co_await echoes(s);
      };
      constexpr int clients = 8;
      const int laps = rounds(100);
      std::vector<task_handle<int>> all;
      std::vector<task_handle<std::size_t>> servers;
      for (int i = 0; i < clients; ++i)
        all.push_back(spawn(client(accepts.local_endpoint(), laps)));
      for (int i = 0; i < clients; ++i)
        servers.push_back(spawn(serves(accepts.async_accept(io::use_fiber))));
      for (auto& t : all)
        CHECK(t.join() == laps);
      for (auto& t : servers)
        CHECK(t.join() == static_cast<std::size_t>(4 * laps));
    });
  }

  TEST_CASE("a task awaits a coroutine of Asio's, and the other way round") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto on = io::io_context().get_executor();
      CHECK(spawn(io::co::spawned(on, of_asio(4))).join() == 5);
      CHECK(fails([&] { static_cast<void>(spawn(io::co::spawned(on, of_asio(0))).join()); }));
      CHECK(spawn(io::co::spawned(on, awaits_task(4))).join() == 9);
      CHECK(fails([&] { static_cast<void>(spawn(io::co::spawned(on, awaits_task(0))).join()); }));
      CHECK(io::async_run(of_vigil(3), io::use_fiber) == 6);
    });
  }

  TEST_CASE("a stop ends the coroutine of Asio's that a task awaits, and then the task") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto stops = [](auto on) {
        asio::steady_timer timer(on, 24h);
        ends_in_turn how;
        auto t = spawn(notes_end_of(io::co::spawned(on, waits_for(timer, how, false)), how));
        how.begun.wait();
        t.request_stop();
        CHECK_THROWS_AS(t.join(), vigil::cancelled);
        CHECK(how.asio_aborted);
        CHECK(how.stopped_afterwards);
      };
      stops(io::io_context().get_executor());
      stops(io::executor());
      asio::io_context elsewhere;
      const run_by_threads runs(elsewhere, 1);
      stops(elsewhere.get_executor());
    });
  }

  TEST_CASE("a stopped task waits for a coroutine of Asio's that goes on for a while") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto on = io::io_context().get_executor();
      asio::steady_timer timer(on, 24h);
      ends_in_turn how;
      auto t = spawn(notes_end_of(io::co::spawned(on, waits_for(timer, how, true)), how));
      how.begun.wait();
      t.request_stop();
      CHECK_FALSE(t.join_for(10ms));
      CHECK_FALSE(how.asio_ended);
      asio::post(on, [&] { timer.cancel(); });
      CHECK_THROWS_AS(t.join(), vigil::cancelled);
      CHECK(how.stopped_afterwards);
    });
  }

  // in_runtime() throws what comes to on_unhandled, as a pending's lost result would.
  TEST_CASE("the result of a coroutine of Asio's that came in spite of a stop is dropped") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto on = io::io_context().get_executor();
      asio::steady_timer timer(on, 24h);
      ends_in_turn how;
      auto t = spawn(io::co::spawned(on, succeeds_all_the_same(timer, how)));
      how.begun.wait();
      t.request_stop();
      CHECK_FALSE(t.join_for(10ms));
      asio::post(on, [&] { timer.cancel(); });
      CHECK_THROWS_AS(t.join(), vigil::cancelled);
      CHECK(how.asio_ended);
    });
  }

  TEST_CASE("stops at any moment leave no coroutine of Asio's behind") {
    in_runtime({.workers = {1, 2}}, [] {
      const auto on = io::io_context().get_executor();
      for (int i = 0; i < rounds(200); ++i) {
        asio::steady_timer timer(on, 24h);
        ends_in_turn how;
        {
          auto t = spawn(notes_end_of(io::co::spawned(on, waits_for(timer, how, false)), how));
          for (int turns = i % 5; turns > 0; --turns)
            vigil::this_fiber::yield();
        }
        // One that has not begun has nothing to end.
        CHECK(how.asio_ended == how.begun.try_wait());
      }
    });
  }

  TEST_CASE("an operation keeps its result while a task takes something else") {
    in_virtual([] {
      auto [a, b] = io::memory_pipe();
      memory far(std::move(b));
      auto ch = vigil::make_channel<int>(1);
      const auto selects = [](io::memory_stream& s, vigil::channel<int> from) -> task<> {
        std::array<char, 4> room{};
        io::pending<std::size_t> reads(
            [&](auto token) { return s.async_read_some(asio::buffer(room), token); });
        CHECK(co_await co::select(vigil::on_recv(from), io::on_result(reads)) == 0);
        CHECK(co_await io::co::result(reads) == 2);
        CHECK(room[1] == 'b');
      };
      ch.send(1);
      auto t = spawn(selects(a, ch));
      vigil::sleep_for(1ms);
      asio::write(far, asio::buffer("ab", 2));
      t.join();
    });
  }
}
