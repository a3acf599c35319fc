// The explorer itself: threads, locks and sleeps of small programs, and random programs.
#include "core/base/futex.hpp"
#include "explorer/explorer.hpp"
#include "litmus.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using namespace programs::litmus;

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

TEST_CASE("litmus: either of two sleepers may be the first to hear of its deadline") {
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

TEST_CASE("litmus: memory is freed only by a thread that knows of its last use") {
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

// A program of a few threads that load, store, add to and exchange two words, each thread
// a handful of times. Its outcome is every value seen.
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

// Each thread writes often enough for checkpoints, with memory of its own on the way.
TEST_CASE("litmus: runs that begin at a checkpoint are those that begin at the beginning") {
  const auto program = [] {
    auto w = std::make_unique<words>();
    const auto work = [&w](int own) {
      for (int i = 0; i < 100; ++i) {
        const auto half = std::make_unique<int>(w->x.load(relaxed) / 2);
        w->x.store(i + own + *half, release);
        if (i % 40 == 39) w->y.fetch_add(own, acquire);
        try {
          if (i % 30 == 29) throw i + own;
        } catch (int thrown) {
          w->y.fetch_add(thrown, relaxed);
        }
      }
    };
    std::thread other(work, 1'000);
    work(2'000);
    other.join();
    model::note_outcome(pair(w->x.load(), w->y.load()));
  };
  for (const bool reduce : {true, false}) {
    model::report reports[2];
    outcomes seen[2];
    for (const bool checkpoints : {false, true}) {
      const int i = checkpoints ? 1 : 0;
      reports[i] = model::explore(program, {1, 1, 1'000'000, reduce, checkpoints});
      seen[i] = model::take_outcomes();
    }
    CHECK(reports[0].interleavings > 100);
    CHECK(reports[0].interleavings == reports[1].interleavings);
    CHECK(reports[0].states == reports[1].states);
    CHECK(reports[0].longest == reports[1].longest);
    CHECK(seen[0] == seen[1]);
  }
}
