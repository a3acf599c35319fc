// Tasks: a wait may end before the coroutine has left its runner's stack (TK1, TW1, TW2),
// and no ready task is left without a runner (TV1).
#include "instants.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/co.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

namespace co = vigil::co;
using programs::brief;
using programs::let_the_other_rest;
using programs::run_with_outside_work;
using vigil::channel;
using vigil::task;
using vigil::task_handle;

namespace {

task<int> receives(channel<int> from) {
  co_return (co_await co::recv(from)).value_or(0);
}

task<int> receives_briefly(channel<int> from) {
  const auto got = co_await co::recv_for(from, brief);
  co_return got ? *got : -1;
}

// True if a stop has ended it.
bool joins_stopped(task_handle<int>& t) {
  try {
    model::require(t.join() == 1, "the value that was sent");
    return false;
  } catch (const vigil::cancelled&) {
    return true;
  }
}

}  // namespace

TEST_CASE("task: a value that comes as the task is about to be suspended resumes it") {
  prove("task: a thread sends as it begins to wait", [] {
    run_with_outside_work(1, [] {
      auto ch = vigil::make_channel<int>();
      const model::window looked_at;
      std::thread sender([&] { ch.send(1); });
      model::require(vigil::spawn(receives(ch)).join() == 1, "the value");
      sender.join();
    });
  });
}

TEST_CASE("task: a value, a stop: one ends the wait, and no value is lost") {
  model::take_outcomes();
  prove("task: a thread sends, its owner stops it", [] {
    run_with_outside_work(1, [] {
      auto ch = vigil::make_channel<int>();
      auto t = vigil::spawn(receives(ch));
      vigil::this_fiber::yield();  // it waits
      const model::window looked_at;
      bool was_sent = false;
      std::thread sender([&] { was_sent = static_cast<bool>(ch.try_send(1)); });
      t.request_stop();
      const bool was_stopped = joins_stopped(t);
      sender.join();
      model::require(was_sent != was_stopped, "the value, or the stop");
      model::note_outcome(was_stopped ? "stop" : "value");
    });
  });
  expect_outcomes({"stop", "value"});
}

TEST_CASE("task: a stop and the opening of a wait see one another") {
  prove("task: a thread stops it as it begins to wait", [] {
    run_with_outside_work(1, [] {
      auto ch = vigil::make_channel<int>();
      auto t = vigil::spawn(receives(ch));
      const model::window looked_at;
      std::thread stopper([&] { t.request_stop(); });
      vigil::this_fiber::yield();
      stopper.join();
      model::require(joins_stopped(t), "it was stopped");
    });
  });
}

TEST_CASE("task: a value, a deadline: one ends the wait, and no value is lost") {
  model::take_outcomes();
  prove("task: a thread sends against a deadline", [] {
    run_with_outside_work(1, [] {
      auto ch = vigil::make_channel<int>();
      const model::window looked_at;
      bool was_sent = false;
      std::thread sender([&] { was_sent = static_cast<bool>(ch.try_send(1)); });
      const int got = vigil::spawn(receives_briefly(ch)).join();
      sender.join();
      model::require(was_sent == (got == 1), "the value, or the deadline");
      model::note_outcome(was_sent ? "value" : "deadline");
    });
  });
  expect_outcomes({"deadline", "value"});
}

TEST_CASE("task: one that is readied as the last runner goes idle has a runner") {
  prove("task: a thread wakes a task as another ends, two workers", [] {
    run_with_outside_work(2, [] {
      auto ch = vigil::make_channel<int>();
      auto first = vigil::spawn(receives(ch));
      vigil::this_fiber::yield();
      let_the_other_rest();
      const model::window looked_at;
      std::thread sender([&] { ch.send(1); });
      const auto at_once = []() -> task<int> { co_return 2; };
      model::require(vigil::spawn(at_once()).join() == 2, "the second");
      sender.join();
      model::require(first.join() == 1, "the first");
    });
  });
}

TEST_CASE("task: its end, and the wait for it: the joiner goes on, and frees it") {
  prove("task: ends on another worker, joined", [] {
    run_with_outside_work(2, [] {
      auto ch = vigil::make_channel<int>(1);
      auto t = vigil::spawn(receives(ch));
      vigil::this_fiber::yield();
      let_the_other_rest();
      const model::window looked_at;
      std::thread sender([&] { ch.send(1); });
      static_cast<void>(t.join_for(brief));
      model::require(t.join() == 1, "the result");
      sender.join();
    });
  });
}
