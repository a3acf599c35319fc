#include "core/sched/run/side_call.hpp"

#include "core/base/assert.hpp"
#include "core/base/clock_source.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>

namespace VIGIL_DETAIL {

void side_calls::begin(side_call& c) noexcept {
  sched_.outside.add();
  under_way_.fetch_add(1);
  const lock_guard guard(lock_);
  calls_.push_back(c);
}

bool side_calls::returned(side_call& c) noexcept {
  waiter* waits = nullptr;
  const bool in_virtual = sched_.clock.is_virtual();
  std::optional<visit> inside;
  if (in_virtual) inside.emplace(sched_.inside());  // a call that is done no longer holds the run
  {
    const lock_guard guard(lock_);
    if (c.left) {
      calls_.remove(c);
      return true;
    }
    c.done = true;
    if (!in_virtual) {
      calls_.remove(c);
      // Claimed under the lock: a caller leaves under it, so a waiting one is alive here.
      if (c.waits.claim(outcome::value)) waits = c.waits.whose;
    }
  }
  if (in_virtual) {
    sched_.idle().wake_all();  // this may be the last call: take_in()
    return false;
  }
  if (waits != nullptr) waits->deliver();
  over();
  return false;
}

call_fate side_calls::leave(side_call& c) noexcept {
  call_fate fate = call_fate::over;
  {
    const lock_guard guard(lock_);
    if (!c.done) {
      if (!c.withdraw()) {  // SC4
        c.left = true;
        return call_fate::left;
      }
      fate = call_fate::withdrawn;
    }
    if (!c.hook.linked) return fate;  // over already
    calls_.remove(c);
  }
  over();
  return fate;
}

// Called from threads outside, too. The main fiber may end the run as soon as the count
// is down: the runtime's destructor waits for the threads that are in here.
void side_calls::over() noexcept {
  const visit inside(sched_.inside());
  under_way_.fetch_sub(1);
  sched_.outside.end();
  if (sched_.clock.is_virtual()) sched_.idle().wake_all();
  sched_.ending.something_ended();
}

void side_calls::wait_until_over() const noexcept {
  while (under_way_.load() != 0)
    std::this_thread::yield();
}

// --- virtual time: SC3

bool side_calls::all_done() noexcept {
  const lock_guard guard(lock_);
  if (calls_.size() != under_way_.load()) return false;  // a call is being dropped
  for (side_call* c = calls_.front(); c != nullptr; c = call_list::next(*c)) {
    if (!c->done) return false;
  }
  return true;
}

bool side_calls::take_in() noexcept {
  if (!all_done()) return false;
  for (;;) {
    side_call* c = nullptr;
    {
      const lock_guard guard(lock_);
      c = calls_.pop_front();
    }
    if (c == nullptr) return true;
    if (c->waits.claim(outcome::value)) c->waits.whose->deliver();
    over();
  }
}

// Copies them under the lock, and writes without it: the reader of the text may be slow.
void side_calls::write(dump_writer& out) noexcept {
  struct seen_call {
    fiber_identity by;
    site from;
    nanos since;
  };

  std::array<seen_call, 64> seen;
  std::size_t n = 0;
  {
    const lock_guard guard(lock_);
    for (const side_call* c = calls_.front(); c != nullptr; c = call_list::next(*c))
      if (!c->done && n++ < seen.size()) seen[n - 1] = {c->by, c->from, c->since};
  }
  for (std::size_t i = 0; i < std::min(n, seen.size()); ++i) {
    out.text("  a function on a side pool, called ").seconds(monotonic_now() - seen[i].since);
    out.text(" ago by ").text(fiber_words(seen[i].by).text());
    out.text(" at ").text(place_in_words(seen[i].from.file, seen[i].from.line).text).text("\n");
  }
  if (n > seen.size()) out.text("  ... and ").number(n - seen.size()).text(" more\n");
}

}  // namespace VIGIL_DETAIL
