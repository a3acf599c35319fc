// The price of looking inside: a dump of 10 000 fibers with their frames, and of a full
// load beside which somebody dumps every ten milliseconds.
#include "harness.hpp"

#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

namespace bench {

namespace {

using namespace std::chrono_literals;

[[gnu::noinline]] void down(int depth, vigil::receiver<int> from) {
  if (depth == 0) {
    static_cast<void>(from.recv());
  } else {
    down(depth - 1, from);
  }
  asm volatile("" ::: "memory");  // no tail call
}

template <class F>
double milliseconds(F f) {
  const auto begin = std::chrono::steady_clock::now();
  f();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  return taken.count();
}

void dump_many(report& out, std::FILE* nowhere) {
  constexpr int fibers = 10'000;
  constexpr int shapes = 10;
  vigil::run([&] {
    auto closed = vigil::make_channel<int>();
    std::vector<vigil::fiber<void>> all;
    for (int i = 0; i < fibers; ++i)
      all.push_back(vigil::spawn(&down, 1 + i % shapes, closed));
    vigil::sleep_for(300ms);
    const std::string name = "10 000 fibers, 10 stacks, ";
    out.add(
        name + "text", milliseconds([&] { vigil::inspect::dump(nowhere); }), "ms", "first time");
    out.add(name + "text", milliseconds([&] { vigil::inspect::dump(nowhere); }), "ms");
    out.add(name + "JSON", milliseconds([&] { vigil::inspect::dump_json(nowhere); }), "ms");
    closed.close();
  });
}

// Thousands of hand-overs in a second, on all workers, while `beside` runs on a thread.
template <class F>
double hand_overs(nanos duration, F beside) {
  double result = 0;
  vigil::run([&] {
    std::atomic<bool> stop{false};
    std::atomic<long> total{0};
    std::vector<vigil::fiber<void>> all;
    for (int i = 0; i < 64; ++i) {
      all.push_back(vigil::spawn([&] {
        long mine = 0;
        while (!stop.load(std::memory_order_relaxed)) {
          vigil::this_fiber::yield();
          ++mine;
        }
        total.fetch_add(mine);
      }));
    }
    vigil::blocking([&] {
      const auto until = std::chrono::steady_clock::now() + std::chrono::nanoseconds(duration);
      while (std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(10ms);
        beside();
      }
    });
    stop.store(true);
    for (auto& f : all)
      f.join();
    result = static_cast<double>(total.load()) / (static_cast<double>(duration) / 1e6);
  });
  return result;
}

}  // namespace

void inspect(report& out) {
  vigil::inspect::install();
  std::FILE* const nowhere = std::fopen("/dev/null", "w");
  dump_many(out, nowhere);
  const nanos duration = (out.is_long() ? 5'000 : 1'000) * millisecond;
  const double alone = hand_overs(duration, [] {});
  const double beside = hand_overs(duration, [&] { vigil::inspect::dump(nowhere); });
  out.compare("yields of 64 fibers beside a dump each 10 ms", beside, "k/s", alone, "without");
  std::fclose(nowhere);
}

}  // namespace bench
