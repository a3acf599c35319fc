// The budget of a turn, for tasks: an await that is served at once lets others go first
// now and then.
#include "core/task/task_test.hpp"

#include <string>

using namespace vigil::testing_support;
using vigil::on_recv;
using vigil::on_timeout;
using vigil::otherwise;

namespace {

constexpr int many = 5000;  // more than two budgets

// Runs the task that loop(stop) makes, beside a fiber that is ready, and sets stop. Then
// returns how often loop counted.
template <class F>
int awaits_before_others(F loop) {
  bool stop = false;
  int awaits = 0;
  auto looping = spawn(loop(stop, awaits));
  auto other = vigil::spawn([&] { stop = true; });
  looping.join();
  other.join();
  return awaits;
}

template <class F>
void check_gives_way(const char* what, F loop) {
  // The fiber may have its turn before the task.
  int most = 0;
  for (int i = 0; i < 8; ++i)
    most = std::max(most, awaits_before_others(loop));
  CHECK_MESSAGE(most < many, what, " never gives the worker away");
  CHECK_MESSAGE(most > 80, what, " gives it away too soon");
}

task<> child() {
  co_return;
}

task<int> child_that_throws() {
  throw std::runtime_error("child");
  co_return 1;
}

}  // namespace

TEST_SUITE("task: a turn's budget") {
  TEST_CASE("awaits that are served at once give the worker away") {
    in_virtual([] {
      check_gives_way("co::send and co::recv", [](bool& stop, int& awaits) -> task<> {
        const auto c = make_channel<int>(1);
        for (; !stop && awaits < many; ++awaits) {
          co_await co::send(c, 1);
          co_await co::recv(c);
        }
      });
      check_gives_way("co::recv_for", [](bool& stop, int& awaits) -> task<> {
        const auto c = make_channel<int>(1);
        for (; !stop && awaits < many; ++awaits) {
          const auto got = co_await co::recv_for(c, 0s);
          if (got) co_return;
        }
      });
      check_gives_way("co::select", [](bool& stop, int& awaits) -> task<> {
        const auto c = make_channel<int>(1);
        for (; !stop && awaits < many; ++awaits)
          co_await co::select(on_recv(c), otherwise());
      });
      check_gives_way("co::lock", [](bool& stop, int& awaits) -> task<> {
        vigil::mutex m;
        for (; !stop && awaits < many; ++awaits) {
          const auto lock = co_await co::lock(m);
        }
      });
      check_gives_way("an awaited task", [](bool& stop, int& awaits) -> task<> {
        for (; !stop && awaits < many; ++awaits)
          co_await child();
      });
      check_gives_way("an awaited task that throws", [](bool& stop, int& awaits) -> task<> {
        for (; !stop && awaits < many; ++awaits) {
          bool threw = false;
          try {
            co_await child_that_throws();
          } catch (const std::runtime_error&) {
            threw = true;
          }
          CHECK(threw);
        }
      });
      check_gives_way("a fiber's wait in a task", [](bool& stop, int& awaits) -> task<> {
        for (; !stop && awaits < many; ++awaits)
          vigil::sleep_for(0s);
        co_return;
      });
    });
  }

  TEST_CASE("two tasks on one runner have their turns") {
    in_virtual([] {
      int done = 0;
      const auto loops = [](int& ended) -> task<> {
        const auto c = make_channel<int>(1);
        const int before = ended;
        for (int i = 0; i < many; ++i) {
          co_await co::send(c, 1);
          co_await co::recv(c);
        }
        CHECK(ended == before);  // the other is at work as well
        ++ended;
      };
      auto one = spawn(loops(done));
      auto two = spawn([](int& ended) -> task<> {
        for (int i = 0; i < 4; ++i)
          co_await co::yield();
        CHECK(ended == 0);
      }(done));
      one.join();
      two.join();
      CHECK(done == 1);
    });
  }

  TEST_CASE("options::turn_budget = 0 turns it off") {
    vigil::testing::virtual_options o;
    o.runtime.turn_budget = 0;
    vigil::testing::run_virtual(o, [] {
      int most = 0;
      for (int i = 0; i < 8; ++i) {
        most = std::max(most, awaits_before_others([](bool& stop, int& awaits) -> task<> {
                          const auto c = make_channel<int>(1);
                          for (; !stop && awaits < many; ++awaits) {
                            co_await co::send(c, 1);
                            co_await co::recv(c);
                          }
                        }));
      }
      CHECK(most == many);
    });
  }

  TEST_CASE("a guard that lives across awaits that are served at once is no error, and keeps it") {
    in_virtual([] {
      const auto guarded = [](bool& had_turn) -> task<> {
        const auto c = make_channel<int>(1);
        const vigil::this_fiber::shield shield;
        const vigil::this_fiber::no_park stays;
        for (int i = 0; i < many; ++i) {
          co_await co::send(c, 1);
          co_await co::recv(c);
          co_await child();
          co_await co::select(on_recv(c), otherwise());
        }
        CHECK_FALSE(had_turn);
      };
      bool had_turn = false;
      auto t = spawn(guarded(had_turn));
      auto other = spawn([&] {
        t.join();
        had_turn = true;
      });
      other.join();
    });
  }

  TEST_CASE("it is no stop: a task that was asked to stop drains its channel, in turns") {
    in_virtual([] {
      const auto c = make_channel<int>(many);
      for (int i = 0; i < many; ++i)
        c.send(i);
      int received = 0;
      bool had_turn = false;
      auto drain = spawn([](channel<int> from, int& count, bool& others) -> task<> {
        bool is_stopped = false;
        try {
          co_await co::sleep_for(1h);
        } catch (const vigil::stopped&) {
          is_stopped = true;
        }
        CHECK(is_stopped);
        vigil::go([&others] { others = true; });
        for (;;) {
          const auto got = co_await co::recv_for(from, 0s);
          if (!got) break;
          ++count;
        }
        CHECK(others);
      }(c, received, had_turn));
      vigil::testing::settle();
      drain.request_stop();
      drain.join();
      CHECK(received == many);
    });
  }
}

