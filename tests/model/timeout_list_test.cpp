// A timeout list: touch, remove, add and the destruction of an entry meet its expiry at
// any moment (TL1 to TL3 of timeout_core.hpp).
//
// The other worker sleeps to the deadline, so the timer may ring at any moment of the
// window, and on_expire runs there while the main fiber does its part. on_expire writes
// to plain memory: code that relies on its end without having waited for it is in a data
// race with it.
#include "core/base/nanos.hpp"
#include "expiring.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/timeout_list.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>
#include <thread>

#include <doctest/doctest.h>

using programs::let_time_pass;
using programs::run_with_outside_work;
using vigil::timeout_list;
using entry = timeout_list::entry;
using namespace programs::expiring_list;

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
      // The clock moves to the deadlines that a worker sleeps to, and no further.
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

TEST_CASE("timeout list: two touches as it expires, and the later time counts") {
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

TEST_CASE("timeout list: an entry added as another expires is armed for, and nothing is lost") {
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
