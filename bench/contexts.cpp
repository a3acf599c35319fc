// Contexts: the cost of one, of a look at one, and of cancelling one under which a
// hundred thousand fibers wait.
#include "harness.hpp"

#include <vigil/context.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t many = 100'000;

// ordering: a count that is looked at now and then.
constexpr auto counted = std::memory_order_relaxed;

// Starts many fibers that end at once, and waits for them.
double nanos_to_spawn() {
  std::atomic<std::size_t> ended{0};
  const nanos start = now();
  for (std::size_t i = 0; i < many; ++i)
    vigil::go([&ended] { ended.fetch_add(1, counted); });
  while (ended.load(counted) < many)
    vigil::this_fiber::yield();
  return static_cast<double>(now() - start);
}

// Starts many fibers that are alive together, like those that a cancellation readies, and
// for the second time: their stacks have been used before.
double nanos_to_spawn_together() {
  double took = 0;
  for (int i = 0; i < 2; ++i) {
    std::atomic<std::size_t> ended{0};
    const auto gate = vigil::make_channel<void>();
    const nanos start = now();
    for (std::size_t n = 0; n < many; ++n) {
      vigil::go([&ended, gate] {
        gate.recv();
        ended.fetch_add(1, counted);
      });
    }
    took = static_cast<double>(now() - start);
    gate.close();
    while (ended.load(counted) < many)
      vigil::this_fiber::yield();
  }
  return took;
}

struct cancelling {
  double call;  // until cancel() has returned: all are readied
  double all;   // until all have ended
  double held;  // how much of the memory they took is still held, in per cent
};

// Starts many fibers in wait(ctx), and cancels them.
cancelling cancel_many(void (*wait)(const vigil::context&)) {
  std::atomic<std::size_t> waiting{0};
  std::atomic<std::size_t> ended{0};
  const std::size_t before = memory_held();
  auto it = vigil::with_cancel(vigil::background());
  for (std::size_t i = 0; i < many; ++i) {
    vigil::go([&, ctx = it.ctx] {
      waiting.fetch_add(1, counted);
      wait(ctx);
      ended.fetch_add(1, counted);
    });
  }
  while (waiting.load(counted) < many)
    vigil::this_fiber::yield();
  vigil::sleep_for(20ms);
  const std::size_t asleep = memory_held();
  const nanos start = now();
  it.cancel();
  const nanos called = now();
  while (ended.load(counted) < many)
    vigil::this_fiber::yield();
  const nanos over = now();
  vigil::sleep_for(300ms);
  const auto kept = static_cast<double>(memory_held()) - static_cast<double>(before);
  return {static_cast<double>(called - start),
          static_cast<double>(over - start),
          100.0 * kept / static_cast<double>(asleep - before)};
}

void wait_for_done(const vigil::context& ctx) {
  ctx.done().recv();
}

void sleep_until_thrown(const vigil::context& ctx) {
  try {
    vigil::sleep_for(24h, ctx);
  } catch (const vigil::cancelled&) {
  }
}

const vigil::context_key<int> found_key;
const vigil::context_key<int> missed_key;

// Go: CommonParentCancel. There is a fiber for each worker, all under one parent.
double nanos_under_one_parent() {
  constexpr std::size_t n = 50'000;
  const std::size_t fibers = std::max(1U, std::thread::hardware_concurrency());
  const auto root = vigil::with_cancel(vigil::background());
  const auto parent = vigil::with_value(root.ctx, found_key, 1);
  std::vector<vigil::fiber<>> all;
  const nanos start = now();
  for (std::size_t f = 0; f < fibers; ++f) {
    all.push_back(vigil::spawn([&parent] {
      for (std::size_t i = 0; i < n; ++i) {
        const auto it = vigil::with_cancel(parent);
        keep(it.ctx.value(found_key));
        it.cancel();
      }
    }));
  }
  for (auto& f : all)
    f.join();
  return static_cast<double>(now() - start) / static_cast<double>(n * fibers);
}

// Go: CancelTree.
double nanos_to_cancel_chain(std::size_t depth) {
  const std::size_t times = 200'000 / depth;
  const nanos start = now();
  for (std::size_t i = 0; i < times; ++i) {
    const auto root = vigil::with_cancel(vigil::background());
    auto lowest = root.ctx;
    for (std::size_t level = 1; level < depth; ++level)
      lowest = vigil::with_cancel(lowest).ctx;
    root.cancel();
  }
  return static_cast<double>(now() - start) / static_cast<double>(times);
}

