// Timers with a channel, and threads that receive from them.
#pragma once

#include "core/base/nanos.hpp"
#include "core/chan/channel_core.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "instants.hpp"
#include "programs.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

namespace programs::receivers {

using namespace std::chrono_literals;
using programs::at;
using programs::far;
using programs::in;
using programs::near;
using programs::run_with_outside_work;
using vigil::detail::nanos;
using vigil::detail::never;

inline nanos of(vigil::clock::time_point t) {
  return t.time_since_epoch().count();
}

// Returns the new deadline.
inline nanos reset(vigil::timer& t, nanos to) {
  const nanos deadline = model::now() + to;
  t.reset(at(deadline));
  return deadline;
}

// Requires of a timer's channel that only the timer's own handle is left, and no value.
inline void require_idle(const vigil::timer& t) {
  const auto ch = t.channel();
  model::require(!ch.try_recv(), "there is no value");
  model::wait_until([&] { return ch.core()->handles.load() == 2; });
}

// Makes room in the shared intake, so that a plain thread arms as quickly as it can.
inline void arm_once_from_outside() {
  const vigil::timer t(in(2 * far));
  std::thread([from = t.channel()] { static_cast<void>(from.recv_for(1ns)); }).join();
}

// A thread that waits for one value of a channel.
class receiving {
 public:
  // `patience`: the time after which it gives up.
  explicit receiving(vigil::timer_receiver from, std::optional<nanos> patience = std::nullopt)
      : thread_([this, from = std::move(from), patience]() mutable {
          started_.store(true);
          const auto got = patience ? from.recv_for(in(*patience))
                                    : from.recv_until(vigil::clock::time_point::max());
          if (got) {
            model::require(model::now() >= of(*got), "no value comes early");
            value_ = of(*got);
          }
          from = {};
          done_.store(true);
        }) {}

  // Returns when it waits and the other worker sleeps to the timer's deadline. Called
  // outside a window.
  void settle() {
    model::wait_until([this] { return started_.load(); });
    const auto& idle = vigil::detail::current_scheduler()->idle();
    model::wait_until([&] { return idle.asleep() == 1 && idle.earliest() != never; });
  }

  bool started() const { return started_.load(); }

  bool is_done() const { return done_.load(); }

  std::optional<nanos> value() {
    if (thread_.joinable()) thread_.join();
    return value_;
  }

 private:
  std::atomic<bool> started_{false};
  std::atomic<bool> done_{false};
  std::optional<nanos> value_;
  std::thread thread_;
};

// A thread waits for the value; the ring races with f on this thread.
template <class F>
auto waiting(F act) {
  return [act] {
    run_with_outside_work(2, [&] {
      vigil::timer t(in(near));
      receiving r(t.channel());
      r.settle();
      act(t, r);
      require_idle(t);
      model::enough();
    });
  };
}

}  // namespace programs::receivers
