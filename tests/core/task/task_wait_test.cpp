// How the waits of a task end early: stops, contexts, the end of the run.
#include "core/task/task_test.hpp"
#include "support/dumped.hpp"
#include "support/note.hpp"

#include <string>

using namespace vigil::testing_support;
using vigil::cancelled;

namespace {

// Waits as the given task does, and notes what has left the co_await.
task<> notes_end(std::string& how, task<> wait) {
  try {
    co_await std::move(wait);
    how = "ended";
  } catch (const vigil::stopped&) {
    how = "stopped";
    throw;
  } catch (const cancelled&) {
    how = "cancelled";
    throw;
  }
}

}  // namespace

TEST_SUITE("task: waits") {
  TEST_CASE("a stop leaves each kind of wait as stopped, and join() throws cancelled") {
    in_virtual([] {
      auto ch = make_channel<int>();
      auto other = make_channel<int>();
      std::string how;
      const auto check = [&](task<> wait) {
        how.clear();
        auto t = spawn(notes_end(how, std::move(wait)));
        settle();
        CHECK(how.empty());
        t.request_stop();
        CHECK_THROWS_AS(t.join(), cancelled);
        CHECK(how == "stopped");
        CHECK_FALSE(ch.try_send(1));
        CHECK_FALSE(ch.try_recv());
      };
      check([&]() -> task<> { co_await co::sleep_for(1h); }());
      check([&]() -> task<> { static_cast<void>(co_await co::recv(ch)); }());
      check([&]() -> task<> { static_cast<void>(co_await co::recv_for(ch, 1h)); }());
      check([&]() -> task<> { co_await co::send(ch, 1); }());
      check([&]() -> task<> { co_await co::select(vigil::on_recv(ch), vigil::on_recv(other)); }());
      check([&]() -> task<> { co_await co::select(vigil::on_recv(ch), vigil::on_timeout(1h)); }());
    });
  }

  TEST_CASE("a stop that comes first lets what is ready complete, and refuses a wait") {
    in_virtual([] {
      auto ch = make_channel<int>(1);
      ch.send(1);
      std::vector<std::string> seen;
      const auto runs = [&]() -> task<> {
        const bool asked = co_await co::stop_requested();
        seen.emplace_back(asked ? "asked" : "not asked");
        if (const auto v = co_await co::recv(ch)) seen.emplace_back("value");
        try {
          co_await co::recv(ch);
        } catch (const vigil::stopped&) {
          seen.emplace_back("stopped");
        }
        try {
          co_await co::yield();
        } catch (const vigil::stopped&) {
          seen.emplace_back("again");
          throw;
        }
      };
      auto t = spawn(runs());
      t.request_stop();
      CHECK_THROWS_AS(t.join(), cancelled);
      CHECK(seen == std::vector<std::string>{"asked", "value", "stopped", "again"});
    });
  }

  TEST_CASE("the handle's destructor asks to stop, and waits for the end") {
    in_virtual([] {
      const auto start = clock::now();
      bool ended = false;
      {
        const auto t = spawn([](bool& over) -> task<> {
          try {
            co_await co::sleep_for(1h);
          } catch (const vigil::stopped&) {
            vigil::this_fiber::shield shielded;
            vigil::sleep_for(2ms);
            over = true;
          }
        }(ended));
        settle();
      }
      CHECK(ended);
      CHECK(since(start) == 2ms);
    });
  }

  TEST_CASE("a context that ends leaves the wait as cancelled") {
    in_virtual([] {
      auto ch = make_channel<int>();
      std::string how;
      auto [ctx, cancel] = vigil::with_cancel(vigil::background());
      const auto waits = [&, ctx = ctx]() -> task<> { co_await co::recv(ch, ctx); };
      auto t = spawn(notes_end(how, waits()));
      settle();
      cancel();
      CHECK_THROWS_AS(t.join(), cancelled);
      CHECK(how == "cancelled");
      CHECK_FALSE(ch.try_send(1));
      // One that is done already.
      how.clear();
      auto again = spawn(notes_end(how, waits()));
      CHECK_THROWS_AS(again.join(), cancelled);
      CHECK(how == "cancelled");
    });
  }

  TEST_CASE("a context's deadline, and a select on its end") {
    in_virtual([] {
      const auto start = clock::now();
      auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 5ms);
      std::string how;
      const auto sleeps = [ctx = ctx]() -> task<> { co_await co::sleep_for(1h, ctx); };
      auto t = spawn(notes_end(how, sleeps()));
      CHECK_THROWS_AS(t.join(), cancelled);
      CHECK(since(start) == 5ms);
      spawn([](vigil::context c) -> task<> {
        CHECK(co_await co::select(vigil::on_timeout(1h), vigil::on_done(c)) == 1);
      }(ctx))
          .join();
    });
  }

  TEST_CASE("the end of the run stops tasks, and waits for them") {
    std::string how;
    bool has_cleaned_up = false;
    in_virtual([&] {
      auto ch = make_channel<int>();
      vigil::go(notes_end(how, [](channel<int> c) -> task<> { co_await co::recv(c); }(ch)));
      vigil::go([](bool& over) -> task<> {
        struct clean_up {
          ~clean_up() { done = true; }

          bool& done;
        } const at_end{over};

        for (;;)
          co_await co::sleep_for(1s);
      }(has_cleaned_up));
      settle();
    });
    CHECK(how == "stopped");
    CHECK(has_cleaned_up);
  }

  TEST_CASE("a program that ends when all is done waits for its tasks") {
    bool ended = false;
    vigil::options settings;
    settings.exit = vigil::exit_when::all_done;
    in_virtual({.seed = 1, .runtime = settings}, [&] {
      vigil::go([](bool& over) -> task<> {
        co_await co::sleep_for(1h);
        over = true;
      }(ended));
    });
    CHECK(ended);
  }

  TEST_CASE("tasks that wait for ever are a deadlock") {
    vigil::options settings;
    settings.deadlock = vigil::on_deadlock::fatal;
    bool was_stopped = false;
    CHECK_THROWS_AS(in_virtual({.seed = 1, .runtime = settings},
                               [&] {
                                 auto ch = make_channel<int>();
                                 auto t = spawn([](channel<int> c, bool& over) -> task<> {
                                   try {
                                     co_await co::recv(c);
                                   } catch (const vigil::stopped&) {
                                     over = true;
                                     throw;
                                   }
                                 }(ch, was_stopped));
                                 t.join();
                               }),
                    vigil::deadlock);
    CHECK(was_stopped);
  }

  TEST_CASE("the dump lists tasks with the reason of their waits") {
    in_virtual([] {
      auto ch = make_channel<int>();
      auto t = spawn([](channel<int> c) -> task<> { co_await co::recv(c); }(ch));
      vigil::sleep_for(3s);
      const std::string text = dumped();
      NOTE(text);
      const std::string wait = "task 1 [parked: channel receive, for 3.000 s] started at ";
      REQUIRE(text.find(wait) != std::string::npos);
      CHECK(text.find("task_wait_test.cpp:", text.find(wait)) != std::string::npos);
      ch.close();
    });
  }

  TEST_CASE("the dump tells a task that runs from one that is ready, or that has yielded") {
    in_virtual([] {
      const auto dumps = [](std::string& text) -> task<> {
        text = dumped();
        co_return;
      };
      const auto yields = []() -> task<> {
        for (int i = 0; i < 100; ++i)
          co_await co::yield();
      };
      std::string text;
      auto yielding = spawn(yields());
      vigil::this_fiber::yield();
      auto ready = spawn(yields());
      auto running = spawn(dumps(text));
      running.join();
      NOTE(text);
      CHECK(text.find("task 1 [runnable] started at ") != std::string::npos);
      CHECK(text.find("task 2 [runnable] started at ") != std::string::npos);
      CHECK(text.find("task 3 [running] started at ") != std::string::npos);
      yielding.join();
      ready.join();
    });
  }

  TEST_CASE("of very many tasks the dump shows 1024") {
    in_virtual([] {
      std::vector<task_handle<>> all;
      for (int i = 0; i < 1'030; ++i)
        all.push_back(spawn([]() -> task<> { co_await co::sleep_for(1h); }()));
      const std::string text = dumped();
      CHECK(text.find("\ntask 1024 [") != std::string::npos);
      CHECK(text.find("\ntask 1025 [") == std::string::npos);
      CHECK(text.find("\n... and 6 more tasks\n") != std::string::npos);
      for (auto& t : all)
        t.request_stop();
    });
  }

  TEST_CASE("a stop ends a wait of a fiber inside a task as well") {
    in_virtual([] {
      const auto start = clock::now();
      auto ch = make_channel<int>();
      auto t = spawn([](channel<int> c) -> task<> {
        co_await co::yield();
        static_cast<void>(c.recv());
      }(ch));
      settle();
      t.request_stop();
      CHECK_THROWS_AS(t.join(), cancelled);
      auto late = spawn([]() -> task<> {
        vigil::sleep_for(1h);
        co_return;
      }());
      late.request_stop();  // before it begins
      CHECK_THROWS_AS(late.join(), cancelled);
      // The runner serves others afterwards.
      spawn([]() -> task<> {
        vigil::sleep_for(1ms);
        co_return;
      }())
          .join();
      CHECK(since(start) == 1ms);
    });
  }

  TEST_CASE("thousands of tasks may clean up in fiber waits as they are stopped") {
    int cleaned = 0;
    in_virtual([&] {
      for (int i = 0; i < 3000; ++i) {
        vigil::go([](int& count) -> task<> {
          try {
            co_await co::sleep_for(1h);
          } catch (const vigil::stopped&) {
            try {
              vigil::this_fiber::yield();
            } catch (const vigil::stopped&) {
              ++count;
            }
            throw;
          }
        }(cleaned));
      }
      settle();
    });
    CHECK(cleaned == 3000);
  }

  TEST_CASE("a send that is out of time leaves an rvalue in the caller's hand") {
    in_virtual([] {
      auto ch = make_channel<std::unique_ptr<int>>();
      spawn([](channel<std::unique_ptr<int>> c) -> task<> {
        auto value = std::make_unique<int>(1);
        CHECK((co_await co::send_for(c, std::move(value), 1ms)).is_timeout());
        CHECK(value != nullptr);
      }(ch))
          .join();
    });
  }

  TEST_CASE("a fiber selects from the ends of tasks") {
    in_virtual([] {
      auto slow = spawn([]() -> task<int> {
        co_await co::sleep_for(1h);
        co_return 1;
      }());
      auto fast = spawn([]() -> task<int> {
        co_await co::sleep_for(1ms);
        co_return 2;
      }());
      int got = 0;
      CHECK(vigil::select(vigil::on_join(slow), vigil::on_join(fast, [&](int v) { got = v; })) ==
            1);
      CHECK(got == 2);
      CHECK_FALSE(fast.joinable());
      CHECK(slow.joinable());
      spawn([](task_handle<int>& of) -> task<> {
        CHECK(co_await co::select(vigil::on_join(of), vigil::on_timeout(1ms)) == 1);
      }(slow))
          .join();
    });
  }
}