// Go: CheckCanceled, ContextCancelDone.
template <class F>
double nanos_to_look(bool at_one_that_is_done, F look) {
  constexpr std::size_t n = 1'000'000;
  const auto it = vigil::with_cancel(vigil::background());
  if (at_one_that_is_done) it.cancel();
  const nanos start = now();
  for (std::size_t i = 0; i < n; ++i)
    look(it.ctx);
  return static_cast<double>(now() - start) / n;
}

// Go: DeepValue.
double nanos_to_miss_value(std::size_t depth) {
  constexpr std::size_t n = 100'000;
  auto lowest = vigil::background();
  for (std::size_t i = 0; i < depth; ++i)
    lowest = vigil::with_value(lowest, found_key, 1);
  const nanos start = now();
  for (std::size_t i = 0; i < n; ++i)
    keep(lowest.value(missed_key));
  return static_cast<double>(now() - start) / n;
}

// Measures the same as Go's benchmarks of contexts.
void small_cases(report& out) {
  out.add("one parent for all workers: with_cancel, value, cancel",
          median_of(5, nanos_under_one_parent),
          "ns");
  for (const std::size_t depth : {10u, 1000u}) {
    out.add("a chain of " + std::to_string(depth) + ", made and cancelled",
            median_of(5, [depth] { return nanos_to_cancel_chain(depth); }) / 1e3,
            "us");
  }
  const auto is_done = [](const vigil::context& ctx) { keep(ctx.is_done()); };
  const auto channel = [](const vigil::context& ctx) { keep(ctx.done().try_recv().is_closed()); };
  for (const bool done : {false, true}) {
    const std::string of = done ? " of one that is done" : " of an open one";
    out.add("is_done()" + of, median_of(5, [&] { return nanos_to_look(done, is_done); }), "ns");
    out.add(
        "done().try_recv()" + of, median_of(5, [&] { return nanos_to_look(done, channel); }), "ns");
  }
  for (const std::size_t depth : {10u, 100u}) {
    out.add("a value that " + std::to_string(depth) + " levels do not have",
            median_of(5, [depth] { return nanos_to_miss_value(depth); }),
            "ns");
  }
}

}  // namespace

void cancel(report& out) {
  vigil::run(with_workers(0), [&] { small_cases(out); });
  vigil::run(with_workers(0), [&] {
    out.add("with_cancel, cancel",
            median_of(5,
                      [] {
                        constexpr std::size_t n = 200'000;
                        const auto parent = vigil::with_cancel(vigil::background());
                        const nanos start = now();
                        for (std::size_t i = 0; i < n; ++i)
                          vigil::with_cancel(parent.ctx).cancel();
                        return static_cast<double>(now() - start) / n;
                      }),
            "ns");
    out.add("with_timeout(1h), cancel",
            median_of(5,
                      [] {
                        constexpr std::size_t n = 200'000;
                        const auto parent = vigil::with_cancel(vigil::background());
                        const nanos start = now();
                        for (std::size_t i = 0; i < n; ++i)
                          vigil::with_timeout(parent.ctx, 1h).cancel();
                        return static_cast<double>(now() - start) / n;
                      }),
            "ns");
  });
  vigil::run(with_workers(0), [&] {
    const std::pair<const char*, void (*)(const vigil::context&)> kinds[] = {
        {"100 000 fibers in done().recv()", wait_for_done},
        {"100 000 fibers in sleep_for(d, ctx), which throws", sleep_until_thrown}};
    for (const auto& [name, wait] : kinds) {
      std::vector<double> spawns;
      std::vector<double> together;
      std::vector<double> calls;
      std::vector<double> alls;
      double held = 0;
      for (int i = 0; i < 5; ++i) {  // in turn, so that both see the same machine
        spawns.push_back(nanos_to_spawn());
        together.push_back(nanos_to_spawn_together());
        const cancelling c = cancel_many(wait);
        calls.push_back(c.call);
        alls.push_back(c.all);
        if (i == 0) held = c.held;
      }
      const double spawn = median(spawns) / 1e6;
      out.compare(std::string("cancel, ") + name + ": all readied",
                  median(calls) / 1e6,
                  "ms",
                  spawn,
                  "100 000 warm spawns");
      out.compare(std::string("cancel, ") + name + ": all ended",
                  median(alls) / 1e6,
                  "ms",
                  spawn,
                  "100 000 warm spawns");
      out.add("100 000 spawns, alive together", median(together) / 1e6, "ms");
      out.add(std::string(name) + ": still held when they have ended", held, "%");
    }
  });
}

}  // namespace bench
