// The explorer itself: on the small programs of which it is known what C++
// allows, it must see all of that and nothing else.
#include "base/futex.hpp"
#include "explorer/explorer.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

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

// All outcomes of a program. The reduction loses none, with bounds or without;
// `whole`: the program is small enough to be run without the reduction.
template <class F>
outcomes all_outcomes(F&& program, bool whole = true) {
  for (const int preemptions : {0, 1, 2}) {
    for (const int stale : {0, 1, 2}) {
      outcomes seen[2];
      for (const bool reduce : {false, true}) {
        const model::report r = model::explore(program, {preemptions, stale, 10'000'000, reduce});
        CHECK(r.complete);
        seen[reduce ? 1 : 0] = model::take_outcomes();
      }
      INFO(preemptions, " preemptions, ", stale, " stale reads");
      CHECK(seen[0] == seen[1]);
    }
  }
  outcomes reduced;
  for (const bool reduce : {true, false}) {
    if (!reduce && !whole) break;
    const model::report r =
        model::explore(program, {model::unlimited, model::unlimited, 10'000'000, reduce});
    INFO(r.fault, "\n", r.trace);
    CHECK(r.complete);
    CHECK(!r.found);
    const outcomes seen = model::take_outcomes();
    if (reduce) {
      reduced = seen;
    } else {
      CHECK(seen == reduced);
    }
  }
  return reduced;
}

