// Idle timeouts: the cost of an activity.
//
// A touch is one load and one compare-exchange of the entry's word, which among a million
// entries is mostly a cache miss. Beside it stands a bare store to words that lie as far
// apart, in the same run and in turn with it. A processor has many stores under way at
// once, but only one locked operation. So the same words are also changed by a
// sequentially consistent exchange, and by a load and a compare-exchange: that is the
// processor's price for those, without a list.
//
// Then follow the four ways to an idle timeout from libev's manual.
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;
using entry = vigil::timeout_list::entry;

// splitmix64, so that drawing costs about a nanosecond and no memory.
class quick_dice {
 public:
  std::size_t below(std::size_t n) noexcept {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    __extension__ using wide = unsigned __int128;
    return static_cast<std::size_t>((static_cast<wide>(z ^ (z >> 31)) * n) >> 64);
  }

 private:
  std::uint64_t state_ = 42;
};

template <class F>
double each(std::size_t n, F&& f) {
  const nanos start = thread_cpu_time();
  for (std::size_t i = 0; i < n; ++i)
    f(i);
  return static_cast<double>(thread_cpu_time() - start) / static_cast<double>(n);
}

struct bare_word {
  std::atomic<nanos> word{0};
  std::byte rest[sizeof(entry) - sizeof(std::atomic<nanos>)];
};

static_assert(sizeof(bare_word) == sizeof(entry));

void touch_beside_store(report& out, std::size_t n, const std::string& among) {
  constexpr std::size_t ops = 1'000'000;
  vigil::timeout_list list(1h, [](entry&) {});
  std::vector<entry> entries(n);
  std::vector<bare_word> bare(n);
  for (entry& e : entries)
    list.add(e);
  quick_dice dice;
  std::vector<double> touches;
  std::vector<double> stores;
  std::vector<double> exchanges;
  std::vector<double> compared;
  nanos time = vigil::clock::now().time_since_epoch().count();
  for (int round = 0; round < (out.is_long() ? 15 : 7); ++round) {
    // ordering: bare stores are what is measured.
    stores.push_back(each(ops, [&](std::size_t) {
      bare[dice.below(n)].word.store(++time, std::memory_order_relaxed);
    }));
    touches.push_back(each(ops, [&](std::size_t) {
      const bool in_list =
          entries[dice.below(n)].touch(vigil::clock::time_point(std::chrono::nanoseconds(++time)));
      keep(in_list);
    }));
    exchanges.push_back(
        each(ops, [&](std::size_t) { keep(bare[dice.below(n)].word.exchange(++time)); }));
    compared.push_back(each(ops, [&](std::size_t) {
      std::atomic<nanos>& word = bare[dice.below(n)].word;
      nanos last = word.load();
      keep(word.compare_exchange_strong(last, ++time));
    }));
  }
  const double store = median(stores);
  out.compare("touch(now), random, " + among, median(touches), "ns", store, "bare store");
  out.add("  touch / bare store", median(touches) / store, "x", "decision 0012 says why not 2");
  out.add("  touch / seq_cst exchange", median(touches) / median(exchanges), "x");
  out.add("  touch / load and compare-exchange", median(touches) / median(compared), "x");
  out.add("  seq_cst exchange / bare store", median(exchanges) / store, "x");
}

void four_ways(report& out) {
  constexpr std::size_t n = 100'000;
  constexpr std::size_t ops = 500'000;
  quick_dice dice;

  {
    std::vector<vigil::timer> timers;
    for (std::size_t i = 0; i < n; ++i)
      timers.push_back(vigil::after_func(1h, [] {}));
    out.add("1: stop it, make another at each activity",
            median_of(5,
                      [&] {
                        return each(ops / 5, [&](std::size_t) {
                          vigil::timer& t = timers[dice.below(n)];
                          t.stop();
                          t = vigil::after_func(1h, [] {});
                        });
                      }),
            "ns");
    out.add(
        "2: reset it at each activity",
        median_of(5,
                  [&] { return each(ops, [&](std::size_t) { timers[dice.below(n)].reset(1h); }); }),
        "ns");
    for (vigil::timer& t : timers)
      t.stop();
  }
  {
    // The timer fires once in a duration, sees how much is left, and is armed again. That
    // is added, for connections with ten activities in a duration.
    struct connection {
      vigil::clock::time_point last;
      vigil::timer timer;
    };

    std::deque<connection> all(n);
    const double store = median_of(5, [&] {
      return each(ops, [&](std::size_t) { all[dice.below(n)].last = vigil::clock::now(); });
    });
    std::atomic<std::size_t> fired{0};
    const auto due = vigil::clock::now() + 500ms;
    for (connection& c : all) {
      c.timer = vigil::after_func(due - vigil::clock::now(), [&fired, &c] {
        fired.fetch_add(1);
        c.timer.reset(1h);
      });
    }
    while (vigil::clock::now() < due) {
    }
    const nanos begun = thread_cpu_time();
    while (fired.load() < n)
      vigil::this_fiber::yield();
    const double fire = static_cast<double>(thread_cpu_time() - begun) / static_cast<double>(n);
    out.add("3: let it fire and arm it again", store + fire / 10, "ns", "10 activities each");
    for (connection& c : all)
      c.timer.stop();
  }
  {
    vigil::timeout_list list(1h, [](entry&) {});
    std::vector<entry> entries(n);
    for (entry& e : entries)
      list.add(e);
    out.add(
        "4: timeout_list, touch()",
        median_of(
            5,
            [&] { return each(ops, [&](std::size_t) { keep(entries[dice.below(n)].touch()); }); }),
        "ns");
    const auto now = vigil::clock::now();
    out.add("4: timeout_list, touch(now)",
            median_of(5,
                      [&] {
                        return each(ops, [&, k = 0](std::size_t) mutable {
                          keep(entries[dice.below(n)].touch(now + std::chrono::nanoseconds(++k)));
                        });
                      }),
            "ns");
  }
}

void expire_all(report& out) {
  constexpr std::size_t n = 100'000;
  const double value = median_of(5, [&] {
    std::atomic<std::size_t> expired{0};
    vigil::timeout_list list(200ms, [&](entry&) {
      expired.fetch_add(1, std::memory_order_relaxed);  // ordering: a count
    });
    std::vector<entry> entries(n);
    for (entry& e : entries)
      list.add(e);
    const auto last = vigil::clock::now() + 200ms;
    while (vigil::clock::now() < last) {
    }
    const nanos begun = thread_cpu_time();
    while (expired.load() < n)
      vigil::this_fiber::yield();
    return static_cast<double>(thread_cpu_time() - begun) / static_cast<double>(n);
  });
  out.add("expire, 100 000 due together", value, "ns");
  vigil::timeout_list list(1h, [](entry&) {});
  std::vector<entry> entries(n);
  out.add("add and remove, in turn",
          median_of(5,
                    [&] {
                      return each(n, [&](std::size_t i) {
                        list.add(entries[i]);
                        vigil::timeout_list::remove(entries[i]);
                      });
                    }),
          "ns");
}

}  // namespace

void timeouts(report& out) {
  vigil::run(with_workers(1), [&] {
    vigil::spawn([&] {
      touch_beside_store(out, 1000, "1 000 entries");
      touch_beside_store(out, 1'000'000, "1 000 000 entries");
      four_ways(out);
      expire_all(out);
    }).join();
  });
}

}  // namespace bench
