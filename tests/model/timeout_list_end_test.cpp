// The end of a timeout list and of its entries at the moment of an expiry, expire_now,
// and adds as a run ends (TL1 to TL8 of timeout_core.hpp).
#include "core/base/nanos.hpp"
#include "expiring.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/timeout_list.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using programs::gate;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;
using programs::workers;
using vigil::timeout_list;
using vigil::detail::nanos;
using entry = timeout_list::entry;
using namespace programs::expiring_list;

TEST_CASE("timeout list: the list and its entry die at the same moment") {
  prove("timeout list: both die", [] {
    run_with_outside_work(2, [] {
      auto l = std::make_unique<timeout_list>(1h, [](entry&) {});
      auto c = std::make_unique<connection>();
      l->add(c->idle);
      let_the_other_rest();
      const model::window w;
      std::thread other([&] { c.reset(); });
      l.reset();
      other.join();
      model::enough();
    });
  });
}

// A look at home and run without the lock may find neither: before the entry is added
// again, and after on_expire has ended.
TEST_CASE("timeout list: an entry dies as its on_expire adds it again") {
  // Added to a list in which it never expires, and to one in which it does. While
  // on_expire runs the entry is put off there, by so much that it expires no third time:
  // the clock of a sleeping worker may move on as often as it likes while the other one
  // stands still.
  constexpr nanos half = vigil::detail::never / 2 + 1;
  for (const nanos again : {vigil::detail::never, half}) {
    const bool expires_again = again == half;
    prove(expires_again ? "timeout list: death, added again and due again"
                        : "timeout list: death as on_expire adds it again",
          [again] {
            run_with_outside_work(2, [again] {
              gate first;
              timeout_list other(std::chrono::nanoseconds(again),
                                 [](entry& e) { ++vigil::owner_of<&connection::idle>(e).written; });
              expiring x([&](connection& c) {
                first.enter();
                other.add(c.idle);
              });
              model::advance(d);
              first.await();
              const model::window w;
              first.open();
              x.c.reset();
              let_time_pass();
              model::require(other.size() == 0, "it is in no list");
              model::enough();
            });
          });
  }
}

TEST_CASE("timeout list: a list dies while its on_expire adds") {
  model::take_outcomes();
  prove("timeout list: list's death as on_expire adds", [] {
    run_with_outside_work(2, [] {
      gate first;
      connection c;
      std::atomic<timeout_list*> list{nullptr};
      auto l = std::make_unique<timeout_list>(std::chrono::nanoseconds(d), [&](entry& e) {
        if (++c.written != 1) return;
        first.enter();
        list.load()->add(e);
        model::note_outcome(e.is_linked() ? "in the list" : "in none");
      });
      list.store(l.get());
      l->add(c.idle);
      let_the_other_rest();
      model::advance(d);
      first.await();
      const model::window w;
      first.open();
      l.reset();
      const int calls = c.written;  // it may have been filed, and have expired
      model::require(!c.idle.is_linked(), "the entry is in no list");
      let_time_pass();
      model::require(!c.idle.is_linked() && c.written == calls, "nor is it put into one");
      model::enough();
    });
  });
  expect_outcomes({"in the list", "in none"});
}

TEST_CASE("timeout list: a list dies as a stop ends its expire_now") {
  prove("timeout list: list's death as expire_now ends", [] {
    run_with_outside_work(2, [] {
      auto l = std::make_unique<timeout_list>(1h, [](entry&) { vigil::sleep_for(1h); });
      connection first;
      connection second;
      l->add(first.idle);
      l->add(second.idle);
      auto f = vigil::spawn([list = l.get()] { list->expire_now(); });
      auto& idle = vigil::detail::current_scheduler()->idle();
      model::wait_until([&] { return !first.idle.is_linked() && idle.asleep() == 1; });
      const model::window w;
      f.request_stop();
      l.reset();
      model::require(!second.idle.is_linked(), "no entry is left in it");
      try {
        f.join();
      } catch (const vigil::cancelled&) {
      }
      model::require(!second.idle.is_linked(), "nor is one put back");
      model::enough();
    });
  });
}

