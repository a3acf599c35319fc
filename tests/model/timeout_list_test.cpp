// A timeout list: touch, remove, add and the death of an entry meet its expiry
// at any moment (C1 to C3 of timeout_core.hpp).
//
// The other worker sleeps to the deadline, so the timer may ring at any moment
// of the window, and on_expire runs there while the main fiber does its part.
// What on_expire writes is plain memory: who relies on its end and was not made
// to wait for it is in a data race with it.
#include "base/nanos.hpp"
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

using vigil::timeout_list;
using vigil::detail::nanos;

using programs::gate;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;
using programs::workers;

using entry = timeout_list::entry;

namespace {

constexpr nanos d = 1000;

vigil::clock::time_point at(nanos n) {
  return vigil::clock::time_point(std::chrono::nanoseconds(n));
}

struct connection {
  entry idle;
  std::atomic<nanos> promised{0};  // no expiry before this
  std::atomic<int> expired{0};
  int written = 0;  // by on_expire
};

// A list whose entry is about to expire on the other worker.
struct expiring {
  std::unique_ptr<connection> c = std::make_unique<connection>();
  timeout_list list;

  expiring() : expiring([](connection&) {}) {}

  template <class F>
  explicit expiring(F f)
      : list(std::chrono::nanoseconds(d), [f](entry& e) {
          connection& due = vigil::owner_of<&connection::idle>(e);
          model::require(model::now() >= due.promised.load(), "no entry expires early");
          due.expired.fetch_add(1);
          ++due.written;
          f(due);
        }) {
    add();
    let_the_other_rest();
  }

  void add() {
    c->promised.store(model::now() + d);
    list.add(c->idle);
  }

  // A touch by the clock. Announced before, so that no expiry sees less.
  static bool touch(connection& c) {
    const nanos time = model::now();
    if (!c.idle.touch(at(time))) return false;
    nanos seen = c.promised.load();
    while (seen < time + d && !c.promised.compare_exchange_strong(seen, time + d)) {
    }
    return true;
  }
};

}  // namespace

TEST_CASE("timeout list: a touch at the deadline keeps the entry, or it has begun to expire") {
  model::take_outcomes();
  prove("timeout list: touch against expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      {
        const model::window w;
        model::advance(d / 2);
        const bool kept = expiring::touch(*x.c);
        model::note_outcome(kept ? "kept" : "expired");
        let_time_pass();
      }
      model::require(x.c->expired.load() == 1, "it expires once");
      model::require(x.list.size() == 0, "and is in no list");
      model::enough();
    });
  });
  expect_outcomes({"kept", "expired"});
}

TEST_CASE("timeout list: a touch of the first leaves the timer armed for the second") {
  prove("timeout list: touch of the first of two", [] {
    run_with_outside_work(2, [] {
      connection second;
      // The clock moves to the deadlines that are slept to, and no further.
      expiring x([&second](connection& c) {
        if (&c == &second) model::require(model::now() <= c.promised.load(), "it is not late");
      });
      model::advance(1);
      second.promised.store(model::now() + d);
      x.list.add(second.idle);
      model::advance(1);
      {
        const model::window w;
        expiring::touch(*x.c);
        let_time_pass();
      }
      model::require(x.c->expired.load() == 1, "the first expires");
      model::require(second.expired.load() == 1, "and the second");
      model::enough();
    });
  });
}

TEST_CASE("timeout list: two touch as it expires, and the later time counts") {
  prove("timeout list: two touches against expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      {
        const model::window w;
        std::thread other([&] { expiring::touch(*x.c); });
        model::advance(d / 4);
        expiring::touch(*x.c);
        other.join();
        let_time_pass();
      }
      model::require(x.c->expired.load() == 1, "it expires once");
      model::enough();
    });
  });
}

TEST_CASE("timeout list: after a remove on_expire neither runs nor starts") {
  model::take_outcomes();
  prove("timeout list: remove against expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      {
        const model::window w;
        const bool prevented = timeout_list::remove(x.c->idle);
        model::note_outcome(prevented ? "prevented" : "expired");
        // Plain memory: a race unless the remove has waited.
        model::require(x.c->written == (prevented ? 0 : 1), "expired or prevented");
        let_time_pass();
      }
      model::require(x.c->written + static_cast<int>(x.c->expired.load() == 0) == 1,
                     "nothing starts later");
      model::enough();
    });
  });
  expect_outcomes({"prevented", "expired"});
}

