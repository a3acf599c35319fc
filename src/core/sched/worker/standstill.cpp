#include "core/sched/worker/standstill.hpp"

#include "core/base/assert.hpp"
#include "core/base/clock_source.hpp"
#include "core/sched/fiber/fiber_words.hpp"

#include <algorithm>
#include <ctime>
#include <string>

namespace VIGIL_DETAIL {

void standstill::begin_run() noexcept {
  begin_instant();
  was_said_ = false;
}

void standstill::begin_instant() noexcept {
  all_ = 0;
  began_ = 0;
  began_processor_ = 0;
  if (noted_ == 0) return;
  noted_ = 0;
  std::fill(busiest_, busiest_ + places, busy_one{});
}

void standstill::add(const fiber& f, std::uint64_t n) noexcept {
  all_ += n;
  if (was_said_) return;
  const bool by_time = takes_long();
  if (all_ >= most / 2 || began_processor_ != 0) note(f, n);
  if (all_ >= most || by_time) say(by_time);
}

// Asks the processor's time, which is a system call, only at an instant that lasts.
bool standstill::takes_long() noexcept {
  const nanos now = coarse_monotonic_now();
  if (began_ == 0) began_ = now;
  if (now - began_ < short_time) return false;
  const nanos processor = read_clock(CLOCK_THREAD_CPUTIME_ID);
  if (began_processor_ == 0) began_processor_ = processor;
  return processor - began_processor_ >= most_time - short_time;
}

// Finds those that did more than one in `places` of all that is noted, in a table that
// does not grow (Misra and Gries).
void standstill::note(const fiber& f, std::uint64_t n) noexcept {
  noted_ += n;
  const fiber_identity& who = f.identity;
  busy_one* free_place = nullptr;
  for (busy_one& b : busiest_) {
    if (b.count == 0) {
      free_place = &b;
    } else if (b.who.id == who.id && b.who.file == who.file && b.who.line == who.line) {
      b.count += n;
      return;
    }
  }
  if (free_place == nullptr) {
    std::uint64_t least = n;
    for (const busy_one& b : busiest_)
      least = std::min(least, b.count);
    for (busy_one& b : busiest_) {
      b.count -= least;
      if (b.count == 0) free_place = &b;
    }
    n -= least;
    if (n == 0) return;
  }
  *free_place = {who, n};
}

void standstill::say(bool by_time) noexcept {
  was_said_ = true;
  std::sort(busiest_, busiest_ + places, [](const busy_one& a, const busy_one& b) {
    return a.count > b.count;
  });
  try {
    std::string busy;
    for (std::size_t i = 0; i < named && busiest_[i].count * 100 >= noted_ && noted_ != 0; ++i) {
      const busy_one& b = busiest_[i];
      busy += i == 0 ? "The busiest: " : "; ";
      busy += fiber_words(b.who).text();
      busy += std::string(", started at ") + place_in_words(b.who).text;
      busy += ", with " + std::to_string(b.count * 100 / noted_) + " %";
    }
    if (busy.empty()) busy = "No single fiber does much of it: many are started";
    warn(
        "virtual time stands still: at one instant the fibers have made %llu calls and turns%s, "
        "and some fiber can still run, so no timer fires. %s. A loop that waits for something "
        "must give up its turn until then: receive from a channel, wait for a condition, or sleep "
        "for more than 0. VIGIL_SEED=%llu replays it. This is said once; the run goes on",
        static_cast<unsigned long long>(all_),
        by_time ? " in 10 s of processor time" : "",
        busy.c_str(),
        static_cast<unsigned long long>(seed_));
  } catch (const std::exception&) {
    warn("virtual time stands still, with seed %llu; there is no memory to say more",
         static_cast<unsigned long long>(seed_));
  }
}

}  // namespace VIGIL_DETAIL
