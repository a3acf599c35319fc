// The explorer itself: on small programs for which the outcomes that C++ allows are
// known, it must see all of them and no other.
#include "litmus.hpp"

#include "core/base/futex.hpp"
#include "explorer/explorer.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <doctest/doctest.h>

using namespace programs::litmus;

TEST_CASE("litmus: store buffering shows both zeros unless all is sequentially consistent") {
  CHECK(all_outcomes(store_buffering(relaxed, relaxed)) == outcomes{"00", "01", "10", "11"});
  CHECK(all_outcomes(store_buffering(release, acquire)) == outcomes{"00", "01", "10", "11"});
  CHECK(all_outcomes(store_buffering(seq_cst, seq_cst)) == outcomes{"01", "10", "11"});
  CHECK(all_outcomes(store_buffering(seq_cst, acquire)) == outcomes{"00", "01", "10", "11"});
}

TEST_CASE("litmus: a flag publishes earlier writes only by release and acquire") {
  const auto program = [](std::memory_order store, std::memory_order load) {
    return [=] {
      auto w = std::make_unique<words>();
      std::thread other([&] {
        w->x.store(1, relaxed);
        w->y.store(1, store);
      });
      const int flag = w->y.load(load);
      const int value = w->x.load(relaxed);
      other.join();
      model::note_outcome(pair(flag, value));
    };
  };
  CHECK(all_outcomes(program(release, acquire)) == outcomes{"00", "01", "11"});
  CHECK(all_outcomes(program(relaxed, acquire)) == outcomes{"00", "01", "10", "11"});
  CHECK(all_outcomes(program(release, relaxed)) == outcomes{"00", "01", "10", "11"});
}

TEST_CASE("litmus: a read-modify-write carries on a release") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread a([&] {
            w->x.store(1, relaxed);
            w->y.store(1, release);
          });
          std::thread b([&] { w->y.fetch_add(1, relaxed); });
          const int flag = w->y.load(acquire);
          const int value = w->x.load(relaxed);
          a.join();
          b.join();
          model::note_outcome(pair(flag, value));
        }) == outcomes{"00", "01", "10", "11", "21"});
}

TEST_CASE("litmus: two readers may see two writers in different orders") {
  const auto program = [](std::memory_order o, std::memory_order load) {
    return [=] {
      auto w = std::make_unique<words>();
      int a = 0;
      int b = 0;
      std::thread first([&] { w->x.store(1, o); });
      std::thread second([&] { w->y.store(1, o); });
      std::thread reader([&] {
        a = w->x.load(load);
        b = w->y.load(load);
      });
      const int c = w->y.load(load);
      const int d = w->x.load(load);
      first.join();
      second.join();
      reader.join();
      model::note_outcome(pair(a, b) + pair(c, d));
    };
  };
  CHECK(all_outcomes(program(release, acquire), false).count("1010") == 1);
  CHECK(all_outcomes(program(seq_cst, seq_cst), false).count("1010") == 0);
  // C++20 forbids it here too: the explorer allows more than the standard, never less.
  CHECK(all_outcomes(program(release, seq_cst), false).count("1010") == 1);
}

TEST_CASE("litmus: one word never goes back") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] {
            w->x.store(1, relaxed);
            w->x.store(2, relaxed);
          });
          const int a = w->x.load(relaxed);
          const int b = w->x.load(relaxed);
          other.join();
          model::note_outcome(pair(a, b));
        }) == outcomes{"00", "01", "02", "11", "12", "22"});
}

TEST_CASE("litmus: plain memory behind a relaxed flag is a data race") {
  const auto program = [](std::memory_order store) {
    return [=] {
      auto w = std::make_unique<words>();
      std::thread other([&] {
        w->plain = 7;
        w->x.store(1, store);
      });
      if (w->x.load(acquire) == 1) model::require(w->plain == 7, "the value is there");
      other.join();
    };
  };
  CHECK(!model::explore(program(release), {}).found);
  const model::report r = model::explore(program(relaxed), {});
  CHECK(r.found);
  CHECK(r.fault == "data race: a thread reads what another writes");
  // The schedule leads there again.
  CHECK(model::replay(program(relaxed), r.schedule).fault == r.fault);
}

TEST_CASE("litmus: a lost wake-up, a deadlock and a use after free are found") {
  const model::report lock = model::explore(
      [] {
        auto w = std::make_unique<words>();
        model::wait_until([&] { return w->x.load() == 1; });
      },
      {});
  CHECK(lock.fault == "nobody can ever go on: thread 0 is busy until something happens");

  const model::report freed = model::explore(
      [] {
        auto* const w = new words;
        std::thread other([w] {
          if (w->x.load(acquire) == 0) w->x.store(1, release);
        });
        if (w->x.load(acquire) == 1) {
          delete w;
          other.join();
        } else {
          delete w;
          other.join();
        }
      },
      {});
  CHECK(freed.found);
}

TEST_CASE("litmus: a pointer into nowhere is a fault of the program") {
  CHECK(fault_of([] {
          auto* const nowhere = reinterpret_cast<words*>(std::uintptr_t{0xdead'beef'0000});
          nowhere->plain = 1;
        }) == "memory is used that is not there");
}

// --- one word alone