TEST_CASE("timeout list: an entry dies as it expires") {
  prove("timeout list: death against expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      const model::window w;
      x.c.reset();
      let_time_pass();
      model::require(x.list.size() == 0, "it is in no list");
      model::enough();
    });
  });
  prove("timeout list: death on a plain thread against expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      const model::window w;
      std::thread outside([&] { x.c.reset(); });
      outside.join();
      let_time_pass();
      model::require(x.list.size() == 0, "it is in no list");
      model::enough();
    });
  });
}

TEST_CASE("timeout list: an entry that dies in its own on_expire is not touched after that") {
  prove("timeout list: death in on_expire", [] {
    run_with_outside_work(2, [] {
      std::atomic<std::unique_ptr<connection>*> mine{nullptr};
      expiring x([&mine](connection&) { mine.load()->reset(); });
      mine.store(&x.c);
      const model::window w;
      model::advance(d);
      let_time_pass();
      model::require(x.c == nullptr, "it has expired");
      model::enough();
    });
  });
}

TEST_CASE("timeout list: touch, remove and expiry, each from another thread") {
  model::take_outcomes();
  prove("timeout list: touch, remove, expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      {
        const model::window w;
        bool kept = false;
        std::thread other([&] { kept = expiring::touch(*x.c); });
        const bool prevented = timeout_list::remove(x.c->idle);
        const int expired = x.c->written;
        other.join();
        model::note_outcome(prevented ? (kept ? "kept, removed" : "removed") : "expired");
        model::require(expired == (prevented ? 0 : 1), "expired or prevented");
        let_time_pass();
        model::require(x.c->written == expired, "nothing starts later");
      }
      model::enough();
    });
  });
  expect_outcomes({"kept, removed", "removed", "expired"});
}

TEST_CASE("timeout list: what is added as another expires is armed for, and nothing is lost") {
  prove("timeout list: add against expiry", [] {
    run_with_outside_work(2, [] {
      expiring x;
      connection second;
      {
        const model::window w;
        second.promised.store(model::now() + d);
        x.list.add(second.idle);
        let_time_pass();
      }
      model::require(x.c->expired.load() == 1, "the first expires");
      model::require(second.expired.load() == 1, "and the second");
      model::enough();
    });
  });
  prove("timeout list: added again as it expires", [] {
    run_with_outside_work(2, [] {
      expiring x;
      {
        const model::window w;
        x.add();
        let_time_pass();
      }
      model::require(x.list.size() == 0, "it expires");
      model::enough();
    });
  });
}

TEST_CASE("timeout list: an entry that is due in its own on_expire is put off") {
  prove("timeout list: due again in on_expire", [] {
    run_with_outside_work(2, [] {
      std::atomic<timeout_list*> list{nullptr};
      std::atomic<int> inside{0};
      expiring x([&](connection& c) {
        model::require(inside.fetch_add(1) == 0, "no two for one entry");
        if (c.written == 1) {
          list.load()->add(c.idle);
          vigil::sleep_for(std::chrono::nanoseconds(d));
        }
        inside.fetch_sub(1);
      });
      list.store(&x.list);
      {
        const model::window w;
        model::advance(d);
        let_time_pass();
      }
      model::require(x.c->expired.load() == 2, "it expires again");
      model::enough();
    });
  });
}

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

// Whoever looks at home and at run without the lock may find neither: before it
// is added again, and after that on_expire has ended.
TEST_CASE("timeout list: an entry dies as its on_expire adds it again") {
  // To a list in which it never expires, and to one in which it does. While
  // on_expire runs it is put off there, by so much that it expires no third
  // time: the clock of a worker that sleeps may move on as often as it likes
  // while the other one stands still.
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

TEST_CASE("timeout list: expire_now calls for what was in it at one moment") {
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
          first.idle.touch(at(model::now() + d));  // so it comes last
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

TEST_CASE("timeout list: on_expire dies with its list, whatever is on its way to it") {
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

// Its timer never holds a program, so nobody is told anything under its lock.
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
      // No work guard: while there is one, the main fiber is not told.
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
