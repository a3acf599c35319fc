// The flight recorder on real time: what workers take from each other, when their threads
// sleep, and what other threads do.
#include "inspect/recorder_test.hpp"

#include <thread>

using namespace vigil::testing_support;

namespace {

std::vector<recorded_event> in_log(const recording& r, std::uint32_t log) {
  std::vector<recorded_event> all;
  for (const recorded_event& e : r.events) {
    if (e.log == log) all.push_back(e);
  }
  return all;
}

template <class F>
void recorded_on(unsigned workers, F body) {
  real_options setup{.workers = {workers}};
  setup.settings.recorder_events = 16 * 1024;
  in_runtime(setup, body);
}

// An event of a thread outside, with all that it has.
std::string act_of(event_kind kind, std::uint64_t value = 0, std::uint16_t detail = 0) {
  return std::to_string(static_cast<unsigned>(kind)) + ": " + std::to_string(value) + ", " +
         std::to_string(detail);
}

std::string act_of(event_kind kind, const vigil::timer& t) {
  const vigil::detail::split_nanos at(t.deadline().time_since_epoch().count());
  return act_of(kind, at.micros & vigil::detail::event::most, at.rest);
}

}  // namespace

TEST_SUITE("recorder") {
  TEST_CASE("a fiber that is stolen: how many were taken, and by which worker") {
    recorded_on(2, [](vigil::runtime& rt) {
      std::atomic<bool> has_run{false};
      std::uint64_t child = 0;
      auto f = vigil::spawn([&] {
        child = vigil::this_fiber::id();
        has_run.store(true);
      });
      // This worker goes on with nothing else, so the other one has to take it.
      while (!has_run.load()) {
      }
      f.join();
      const std::uint64_t main_fiber = vigil::this_fiber::id();
      const recording r = own_recording();
      std::uint64_t taken = 0;
      std::uint32_t ran_main = recording::outside;
      int found = 0;
      for (const std::uint32_t log : {0U, 1U}) {
        const auto events = in_log(r, log);
        for (std::size_t i = 0; i < events.size(); ++i) {
          if (events[i].kind == event_kind::run && events[i].value == main_fiber && found == 0)
            ran_main = log;
          if (events[i].kind != event_kind::steal) continue;
          CHECK(events[i].detail == 0);
          taken += events[i].value;
          if (i + 1 == events.size() || events[i + 1].value != child) continue;
          ++found;
          CHECK(events[i + 1].kind == event_kind::run);
          CHECK(events[i].value == 1);
          CHECK(log != ran_main);
        }
      }
      CHECK(found == 1);
      CHECK(taken == rt.stats().steals);
    });
  }

  TEST_CASE("a fiber's start and that it is ready are one moment") {
    recorded_on(1, [](vigil::runtime&) {
      constexpr int fibers = 100;
      for (int i = 0; i < fibers; ++i)
        vigil::spawn([] {}).join();
      const auto events = in_log(own_recording(), 0);
      int found = 0;
      for (std::size_t i = 0; i + 1 < events.size(); ++i) {
        if (events[i].kind != event_kind::start || events[i + 1].kind != event_kind::ready)
          continue;
        CHECK(events[i].value == events[i + 1].value);
        CHECK(events[i].time == events[i + 1].time);
        ++found;
      }
      CHECK(found >= fibers);
    });
  }

  TEST_CASE("a worker's sleeps: each with its wake, and nothing in between") {
    recorded_on(1, [](vigil::runtime& rt) {
      // A thread that loses its processor may find the deadline passed.
      while (rt.stats().kernel_waits < 3)
        vigil::sleep_for(2ms);
      const auto events = in_log(own_recording(), 0);
      std::uint64_t sleeps = 0;
      for (std::size_t i = 0; i < events.size(); ++i) {
        if (events[i].kind == event_kind::wake) {
          REQUIRE(i > 0);
          CHECK(events[i - 1].kind == event_kind::sleep);
        }
        if (events[i].kind != event_kind::sleep) continue;
        ++sleeps;
        REQUIRE(i + 1 < events.size());
        CHECK(events[i + 1].kind == event_kind::wake);
        CHECK(events[i + 1].time > events[i].time);
        CHECK(events[i].value == 0);
      }
      CHECK(sleeps == rt.stats().kernel_waits);
    });
  }

  TEST_CASE("what another thread does, and nothing else, is in its log") {
    recorded_on(1, [](vigil::runtime& rt) {
      auto ch = vigil::make_channel<int>();
      bool waits = false;
      auto receiver = vigil::spawn([&] {
        waits = true;
        static_cast<void>(ch.recv());
      });
      const std::uint64_t receiver_id = receiver.id();
      while (!waits)
        vigil::this_fiber::yield();  // the one worker: it goes on once the receiver parks
      std::vector<std::string> expected;
      std::uint64_t started = 0;
      auto over = vigil::make_channel<int>(1);
      std::thread([&] {
        ch.send(1);
        vigil::timer t = rt.after_func(1h, [] {});
        expected.push_back(act_of(event_kind::timer_armed, t));
        t.reset(2h);
        expected.push_back(act_of(event_kind::timer_reset, t));
        t.stop();
        rt.go([&] {
          started = vigil::this_fiber::id();
          over.send(1);
        });
      }).join();
      static_cast<void>(over.recv());
      receiver.join();
      expected.insert(expected.begin(), act_of(event_kind::ready, receiver_id));
      expected.push_back(act_of(event_kind::timer_stopped));
      expected.push_back(act_of(
          event_kind::start, started, static_cast<std::uint16_t>(vigil::detail::fiber_role::user)));
      expected.push_back(act_of(event_kind::ready, started));
      const recording r = own_recording();
      std::vector<std::string> seen;
      for (const recorded_event& e : in_log(r, recording::outside))
        seen.push_back(act_of(e.kind, e.value, e.detail));
      // Before them, the runtime's own: the fibers for timers, callbacks and main.
      constexpr std::size_t of_runtime = 4;
      REQUIRE(seen.size() == of_runtime + expected.size());
      CHECK(seen[of_runtime - 1] == act_of(event_kind::ready, vigil::this_fiber::id()));
      seen.erase(seen.begin(), seen.begin() + of_runtime);
      for (std::size_t i = 0; i < seen.size(); ++i)
        CHECK(seen[i] == expected[i]);
      CHECK(r.fibers.at(started).parent == 0);
    });
  }
}
