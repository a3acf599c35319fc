// The channel of a timer: fibers, selects, and the end of the runtime (TC1, TC2 of
// timed_channel.hpp).
#include "core/base/nanos.hpp"
#include "core/chan/channel_core.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "programs.hpp"
#include "prove.hpp"
#include "receivers.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <thread>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using programs::let_time_pass;
using programs::run_with_outside_work;
using programs::workers;
using vigil::detail::nanos;
using vigil::detail::never;
using namespace programs::receivers;

TEST_CASE("timer channel: a fiber's deadline, the ring and a thread's stop") {
  prove("timer channel: a fiber's recv_for, stop outside, 1 worker", [] {
    run_with_outside_work(1, [] {
      vigil::timer t(in(near));
      const nanos first = of(t.deadline());
      bool prevented = false;
      {
        const model::window w;
        std::thread thread([&] { prevented = t.stop(); });
        const auto got = t.channel().recv_for(in(near));
        model::note_outcome(got ? "received" : "timeout");
        thread.join();
        model::require(prevented == !got, "received or prevented");
        model::require(!got || of(*got) == first, "the value in force");
      }
      model::require(!t.channel().try_recv(), "there is no value");
      model::enough();
    });
  });
}

TEST_CASE("timer channel: a select on it and on another channel takes one of the two") {
  prove("timer channel: ring, a value, a select", [] {
    run_with_outside_work(2, [] {
      vigil::timer t(in(near));
      const auto other = vigil::make_channel<int>();
      std::size_t taken = 2;
      {
        std::atomic<bool> started{false};
        std::thread thread([&, from = t.channel()] {
          started.store(true);
          taken = vigil::select_ordered(vigil::on_recv(other), vigil::on_recv(from));
        });
        model::wait_until([&] { return started.load(); });
        const auto& idle = vigil::detail::current_scheduler()->idle();
        model::wait_until([&] { return idle.asleep() == 1 && idle.earliest() != never; });
        const model::window w;
        const bool sent = static_cast<bool>(other.try_send(1));
        thread.join();
        model::require(sent == (taken == 0), "what was sent arrives");
        model::require(t.stop() == sent, "the other value is still there");
        let_time_pass();
      }
      model::require(!other.try_send(2), "no receiver is left behind");
      require_idle(t);
      model::enough();
    });
  });
}

TEST_CASE("timer channel: a thread that waits as the runtime goes finds it closed") {
  prove("timer channel: a thread waits as the runtime goes", [] {
    std::optional<receiving> r;
    auto rt = std::make_unique<vigil::runtime>(workers(1));
    rt->run([&] {
      const vigil::timer t(1h);
      r.emplace(t.channel());
      model::wait_until([&] { return r->started(); });
    });
    const model::window w;
    rt.reset();
    model::require(!r->value(), "it is told that there will be none");
  });
  const auto arrives = [](auto receive) {
    return [receive] {
      vigil::timer_receiver from;
      auto rt = std::make_unique<vigil::runtime>(workers(1));
      rt->run([&] { from = vigil::after(1h); });
      const model::window w;
      std::thread thread([&] { receive(from); });
      rt.reset();
      thread.join();
      model::require(from.try_recv().is_closed(), "it stays closed");
      model::wait_until([&] { return from.core()->handles.load() == 1; });
    };
  };
  prove("timer channel: recv as the runtime goes", arrives([](const vigil::timer_receiver& from) {
          model::require(!from.recv(), "it is told that there will be none");
        }));
  prove(
      "timer channel: a select as the runtime goes", arrives([](const vigil::timer_receiver& from) {
        const auto other = vigil::make_channel<int>();
        bool closed = false;
        const std::size_t taken = vigil::select_ordered(
            vigil::on_recv(other),
            vigil::on_recv(from, [&](std::optional<vigil::clock::time_point> t) { closed = !t; }));
        model::require(taken == 1 && closed, "it is told that there will be none");
        model::require(!other.try_send(1), "no receiver is left behind");
      }));
  prove("timer channel: ring as the run ends", [] {
    std::optional<receiving> r;
    std::optional<model::window> w;
    vigil::runtime rt(workers(2));
    rt.run([&] {
      const vigil::timer t(in(near));
      r.emplace(t.channel());
      r->settle();
      w.emplace();
    });
    r->value();  // or none: it hears that there will be none
    w.reset();
  });
}
