// A handle of a callback or a channel, on either clock, beside its model: what it says is
// what the model expects.
#pragma once

#include "fuzz/clock_model.hpp"
#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/clocks.hpp>
#include <vigil/error.hpp>
#include <vigil/testing.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <type_traits>

namespace fuzz {

template <class Handle>
nanos deadline_of(const Handle& h) {
  return h.deadline().time_since_epoch().count();
}

template <class Clock>
typename Clock::time_point on(nanos time) {
  return typename Clock::time_point(nanoseconds(time));
}

// At most one of the models is there, and one of the handles with it; a ticker is on wall
// time.
struct clock_slot {
  clock_callback_model* callback = nullptr;
  std::shared_ptr<clock_channel_model> channel;
  vigil::wall::timer wall;
  vigil::boot::timer boot;
  vigil::aligned_ticker ticker;

  template <class F>
  auto with_callback(F f) const {
    return callback->on_boot ? f(boot) : f(wall);
  }

  template <class F>
  auto with_channel(F f) const {
    return channel->period != 0 ? f(ticker) : channel->on_boot ? f(boot) : f(wall);
  }

  void drop() {
    if (callback != nullptr) callback->has_handle = false;
    *this = {};
  }

  void stop() const {
    if (callback != nullptr) {
      const bool stopped = with_callback([](auto& t) { return t.stop(); });
      expect(stopped == callback->stop(), "what stop() returns");
    }
    if (channel == nullptr) return;
    observe();
    const bool stopped = with_channel([](auto& t) { return t.stop(); });
    expect(stopped == channel->stop(), "what stop() of a channel's timer returns");
  }

  // If the library has handed a value to a waiting fiber, the deadline has moved.
  void observe() const {
    clock_channel_model& m = *channel;
    const nanos shown = with_channel([](auto& t) { return deadline_of(t); });
    if (m.waiters > m.handed.size() && m.is_due() && shown != m.deadline())
      m.handed.push_back(m.take());
    expect(shown == m.deadline(), "deadline()");
    if (m.period != 0) expect(ticker.missed() == m.missed, "missed()");
  }

  void try_recv() const {
    with_channel([this](auto& t) {
      const auto got = t.channel().try_recv();
      channel->look();
      expect(!!got == channel->is_due(), "whether a value is there");
      if (got) expect(got->time_since_epoch().count() == channel->take(), "the value");
    });
  }

  // Calls that throw and change nothing.
  void mistakes() const {
    const nanoseconds zero(0);
    expect(throws<std::invalid_argument>([&] { vigil::aligned_ticker t(zero); }), "a period of 0");
    expect(throws<std::invalid_argument>([] { vigil::testing::suspend_for(nanoseconds(-1)); }),
           "a suspend of less than nothing");
    const std::function<void()> no_function;
    expect(throws<std::invalid_argument>(
               [&] { vigil::wall::after_func_at(on<vigil::wall_clock>(1), no_function); }),
           "an empty function");
    if (channel != nullptr && channel->period != 0)
      expect(throws<std::invalid_argument>([&] { ticker.reset(zero); }), "a period of 0");
    if (channel == nullptr)
      expect(throws<std::logic_error>([&] { ticker.reset(nanoseconds(1)); }), "empty");
    if (callback == nullptr && channel == nullptr) {
      expect(throws<std::logic_error>([&] { wall.reset(on<vigil::wall_clock>(1)); }), "empty");
      expect(!boot.stop() && deadline_of(boot) == no_deadline, "empty");
    }
  }

  void check_gone() const {
    if (callback != nullptr) with_callback([](auto& t) { expect_gone(t); });
    if (channel == nullptr) return;
    with_channel([](auto& t) {
      expect(t.channel().try_recv().is_closed(), "after the run the channel is closed");
      expect_gone(t);
    });
  }

 private:
  template <class Handle>
  static void expect_gone(const Handle& h) {
    expect(deadline_of(h) == no_deadline, "after the run nothing is pending");
    expect(!h.stop(), "after the run stop() is false");
    const auto resets = [&h] {
      if constexpr (std::is_same_v<Handle, vigil::aligned_ticker>) {
        h.reset(nanoseconds(1));
      } else {
        h.reset(decltype(h.deadline())());
      }
    };
    expect(throws<vigil::runtime_gone>(resets), "after the run reset() throws");
  }
};

}  // namespace fuzz