TEST_CASE("litmus: a thread sees its own store or a later one") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] { w->x.store(1, relaxed); });
          w->x.store(2, relaxed);
          const int a = w->x.load(relaxed);
          other.join();
          model::note_outcome(pair(a, w->x.load(relaxed)));
        }) == outcomes{"22", "21", "11"});
}

TEST_CASE("litmus: a thread's read comes before its store") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] { w->x.store(1, relaxed); });
          const int a = w->x.load(relaxed);
          w->x.store(2, relaxed);
          other.join();
          model::note_outcome(pair(a, w->x.load(relaxed)));
        }) == outcomes{"02", "01", "12"});
}

TEST_CASE("litmus: a word that had a value twice may be read as it was the first time") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] {
            w->x.store(1, relaxed);
            w->x.store(0, relaxed);
          });
          const int a = w->x.load(relaxed);
          const int b = w->x.load(relaxed);
          other.join();
          model::note_outcome(pair(a, b));
        }) == outcomes{"00", "01", "10", "11"});
}

TEST_CASE("litmus: stores in opposite orders: out of the explorer's reach") {
  // C++ allows "11": each word ends with its first thread's value. Here two
  // stores never come in another order than they were executed in.
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] {
            w->y.store(1, relaxed);
            w->x.store(2, relaxed);
          });
          w->x.store(1, relaxed);
          w->y.store(2, relaxed);
          other.join();
          model::note_outcome(pair(w->x.load(relaxed), w->y.load(relaxed)));
        }) == outcomes{"12", "21", "22"});
}

TEST_CASE("litmus: a load that sees a later store: out of the explorer's reach") {
  // C++ allows "11".
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          int a = 0;
          std::thread other([&] {
            a = w->x.load(relaxed);
            w->y.store(1, relaxed);
          });
          const int b = w->y.load(relaxed);
          w->x.store(1, relaxed);
          other.join();
          model::note_outcome(pair(a, b));
        }) == outcomes{"00", "01", "10"});
}

// --- orders

TEST_CASE("litmus: sequentially consistent stores and relaxed loads show both zeros") {
  CHECK(all_outcomes(store_buffering(seq_cst, relaxed)) == outcomes{"00", "01", "10", "11"});
  CHECK(all_outcomes(store_buffering(relaxed, seq_cst)) == outcomes{"00", "01", "10", "11"});
}

TEST_CASE("litmus: a read-modify-write is a store that a later one cannot miss") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          int a = 0;
          std::thread other([&] { a = w->x.fetch_add(1, relaxed); });
          const int b = w->x.fetch_add(1, relaxed);
          other.join();
          model::note_outcome(pair(a, b));
        }) == outcomes{"01", "10"});
}

TEST_CASE("litmus: a release goes on through the read-modify-writes of several threads") {
  const auto program = [](bool is_store) {
    return [is_store] {
      auto w = std::make_unique<words>();
      std::thread first([&] {
        w->plain = 7;
        w->x.store(1, release);
      });
      std::thread second([&, is_store] {
        int one = 1;
        if (is_store) {
          if (w->x.load(relaxed) == 1) w->x.store(2, relaxed);
        } else {
          w->x.compare_exchange_strong(one, 2, relaxed, relaxed);
        }
      });
      std::thread third([&] {
        int two = 2;
        w->x.compare_exchange_strong(two, 3, relaxed, relaxed);
      });
      if (w->x.load(acquire) == 3) model::require(w->plain == 7, "the value is there");
      first.join();
      second.join();
      third.join();
    };
  };
  CHECK(fault_of(program(false)).empty());
  // A store, even a later one, begins anew.
  CHECK(fault_of(program(true)) == "data race: a thread reads what another writes");
}

TEST_CASE("litmus: a compare-exchange that fails has the order for failures") {
  const auto program = [](std::memory_order on_failure) {
    return [on_failure] {
      auto w = std::make_unique<words>();
      std::thread other([&] {
        w->plain = 7;
        w->x.store(1, release);
      });
      int zero = 0;
      if (!w->x.compare_exchange_strong(zero, 2, std::memory_order_acq_rel, on_failure)) {
        model::require(w->plain == 7, "the value is there");
      }
      other.join();
    };
  };
  CHECK(fault_of(program(acquire)).empty());
  CHECK(fault_of(program(relaxed)) == "data race: a thread reads what another writes");
}

TEST_CASE("litmus: a compare-exchange may fail with an old value, but never succeeds with one") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] { w->x.store(1, relaxed); });
          int expected = 5;
          const bool first = w->x.compare_exchange_strong(expected, 6, relaxed, relaxed);
          int zero = 0;
          const bool second = w->x.compare_exchange_strong(zero, 7, relaxed, relaxed);
          other.join();
          model::note_outcome(pair(expected, first ? 9 : second ? 1 : 0));
        }) == outcomes{"00", "01", "10"});
}

TEST_CASE("litmus: the word spun on is new at last, but nothing else is") {
  CHECK(all_outcomes([] {
          auto w = std::make_unique<words>();
          std::thread other([&] {
            w->x.store(1, relaxed);
            w->y.store(1, relaxed);
          });
          while (w->y.load(relaxed) == 0)
            std::this_thread::yield();
          const int a = w->x.load(relaxed);
          other.join();
          model::note_outcome(std::to_string(a));
        }) == outcomes{"0", "1"});
}
