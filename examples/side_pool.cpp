// side_pool: hashing on the side pool while a ticker keeps time.
//
// Run it:     build/release/examples/side_pool
// It prints:  the hash of each of six blocks, in their order, and how much of the ticker
//             a function on the pool saw: the pool's functions run on its own threads, so
//             only the fibers that asked wait for them.
#include "example.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

// Computes FNV-1a over a block made from its number, some million steps.
std::uint64_t hash_of(unsigned block) {
  std::uint64_t h = 0xcbf2'9ce4'8422'2325;
  for (std::uint32_t i = 0; i < 4'000'000; ++i) {
    h ^= (block * 31 + i) & 0xff;
    h *= 0x100'0000'01b3;
  }
  return h;
}

}  // namespace

int main() {
  //! [side_pool]
  vigil::options settings;
  settings.workers = 1;  // one is enough for all fibers
  settings.blocking_threads = 2;
  settings.exit = vigil::exit_when::all_done;

  return example_main(settings, [] {
    const auto ticks = std::make_shared<std::atomic<int>>(0);
    auto beat = vigil::every(1ms, [ticks] { ++*ticks; });
    beat.unref();  // it does not hold the program

    // Would never end if the worker stood still meanwhile.
    auto watching = vigil::spawn([ticks] {
      vigil::blocking([ticks] {
        const int last = *ticks + 5;
        while (*ticks < last)
          std::this_thread::yield();
      });
    });

    std::vector<vigil::fiber<std::uint64_t>> hashes;
    for (unsigned block = 0; block < 6; ++block)
      hashes.push_back(
          vigil::spawn([block] { return vigil::blocking([block] { return hash_of(block); }); }));

    for (unsigned block = 0; block < 6; ++block)
      std::printf(
          "block %u: %016llx\n", block, static_cast<unsigned long long>(hashes[block].join()));

    watching.join();
    std::puts("the ticker has ticked five times while a function ran");

    const vigil::blocking_stats pool = vigil::stats_of_blocking();
    std::printf("%llu functions on %zu threads\n",
                static_cast<unsigned long long>(pool.done),
                pool.threads);
    vigil::post([] { std::puts("and this was posted last"); });
  });
  //! [side_pool]
}
