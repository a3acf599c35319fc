// Faults that reviews found in channels and select, kept as cases.
#include "chan_test.hpp"
#include "support/at_rest.hpp"
#include "support/send_to_process.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

namespace {

using namespace std::chrono_literals;
using vigil::testing_support::in_virtual;

TEST_SUITE("channels: regression") {
  TEST_CASE("a plain thread may send the value that ends the run, and its runtime") {
    for (int round = 0; round < 300; ++round) {
      const auto c = vigil::make_channel<int>();
      std::thread last([c] { c.send(1); });
      vigil::options o;
      o.deadlock = vigil::on_deadlock::warn;
      o.workers = round % 2 == 0 ? 1 : 2;
      const auto guarded = [c] {
        const auto outside = vigil::runtime::current().make_work_guard();
        static_cast<void>(c.recv());
      };
      vigil::run(o, guarded);
      last.join();
    }
  }

  TEST_CASE("a loop over a channel needs no assignment of its values") {
    struct job {
      const int number;
      std::string what;
    };

    in_virtual([] {
      const auto jobs = vigil::make_channel<job>(2);
      jobs.send(job{1, "one"});
      jobs.send(job{2, "two"});
      jobs.close();
      std::string all;
      for (const job& j : jobs)
        all += j.what + std::to_string(j.number);
      CHECK(all == "one1two2");
    });
  }

  TEST_CASE("a loop goes on over the channel that it began with") {
    in_virtual([] {
      auto c = vigil::make_channel<std::string>(2);
      c.send("one");
      c.send("two");
      c.close();
      std::string all;
      for (const std::string& s : c) {
        all += s;
        c = {};
      }
      CHECK(all == "onetwo");
    });
  }

  TEST_CASE("a list of cases may be cleared, and filled anew, by a case's function") {
    in_virtual([] {
      const auto c = vigil::make_channel<int>(1);
      vigil::case_list list;
      int calls = 0;
      list.add(vigil::on_recv(c, [&, kept = std::make_unique<int>(7)](std::optional<int>) {
        list.clear();
        list.add(vigil::otherwise([&calls] { calls += 100; }));
        calls += *kept;
      }));
      c.send(1);
      CHECK(vigil::select(list) == 0);
      CHECK(calls == 7);
      CHECK(list.size() == 1);
      CHECK(vigil::select(list) == 0);
      CHECK(calls == 107);
    });
  }

  TEST_CASE("a case of a list can be switched off, and is then never ready") {
    in_virtual([] {
      const auto closed = vigil::make_channel<int>();
      const auto open = vigil::make_channel<int>(1);
      closed.close();
      open.send(1);
      vigil::case_list list;
      list.add(vigil::on_recv(closed));
      list.add(vigil::on_recv(open));
      list.switch_off(0);
      CHECK(vigil::select_ordered(list) == 1);
      list.add(vigil::otherwise());
      CHECK(vigil::select_ordered(list) == 2);
      list.switch_off(2);
      CHECK(vigil::select(vigil::on_timeout(1s)) == 0);
      CHECK_THROWS_AS(list.switch_off(3), std::out_of_range);
    });
  }

  TEST_CASE("a list of cases is not selected from within one of its functions") {
    in_virtual([] {
      const auto c = vigil::make_channel<int>(2);
      c.send(1);
      c.send(2);
      vigil::case_list list;
      list.add(vigil::on_recv(c, [&] { vigil::select(list); }));
      CHECK_THROWS_AS(vigil::select(list), std::logic_error);
      CHECK(c.size() == 1);
      CHECK_THROWS_AS(vigil::select(list), std::logic_error);
      CHECK(c.size() == 0);
    });
  }

  TEST_CASE("a value is converted for on_send as for send, never explicitly") {
    const vigil::channel<std::unique_ptr<int>> owners;
    const vigil::channel<std::vector<int>> lists;
    const auto accepts = [](const auto& c, auto value) {
      return requires { vigil::on_send(c, value); };
    };
    CHECK_FALSE(accepts(owners, static_cast<int*>(nullptr)));
    CHECK_FALSE(accepts(owners, std::unique_ptr<int>()));  // an lvalue there
    CHECK_FALSE(accepts(lists, 5));
    const vigil::channel<std::string> texts;
    CHECK(accepts(texts, "text"));
  }

  TEST_CASE("the remaining time of a deadline in the far past is zero") {
    in_virtual([] {
      const vigil::timer t(vigil::clock::time_point::min());
      CHECK(t.remaining() == 0ns);
      CHECK(t.stop());
    });
  }

  TEST_CASE("main may select from nothing until a signal of stop_on") {
    vigil::options o;
    o.workers = 1;
    o.stop_on = {SIGTERM};
    o.grace = 0s;
    std::atomic<vigil::detail::scheduler*> begun{nullptr};
    std::thread later([&begun] {
      begun.wait(nullptr);  // before that the signal would end the process
      vigil::testing_support::wait_until_at_rest(*begun.load());
      vigil::testing_support::send_to_process(SIGTERM);
    });
    vigil::run(o, [&begun] {
      begun.store(vigil::detail::current_scheduler());
      begun.notify_one();
      vigil::select();
    });
    later.join();
  }

  TEST_CASE("a signal that reports a fault is not for a channel, nor for stop_on") {
    vigil::run([] {
      CHECK_THROWS_AS(vigil::notify_signals({SIGSEGV}), std::invalid_argument);
      CHECK_THROWS_AS(vigil::notify_signals({SIGFPE}), std::invalid_argument);
    });
    vigil::options o;
    o.stop_on = {SIGBUS};
    CHECK_THROWS_AS(vigil::run(o, [] {}), std::invalid_argument);
  }
}

}  // namespace
