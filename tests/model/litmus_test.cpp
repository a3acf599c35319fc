// The explorer itself: on the small programs of which it is known what C++
// allows, it must see all of that and nothing else.
#include "explorer/explorer.hpp"

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include <doctest/doctest.h>

namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr auto acquire = std::memory_order_acquire;
constexpr auto release = std::memory_order_release;
constexpr auto seq_cst = std::memory_order_seq_cst;

using outcomes = std::set<std::string>;

struct words {
  std::atomic<int> x{0};
  std::atomic<int> y{0};
  int plain = 0;
};

// All outcomes of a program, however the search is bounded and reduced.
template <class F>
outcomes all_outcomes(F&& program) {
  outcomes reduced;
  for (const bool reduce : {true, false}) {
    const model::report r =
        model::explore(program, {model::unlimited, model::unlimited, 10'000'000, reduce});
    INFO(r.fault, "\n", r.trace);
    CHECK(r.complete);
    CHECK(!r.found);
    const outcomes seen = model::take_outcomes();
    if (reduce) {
      reduced = seen;
      MESSAGE("reduced: " << r.interleavings << " interleavings, " << r.states << " states");
    } else {
      MESSAGE("whole: " << r.interleavings << " interleavings, " << r.states << " states");
      CHECK(seen == reduced);
    }
  }
  return reduced;
}

std::string pair(int a, int b) {
  return std::to_string(a) + std::to_string(b);
}

// Two threads each store to one word and load the other.
auto store_buffering(std::memory_order store, std::memory_order load) {
  return [=] {
    auto w = std::make_unique<words>();
    int a = -1;
    int b = -1;
    std::thread other([&] {
      w->y.store(1, store);
      b = w->x.load(load);
    });
    w->x.store(1, store);
    a = w->y.load(load);
    other.join();
    model::note_outcome(pair(a, b));
  };
}

}  // namespace

TEST_CASE("litmus: store buffering shows both zeros unless all is sequentially consistent") {
  CHECK(all_outcomes(store_buffering(relaxed, relaxed)) == outcomes{"00", "01", "10", "11"});
  CHECK(all_outcomes(store_buffering(release, acquire)) == outcomes{"00", "01", "10", "11"});
  CHECK(all_outcomes(store_buffering(seq_cst, seq_cst)) == outcomes{"01", "10", "11"});
  CHECK(all_outcomes(store_buffering(seq_cst, acquire)) == outcomes{"00", "01", "10", "11"});
}

TEST_CASE("litmus: a flag passes what was written before it only by release and acquire") {
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
  CHECK(all_outcomes(program(release, acquire)).count("1010") == 1);
  CHECK(all_outcomes(program(seq_cst, seq_cst)).count("1010") == 0);
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
  MESSAGE(r.schedule << "\n" << r.trace);
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