// What a program does wrong in some interleaving; empty: nothing.
template <class F>
std::string fault_of(F&& program) {
  const model::report r = model::explore(program, {model::unlimited, model::unlimited});
  if (r.found) CHECK(model::replay(program, r.schedule).fault == r.fault);
  return r.fault;
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
  CHECK(all_outcomes(program(release, acquire), false).count("1010") == 1);
  CHECK(all_outcomes(program(seq_cst, seq_cst), false).count("1010") == 0);
  // C++20 forbids it here too: the explorer allows more than that, never less.
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

// --- what one word alone does

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

TEST_CASE("litmus: what a thread has read comes before what it stores") {
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

TEST_CASE("litmus: a load that sees what is stored later: out of the explorer's reach") {
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

TEST_CASE("litmus: what was spun on is new at last, but nothing else is") {
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

// --- threads, locks, sleeps

TEST_CASE("litmus: a mutex guards plain memory, and its end is seen by join") {
  const auto program = [](bool locks) {
    return [locks] {
      auto w = std::make_unique<words>();
      auto m = std::make_unique<std::mutex>();
      const auto add = [&w, &m, locks] {
        if (locks) m->lock();
        ++w->plain;
        if (locks) m->unlock();
      };
      std::thread first(add);
      std::thread second(add);
      add();
      first.join();
      second.join();
      model::require(w->plain == 3, "none is lost");
    };
  };
  CHECK(fault_of(program(true)).empty());
  CHECK(fault_of(program(false)).substr(0, 9) == "data race");
}

TEST_CASE("litmus: a futex never loses a wake that follows the change of its word") {
  using vigil::detail::futex_wait;
  using vigil::detail::futex_wake_one;
  using vigil::detail::futex_word;
  using vigil::detail::never;
  const auto program = [](bool changes_first, bool looks_again) {
    return [=] {
      auto word = std::make_unique<futex_word>(0u);
      std::thread waker([&word, changes_first] {
        if (changes_first) word->store(1);
        futex_wake_one(*word);
        if (!changes_first) word->store(1);
      });
      if (looks_again) {
        while (word->load() == 0)
          futex_wait(*word, 0, never);
      } else if (word->load() == 0) {
        futex_wait(*word, 0, never);
        model::require(word->load(relaxed) == 1 || !changes_first, "woken by the change");
      }
      waker.join();
    };
  };
  CHECK(fault_of(program(true, true)).empty());
  CHECK(fault_of(program(false, true)) == "nobody can ever go on: thread 0 sleeps on a futex");
}

TEST_CASE("litmus: a deadline and a wake that cross end either way, never early") {
  CHECK(all_outcomes([] {
          auto word = std::make_unique<vigil::detail::futex_word>(0u);
          const auto start = model::now();
          std::thread waker([&word] {
            word->store(1);
            vigil::detail::futex_wake_one(*word);
          });
          vigil::detail::futex_wait(*word, 0, start + 1000);
          const bool late = model::now() >= start + 1000;
          model::require(late || word->load() == 1, "no sleep ends without a reason");
          waker.join();
          model::note_outcome(late ? "late" : "woken");
        }) == outcomes{"late", "woken"});
}

TEST_CASE("litmus: of two sleepers either may be the first to hear of its deadline") {
  const auto orders = all_outcomes([] {
    auto w = std::make_unique<words>();
    auto words_slept_on = std::make_unique<vigil::detail::futex_word[]>(2);
    const auto start = model::now();
    int a = 0;
    std::thread other([&] {
      vigil::detail::futex_wait(words_slept_on[1], 0, start + 2000);
      a = w->x.fetch_add(1);
    });
    vigil::detail::futex_wait(words_slept_on[0], 0, start + 1000);
    const int b = w->x.fetch_add(1);
    other.join();
    model::note_outcome(pair(a, b));
  });
  CHECK(orders == outcomes{"01", "10"});
}

TEST_CASE("litmus: memory is freed only by who knows of its last use") {
  const auto program = [](std::memory_order o) {
    return [o] {
      auto* const w = new words;
      const auto drop = [w, o] {
        if (w->x.fetch_add(1, o) == 1) delete w;
      };
      std::thread other(drop);
      drop();
      other.join();
    };
  };
  CHECK(fault_of(program(std::memory_order_acq_rel)).empty());
  CHECK(fault_of(program(relaxed)) ==
        "data race: memory is freed that another thread may still use");
}

namespace {

// A program of a few threads that load, store, add to and exchange two words, each
// thread a handful of times. Its outcome is all that was seen.
class random_program {
 public:
  explicit random_program(std::uint32_t seed) : seed_(seed) {
    threads_ = 2 + draw(3);
    for (unsigned t = 0; t < threads_; ++t) {
      const unsigned n = 1 + draw(threads_ == 2 ? 4 : 2);
      for (unsigned i = 0; i < n; ++i)
        steps_[t].push_back({draw(5), draw(2), 1 + draw(2), draw(2) == 0});
    }
  }

  void operator()() const {
    struct shared {
      std::atomic<int> words[2] = {0, 0};
      std::string seen[4];
    };

    auto s = std::make_unique<shared>();
    const auto body = [this, s = s.get()](unsigned t) {
      for (const step& it : steps_[t])
        s->seen[t] += std::to_string(it.done_to(s->words[it.word]));
    };
    std::vector<std::thread> others;
    for (unsigned t = 1; t < threads_; ++t)
      others.emplace_back(body, t);
    body(0);
    for (std::thread& t : others)
      t.join();
    model::note_outcome(s->seen[0] + "," + s->seen[1] + "," + s->seen[2] + "," + s->seen[3]);
  }

 private:
  struct step {
    unsigned what;
    unsigned word;
    unsigned value;
    bool is_relaxed;

    int done_to(std::atomic<int>& w) const {
      const int v = static_cast<int>(value);
      int expected = 0;
      switch (what) {
        case 0:
          return w.load(is_relaxed ? relaxed : seq_cst);
        case 1:
          w.store(v, is_relaxed ? relaxed : seq_cst);
          return 0;
        case 2:
          return w.fetch_add(v, is_relaxed ? relaxed : seq_cst);
        case 3:
          return w.compare_exchange_strong(expected, v) ? 7 : expected;
        default:
          return w.load(is_relaxed ? relaxed : acquire);
      }
    }
  };

  unsigned draw(unsigned n) {
    seed_ = seed_ * 1'664'525u + 1'013'904'223u;
    return (seed_ >> 16) % n;
  }

  std::uint32_t seed_;
  unsigned threads_ = 0;
  std::vector<step> steps_[4];
};

}  // namespace

TEST_CASE("litmus: the reduction loses no outcome of random programs") {
  const std::uint32_t programs = std::getenv("VIGIL_LONG") != nullptr ? 2'000 : 100;
  for (std::uint32_t seed = 1; seed <= programs; ++seed) {
    INFO("seed ", seed);
    const random_program program(seed);
    for (const int preemptions : {1, 2}) {
      for (const int stale : {0, 1}) {
        outcomes seen[2];
        for (const bool reduce : {false, true}) {
          model::explore(program, {preemptions, stale, 1'000'000, reduce});
          seen[reduce ? 1 : 0] = model::take_outcomes();
        }
        INFO(preemptions, " preemptions, ", stale, " stale reads");
        CHECK(seen[0] == seen[1]);
      }
    }
  }
}
