// The cost of a lock that nobody else wants, beside std::mutex.
#include "harness.hpp"

#include <vigil/vigil.hpp>

#include <array>
#include <cstddef>
#include <mutex>
#include <shared_mutex>
#include <vector>

namespace bench {
namespace {

constexpr std::size_t pairs = 10'000;

template <class Pair>
double cost_of(Pair once) {
  const nanos start = thread_cpu_time();
  for (std::size_t i = 0; i < pairs; ++i)
    once();
  return static_cast<double>(thread_cpu_time() - start) / pairs;
}

}  // namespace

void locks(report& out) {
  vigil::run(with_workers(2), [&] {
    vigil::spawn([&] {
      std::mutex theirs;
      vigil::mutex ours;
      std::shared_mutex their_shared;
      vigil::shared_mutex our_shared;
      vigil::semaphore permits(1);
      std::array<std::vector<double>, 5> samples;
      // They take turns, so that all see the same machine; the first round warms up.
      for (std::size_t i = 0; i < (out.is_long() ? 1'001U : 201U); ++i) {
        const std::array<double, 5> round = {
            cost_of([&] {
              theirs.lock();
              keep(theirs);
              theirs.unlock();
            }),
            cost_of([&] {
              ours.lock();
              keep(ours);
              ours.unlock();
            }),
            cost_of([&] {
              their_shared.lock_shared();
              keep(their_shared);
              their_shared.unlock_shared();
            }),
            cost_of([&] {
              our_shared.lock_shared();
              keep(our_shared);
              our_shared.unlock_shared();
            }),
            cost_of([&] {
              permits.acquire();
              permits.release();
            }),
        };
        if (i == 0) continue;
        for (std::size_t k = 0; k < round.size(); ++k)
          samples[k].push_back(round[k]);
      }
      out.compare("mutex: lock and unlock",
                  median(samples[1]),
                  "ns",
                  1.3 * median(samples[0]),
                  "1.3 x std::mutex");
      out.compare("shared_mutex: lock_shared and unlock_shared",
                  median(samples[3]),
                  "ns",
                  median(samples[2]),
                  "std::shared_mutex");
      out.add("semaphore: acquire and release", median(samples[4]), "ns");
    }).join();
  });
}

}  // namespace bench
