// The machine's own limits, beside which the peers are read: the gain of two threads on
// random memory when nothing makes them wait for each other, and the lateness of a bare
// kernel wait.
//
// Here arm-parallel is a load, a change and a store of a random cache line, in an array
// that each thread has to itself and that is as large as its timer records.
#include "peers.hpp"

#include <array>

#include <linux/futex.h>
#include <sys/prctl.h>

namespace {

using namespace peers;

struct alignas(64) line {
  std::array<std::uint64_t, 8> words;
};

constexpr std::size_t lines_of_a_timer = 3;

int arm_parallel(const request& asked) {
  const std::size_t ops = 16 * asked["ops"];  // they are that much cheaper
  const std::size_t records = asked["records"];
  const std::size_t lines = records == 1 ? 1 : records * lines_of_a_timer;
  const auto change = [&](std::size_t threads) {
    return time_threads(threads, [&](std::size_t i) {
      return [own = std::vector<line>(lines), dice = random_numbers(i), ops]() mutable {
        for (std::size_t k = 0; k < ops; ++k) {
          // Volatile: each change is a load and a store.
          volatile std::uint64_t& word = own[dice.below(own.size())].words[0];
          word = word + 1;
        }
      };
    });
  };
  return serve([&] {
    const nanos alone = change(1);
    return scaling(ops, alone, alone, change(2));
  });
}

void sleep_until(nanos deadline) {
  std::uint32_t word = 0;
  timespec until{};
  until.tv_sec = deadline / second;
  until.tv_nsec = deadline % second;
  while (now() < deadline) {
    ::syscall(SYS_futex,
              &word,
              FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG,
              0,
              &until,
              nullptr,
              FUTEX_BITSET_MATCH_ANY);
  }
}

int overshoot(const request& asked) {
  ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  return serve([&] {
    lateness late(asked["n"]);
    for (std::size_t i = 0; i < asked["n"]; ++i) {
      const nanos deadline = now() + millisecond;
      sleep_until(deadline);
      late.add(now() - deadline);
    }
    return late.result();
  });
}

// Stores to random words that lie as far apart as vigil's entries.
int touch(const request& asked) {
  struct alignas(8) spaced {
    std::uint64_t word;
    std::array<std::uint64_t, 4> rest;
  };

  std::vector<spaced> all(asked["n"]);
  random_numbers dice;
  const std::size_t ops = asked["ops"];
  return serve([&] {
    const nanos begun = cpu_time();
    for (std::size_t i = 0; i < ops; ++i) {
      volatile std::uint64_t& word = all[dice.below(all.size())].word;
      word = i;
    }
    return numbers{{"touch", each(cpu_time() - begun, ops)}};
  });
}

}  // namespace

int main(int count, char** arguments) {
  const request asked(count, arguments);
  if (asked.is("arm-parallel")) return arm_parallel(asked);
  if (asked.is("touch")) return touch(asked);
  if (asked.is("overshoot")) return overshoot(asked);
  return unsupported();
}
