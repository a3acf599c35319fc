// Contexts: what one costs, and what it costs to cancel one under which a hundred
// thousand fibers wait.
#include "harness.hpp"

#include <vigil/context.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <string>
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

// Starts many fibers that are alive together, as those that a cancel wakes are, a
// second time: their stacks have been used before.
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
  double held;  // of the memory that they took, in per cent
};

// Many fibers in wait(ctx), which a cancel ends.
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

}  // namespace

void cancel(report& out) {
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
