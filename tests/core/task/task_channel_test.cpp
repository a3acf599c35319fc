// Tasks and fibers at the two ends of channels, and select.
#include "core/task/task_test.hpp"

using namespace vigil::testing_support;

TEST_SUITE("task: channels") {
  TEST_CASE("values go from task to task, from task to fiber and back") {
    for_each_seed(10, [] {
      auto there = make_channel<int>();
      auto back = make_channel<int>(2);
      const auto echo = [](channel<int> from, channel<int> to) -> task<> {
        while (const std::optional<int> v = co_await co::recv(from))
          co_await co::send(to, *v + 1);
        to.close();
      };
      const auto sends = [](channel<int> to) -> task<> {
        for (int i = 0; i < 20; ++i)
          co_await co::send(to, i);
        to.close();
      };
      auto e = spawn(echo(there, back));
      auto s = spawn(sends(there));
      int next = 1;
      for (const int v : back)
        CHECK(v == next++);
      CHECK(next == 21);
      e.join();
      s.join();
    });
  }

  TEST_CASE("a receive that is closed or out of time says so, and leaves nothing behind") {
    in_virtual([] {
      auto ch = make_channel<int>();
      spawn([](channel<int> c) -> task<> {
        const auto start = clock::now();
        auto late = co_await co::recv_for(c, 5ms);
        CHECK(late.is_timeout());
        CHECK(since(start) == 5ms);
        CHECK((co_await co::recv_for(c, 0ms)).is_timeout());
        CHECK_FALSE(c.try_send(1));  // no waiter was left
        c.close();
        CHECK((co_await co::recv_for(c, 5ms)).is_closed());
        CHECK_FALSE((co_await co::recv(c)).has_value());
      }(ch))
          .join();
    });
  }

  TEST_CASE("a send that is out of time keeps no value, and a closed channel throws") {
    in_virtual([] {
      auto ch = make_channel<int>();
      spawn([](channel<int> c) -> task<> {
        CHECK((co_await co::send_for(c, 1, 5ms)).is_timeout());
        CHECK_FALSE(c.try_recv());
        c.close();
        bool threw = false;
        try {
          co_await co::send(c, 2);
        } catch (const vigil::channel_closed&) {
          threw = true;
        }
        CHECK(threw);
      }(ch))
          .join();
    });
  }

  TEST_CASE("the channel of a timer works in a task") {
    in_virtual([] {
      const auto start = clock::now();
      spawn([start]() -> task<> {
        vigil::ticker beat(10ms);
        for (int i = 1; i <= 3; ++i) {
          co_await co::recv(beat.channel());
          CHECK(since(start) == i * 10ms);
        }
        auto end = vigil::after(7ms);
        co_await co::recv(end);
        CHECK(since(start) == 37ms);
      }())
          .join();
    });
  }

  TEST_CASE("select takes what is ready, what comes first, or the time") {
    for_each_seed(10, [] {
      auto a = make_channel<int>();
      auto b = make_channel<int>(1);
      b.send(4);
      const auto selects = [&]() -> task<std::vector<std::size_t>> {
        std::vector<std::size_t> taken;
        int got = 0;
        const auto once = [&] {
          return co::select(
              vigil::on_recv(a, [&](std::optional<int> v) { got += v.value_or(100); }),
              vigil::on_recv(b, [&](std::optional<int> v) { got += v.value_or(100); }),
              vigil::on_timeout(3ms, [&] { got += 1000; }));
        };
        taken.push_back(co_await once());  // b is ready
        taken.push_back(co_await once());  // the time
        taken.push_back(co_await once());  // a, from the fiber
        CHECK(got == 4 + 1000 + 1);
        CHECK(co_await co::select(vigil::on_recv(a), vigil::otherwise()) == 1);
        co_return taken;
      };
      auto t = spawn(selects());
      vigil::sleep_for(5ms);
      a.send(1);
      CHECK(t.join() == std::vector<std::size_t>{1, 2, 0});
      CHECK_FALSE(a.try_send(1));  // no waiter was left
      CHECK(b.try_send(1));
    });
  }

  TEST_CASE("an exception of a case's function comes out of co_await") {
    in_virtual([] {
      auto ch = make_channel<int>(1);
      ch.send(1);
      const auto throws = [&]() -> task<> {
        co_await co::select(vigil::on_recv(ch, [](auto) { throw std::runtime_error("inside"); }));
      };
      CHECK_THROWS_WITH(spawn(throws()).join(), "inside");
    });
  }

  TEST_CASE("a nil channel is never ready, and one that is switched off neither") {
    in_virtual([] {
      const auto start = clock::now();
      spawn([start]() -> task<> {
        const channel<int> nil;
        CHECK((co_await co::recv_for(nil, 5ms)).is_timeout());
        CHECK(since(start) == 5ms);
        CHECK(co_await co::select(vigil::on_recv(nil), vigil::on_timeout(5ms)) == 1);
        CHECK(since(start) == 10ms);
      }())
          .join();
    });
  }

  TEST_CASE("tasks wait for tasks, with a limit too") {
    in_virtual([] {
      spawn([]() -> task<> {
        const auto start = clock::now();
        auto slow = spawn([]() -> task<int> {
          co_await co::sleep_for(10ms);
          co_return 5;
        }());
        CHECK_FALSE(co_await co::join_for(slow, 4ms));
        CHECK(slow.joinable());
        CHECK(co_await co::join_for(slow, 1h));
        CHECK(co_await co::join(slow) == 5);
        CHECK_FALSE(slow.joinable());
        CHECK(since(start) == 10ms);
        auto failing = spawn([]() -> task<> {
          co_await co::yield();
          throw std::runtime_error("bad");
        }());
        bool threw = false;
        try {
          co_await co::join(failing);
        } catch (const std::runtime_error&) {
          threw = true;
        }
        CHECK(threw);
      }())
          .join();
    });
  }
}