TEST_CASE("timeout list: expire_now expires the entries of one moment") {
  model::take_outcomes();
  prove("timeout list: others come and go as expire_now begins", [] {
    run_with_outside_work(1, [] {
      timeout_list l(1h,
                     [](entry& e) { vigil::owner_of<&connection::idle>(e).expired.fetch_add(1); });
      connection before;
      connection first;
      connection second;
      l.add(before.idle);
      std::size_t called = 0;
      {
        const model::window w;
        std::thread other([&] {
          timeout_list::remove(before.idle);
          l.add(first.idle);
          first.idle.touch(at(model::now() + d));  // so that it comes last
          l.add(second.idle);
        });
        called = l.expire_now();
        other.join();
      }
      const int firsts = first.expired.load();
      const int seconds = second.expired.load();
      model::note_outcome(seconds != 0 ? "both" : firsts != 0 ? "the first" : "none of them");
      model::require(seconds <= firsts, "whenever the second is in it, the first is");
      model::require(called == static_cast<std::size_t>(before.expired.load() + firsts + seconds),
                     "it says how many there were");
      model::require(l.size() == static_cast<std::size_t>(2 - firsts - seconds), "the others stay");
      model::enough();
    });
  });
  expect_outcomes({"both", "none of them", "the first"});
}

TEST_CASE("timeout list: on_expire is destroyed with its list, whatever is on its way to it") {
  prove("timeout list: death of the captures", [] {
    struct capture {
      explicit capture(bool& gone) noexcept : is_gone(&gone) {}

      capture(capture&& other) noexcept : is_gone(std::exchange(other.is_gone, nullptr)) {}

      ~capture() {
        if (is_gone != nullptr) *is_gone = true;
      }

      bool* is_gone;
    };

    run_with_outside_work(2, [] {
      bool is_gone = false;
      connection c;
      auto l = std::make_unique<timeout_list>(std::chrono::nanoseconds(d),
                                              [keeps = capture(is_gone)](entry&) {});
      l->add(c.idle);
      let_the_other_rest();
      const model::window w;
      l.reset();
      model::require(is_gone, "its captures are gone");
      let_time_pass();
      model::enough();
    });
  });
}

TEST_CASE("timeout list: an empty one has no timer, whatever is on its way to it") {
  prove("timeout list: emptied by expire_now as its timer rings", [] {
    run_with_outside_work(2, [] {
      timeout_list l(std::chrono::nanoseconds(d), [](entry&) {});
      connection c;
      l.add(c.idle);
      let_the_other_rest();
      {
        const model::window w;
        timeout_list::remove(c.idle);
        l.add(c.idle);
        l.expire_now();
        let_the_other_rest();
        model::require(vigil::stats().timers_pending == 0, "no timer is armed");
      }
      model::enough();
    });
  });
}

// Its timer never holds a program, so nobody is notified under its lock.
TEST_CASE("timeout list: a plain thread adds while the program waits until all is done") {
  prove("timeout list: add while the end is waited for", [] {
    vigil::options o = workers(1);
    o.exit = vigil::exit_when::all_done;
    vigil::runtime rt(o);
    std::optional<timeout_list> list;
    connection c;
    std::thread outside;
    rt.run([&] {
      list.emplace(1h, [](entry&) {});
      auto& idle = vigil::detail::current_scheduler()->idle();
      // No work guard: while there is one, the main fiber is not readied.
      outside = std::thread([&, holds = vigil::after_func(10h, [] {})] {
        model::wait_until([&] { return idle.asleep() == 1; });
        {
          const model::window w;
          try {
            list->add(c.idle);
            timeout_list::remove(c.idle);
          } catch (const vigil::runtime_gone&) {  // the timer that holds the run has fired
          }
        }
        holds.stop();
      });
    });
    outside.join();
  });
}

TEST_CASE("timeout list: a plain thread adds as the run ends") {
  model::take_outcomes();
  prove("timeout list: add against the run's end", [] {
    vigil::runtime rt(workers(1));
    std::optional<timeout_list> list;
    std::optional<model::window> window;
    connection c;
    std::thread outside;
    rt.run([&] {
      list.emplace(1h, [](entry&) {});
      window.emplace();
      outside = std::thread([&] {
        try {
          list->add(c.idle);
          model::note_outcome("added");
        } catch (const vigil::runtime_gone&) {
          model::note_outcome("refused");
        }
      });
    });
    outside.join();
    window.reset();
    model::require(!c.idle.is_linked() && list->size() == 0, "no entry outlives the run");
    model::enough();
  });
  expect_outcomes({"added", "refused"});
}