namespace {

// A runtime in which nearly each await gives way.
template <class F>
void with_little(F body) {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u}) {
    vigil::testing::virtual_options o;
    o.seed = seed;
    o.runtime.turn_budget = 1;
    vigil::testing::run_virtual(o, body);
  }
}

}  // namespace

TEST_SUITE("task: an await that gives way") {
  TEST_CASE("values, closes, timeouts, stops and cancels are those of any other") {
    with_little([] {
      const auto c = make_channel<int>(1);
      const auto none = make_channel<int>();
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      auto t = spawn([](channel<int> buffer, channel<int> empty, vigil::context under) -> task<> {
        for (int i = 0; i < 5; ++i) {
          co_await co::send(buffer, i);
          const std::optional<int> got = co_await co::recv(buffer);
          CHECK(got == i);
          const auto begin = vigil::clock::now();
          const auto nothing = co_await co::recv_for(empty, 3ms);
          CHECK_FALSE(static_cast<bool>(nothing));
          CHECK(vigil::clock::now() - begin == 3ms);
          const std::size_t taken = co_await co::select(on_recv(empty), on_timeout(3ms));
          CHECK(taken == 1);
          CHECK(vigil::clock::now() - begin == 6ms);
          co_await co::sleep_for(3ms);
          CHECK(vigil::clock::now() - begin == 9ms);
        }
        bool was_cancelled = false;
        try {
          co_await co::recv(empty, under);
        } catch (const vigil::cancelled&) {
          was_cancelled = true;
        }
        CHECK(was_cancelled);
        was_cancelled = false;
        try {
          co_await co::recv(empty, under);
        } catch (const vigil::cancelled&) {
          was_cancelled = true;
        }
        CHECK(was_cancelled);
        buffer.close();
        const std::optional<int> end = co_await co::recv(buffer);
        CHECK_FALSE(end.has_value());
        bool was_closed = false;
        try {
          co_await co::send(buffer, 1);
        } catch (const vigil::channel_closed&) {
          was_closed = true;
        }
        CHECK(was_closed);
      }(c, none, ctx));
      vigil::sleep_for(1s);
      cancel();
      t.join();
    });
  }

  TEST_CASE("a stop that is asked for meanwhile is thrown where it waits") {
    with_little([] {
      const auto none = make_channel<int>();
      for (int yields = 0; yields < 12; ++yields) {
        int stops = 0;
        auto t = spawn([](channel<int> empty, int& count) -> task<> {
          for (int i = 0; i < 4; ++i) {
            try {
              if (i == 1) {
                co_await co::select(on_recv(empty), on_timeout(1h));
              } else if (i == 2) {
                co_await co::sleep_for(1h);
              } else {
                co_await co::recv(empty);
              }
            } catch (const vigil::stopped&) {
              ++count;
            }
          }
          throw vigil::stopped();
        }(none, stops));
        for (int i = 0; i < yields; ++i)
          vigil::this_fiber::yield();
        t.request_stop();
        CHECK_THROWS_AS(t.join(), vigil::cancelled);
        CHECK(stops == 4);
      }
    });
  }

  TEST_CASE("with several workers tasks and fibers hand over each value once") {
    vigil::options o;
    o.turn_budget = 1;
    in_runtime({.workers = {1, 2, 4}, .settings = o}, [] {
      const auto c = make_channel<int>(3);
      vigil::mutex m;
      int sum = 0;
      std::vector<vigil::task_handle<void>> all;
      const int each = rounds(2000);
      for (int i = 0; i < 4; ++i) {
        all.push_back(spawn([](channel<int> to, int most) -> task<> {
          for (int n = 1; n <= most; ++n) {
            co_await co::send(to, n);
            co_await child();
          }
        }(c, each)));
        all.push_back(
            spawn([](channel<int> from, vigil::mutex& by, int& total, int most) -> task<> {
              for (int n = 1; n <= most; ++n) {
                const std::optional<int> got = co_await co::recv(from);
                const auto lock = co_await co::lock(by);
                total += *got;
              }
            }(c, m, sum, each)));
      }
      for (auto& t : all)
        t.join();
      CHECK(sum == 4 * (each * (each + 1) / 2));
    });
  }
}
