#include "core/clocks/clocks_test.hpp"

#include <vigil/co.hpp>

namespace {

using namespace vigil::testing_support;
using wall_timer = vigil::wall::timer;

}  // namespace

TEST_SUITE("timers on other clocks, with a channel") {
  TEST_CASE("the deadline is received when the wall clock reads it, exactly") {
    in_virtual([] {
      const wall_timer t(wall_start + 1h);
      CHECK(t.deadline() == wall_start + 1h);
      CHECK_FALSE(t.channel().try_recv());
      CHECK(in_heap() == 0);  // nobody waits
      CHECK(t.channel().recv() == wall_start + 1h);
      CHECK(wall_clock::now() == wall_start + 1h);
      CHECK(t.deadline() == wall_time::max());
      const wall_timer past(wall_start);
      vigil::sleep_for(1h);
      CHECK(past.channel().recv() == wall_start);
      CHECK_FALSE(past.channel().try_recv());
    });
  }

  TEST_CASE("a receiver that waits follows the steps") {
    for_each_seed(20, [] {
      const auto start = vigil::clock::now();
      const wall_timer t(wall_start + 1h);
      std::optional<wall_time> got;
      auto receiver = vigil::spawn([&] { got = t.channel().recv(); });
      vigil::sleep_for(50min);
      step_wall(-30min);
      vigil::sleep_for(35min);
      CHECK_FALSE(got.has_value());
      CHECK(in_heap() == 1);
      step_wall(5min);
      receiver.join();
      CHECK(since(start) == 85min);
      CHECK(got == wall_start + 1h);
    });
  }

  TEST_CASE("without a receiver a look at the channel reads the clock as it is") {
    in_virtual([] {
      const wall_timer t(wall_start + 1h);
      vigil::sleep_for(2h);
      step_wall(-90min);
      CHECK_FALSE(t.channel().try_recv());  // it was due, and waits again
      CHECK(t.stop());
      CHECK_FALSE(t.reset(wall_start + 45min));
      step_wall(15min);
      CHECK(t.channel().try_recv().value() == wall_start + 45min);
      CHECK_FALSE(t.channel().try_recv());
    });
  }

  TEST_CASE("of several that a step makes due each is received once") {
    for_each_seed(20, [] {
      std::vector<wall_timer> timers;
      std::vector<vigil::fiber<>> receivers;
      int received = 0;
      for (int i = 1; i <= 50; ++i)
        timers.emplace_back(wall_start + i * 1min);
      for (const wall_timer& t : timers) {
        receivers.push_back(vigil::spawn([&received, t] {
          t.channel().recv();
          ++received;
        }));
      }
      settle();
      CHECK(in_heap() == 50);
      step_wall(25min);
      settle();
      CHECK(received == 25);
      step_wall(-25min);
      settle();
      CHECK(received == 25);
      step_wall(1h);
      for (auto& r : receivers)
        r.join();
      CHECK(received == 50);
      for (const wall_timer& t : timers)
        CHECK_FALSE(t.channel().try_recv());
    });
  }

  TEST_CASE("a timer on boot time counts suspend") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const auto booted = boot_clock::now();
      const vigil::boot::timer t(booted + 8h);
      auto receiver = vigil::spawn([&] { CHECK(t.channel().recv() == booted + 8h); });
      vigil::sleep_for(1h);
      suspend_for(7h);
      receiver.join();
      CHECK(since(start) == 1h);
    });
  }

  TEST_CASE("stop and reset say whether the value was pending") {
    in_virtual([] {
      const wall_timer t(wall_start + 1h);
      CHECK(t.stop());
      CHECK_FALSE(t.stop());
      CHECK(t.deadline() == wall_time::max());
      CHECK_FALSE(t.reset(wall_start + 1h));
      CHECK(t.reset(wall_start + 2h));
      vigil::sleep_for(3h);
      CHECK(t.reset(wall_start + 4h));  // it was due
      CHECK_FALSE(t.channel().try_recv());
      CHECK(t.channel().recv() == wall_start + 4h);
      CHECK_FALSE(t.stop());
      CHECK_FALSE(t.reset(wall_start));
      CHECK(t.stop());  // due, not received
      CHECK_FALSE(t.channel().try_recv());
    });
  }

  TEST_CASE("a receiver waits across stop and reset") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      const wall_timer t(wall_start + 1h);
      auto receiver = vigil::spawn([&] { CHECK(t.channel().recv() == wall_start + 3h); });
      settle();
      CHECK(t.stop());
      CHECK(in_heap() == 0);
      step_wall(2h);
      settle();
      CHECK_FALSE(t.reset(wall_start + 5h));
      CHECK(t.reset(wall_start + 3h));
      receiver.join();
      CHECK(since(start) == 1h);
    });
  }

  TEST_CASE("a select takes it beside others, and leaves nothing behind") {
    in_virtual([] {
      auto lines = vigil::make_channel<int>(1);
      const wall_timer t(wall_start + 1h);
      const auto which = [&] {
        return vigil::select(vigil::on_recv(lines, [] {}), vigil::on_recv(t.channel(), [] {}));
      };
      lines.send(1);
      CHECK(which() == 0);
      CHECK(in_heap() == 0);
      auto stepper = vigil::spawn([] { step_wall(1h); });
      CHECK(which() == 1);
      stepper.join();
      CHECK(in_heap() == 0);
    });
  }

  TEST_CASE("a task awaits it as it awaits any channel") {
    in_virtual([] {
      const auto start = vigil::clock::now();
      auto task = vigil::spawn([]() -> vigil::task<wall_time> {
        const wall_timer t(wall_start + 1h);
        co_return *co_await vigil::co::recv(t.channel());
      }());
      vigil::sleep_for(30min);
      step_wall(30min);
      CHECK(task.join() == wall_start + 1h);
      CHECK(since(start) == 30min);
    });
  }

  TEST_CASE("dropping the handle frees the timer, and its receiver keeps it") {
    in_virtual([] {
      { const wall_timer abandoned(wall_start + 1h); }
      CHECK(wall_timer(wall_start + 1h).channel().recv() == wall_start + 1h);
      step_wall(1h);
    });
  }

  TEST_CASE("the largest time is never received") {
    in_virtual([] {
      const wall_timer t(wall_time::max());
      CHECK(t.deadline() == wall_time::max());
      CHECK(t.channel().recv_for(1h).is_timeout());
      step_wall(std::chrono::hours(1'000'000));
      CHECK(t.channel().recv_for(1h).is_timeout());
      CHECK(t.stop());  // pending all the same
      const wall_timer past(wall_time::min());
      CHECK(past.channel().recv() == wall_time::min());
    });
  }

  TEST_CASE("an empty handle, and a thread without a runtime") {
    const wall_timer empty;
    CHECK_FALSE(static_cast<bool>(empty));
    CHECK_FALSE(empty.stop());
    CHECK_FALSE(empty.stop_and_wait());
    CHECK(empty.deadline() == wall_time::max());
    CHECK_THROWS_AS(empty.reset(wall_time()), std::logic_error);
    CHECK_FALSE(empty.has_ref());
    empty.unref();
    CHECK_THROWS_AS(wall_timer{wall_clock::now()}, vigil::wrong_place);
    CHECK_THROWS_AS(vigil::wall::after_func_at(wall_clock::now(), [] {}), vigil::wrong_place);
    CHECK_THROWS_AS(vigil::ticker::aligned(1s), vigil::wrong_place);
  }

  TEST_CASE("a handle that outlives its runtime stops nothing, and its channel is closed") {
    std::optional<wall_timer> of_channel;
    std::optional<wall_timer> of_callback;
    std::optional<vigil::aligned_ticker> ticks;
    int ran = 0;
    in_virtual([&] {
      of_channel.emplace(wall_start + 1h);
      of_callback.emplace(vigil::wall::after_func_at(wall_start + 1h, [&ran] { ++ran; }));
      ticks.emplace(vigil::ticker::aligned(1s));
    });
    CHECK_FALSE(of_callback->stop());
    CHECK(of_callback->deadline() == wall_time::max());
    CHECK_THROWS_AS(of_callback->reset(wall_start), vigil::runtime_gone);
    CHECK_FALSE(of_channel->stop());
    CHECK(of_channel->deadline() == wall_time::max());
    CHECK_THROWS_AS(of_channel->reset(wall_start), vigil::runtime_gone);
    CHECK_FALSE(of_channel->channel().recv().has_value());
    CHECK_THROWS_AS(ticks->reset(1s), vigil::runtime_gone);
    CHECK_FALSE(ticks->stop());
    CHECK(ran == 0);
  }
}
