// A fiber that the search calls certain never goes on, whatever random programs do.
#include "core/sched/worker/running_runtimes.hpp"
#include "inspect/leaks_helpers.hpp"
#include "inspect/stuck_fibers.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <utility>

#include <boost/container/static_vector.hpp>

namespace vigil::testing_support {
namespace {

// Not on the heap, where all handles count as reachable.
using channel_list = boost::container::static_vector<channel<int>, 24>;

// Fibers by their numbers and the counts of their runs.
using fiber_set = std::set<std::pair<std::uint64_t, std::uint32_t>>;

struct stuck_look {
  fiber_set certain;
  fiber_set waiting;  // all that wait without a deadline
};

stuck_look look_now() {
  const detail::handler_scope inside;
  const detail::slab_hold hold;
  const detail::stuck_list found = detail::find_stuck_fibers();
  stuck_look look;
  for (const detail::waiting_fiber& f : found.fibers) {
    look.waiting.emplace(f.id, f.runs);
    const bool is_certain = found.why_not == nullptr && f.way == detail::open_way::none;
    if (is_certain) look.certain.emplace(f.id, f.runs);
  }
  return look;
}

// A fiber that has some of the channels, and uses them in a random order for some time,
// then keeps them or not.
void wander(seeded& dice, channel_list mine, int depth) {
  for (int step = 0; step < 6 && !mine.empty(); ++step) {
    const auto size = static_cast<std::uint32_t>(mine.size());
    const channel<int> c = mine[dice.below(size)];
    switch (dice.below(8)) {
      case 0:
      case 1:
        c.send(1);
        break;
      case 2:
      case 3:
        c.recv();
        break;
      case 4:
        select(on_recv(c), on_send(mine[dice.below(size)], 1));
        break;
      case 5:
        sleep_for(std::chrono::milliseconds(dice.below(50)));
        break;
      case 6:
        if (size > 1) mine.erase(mine.begin() + dice.below(size));
        break;
      default:
        if (depth == 0) break;
        {
          channel_list theirs;
          for (const auto& one : mine) {
            if (dice.below(2) == 0) theirs.push_back(one);
          }
          theirs.push_back(make_channel<int>(dice.below(2)));
          if (dice.below(2) == 0) mine.push_back(theirs.back());
          go([&dice, theirs, depth] { wander(dice, theirs, depth - 1); });
        }
        break;
    }
  }
}

}  // namespace

TEST_CASE("a fiber that is certain never goes on in random programs") {
  inspect::install();
  std::size_t found = 0;
  const auto seeds = static_cast<std::uint64_t>(rounds(40));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    testing::virtual_options o;
    o.seed = seed;
    in_virtual(o, [&] {
      seeded dice(seed);
      fiber_set certain;
      go([&dice] {
        channel_list all;
        for (int i = 0; i < 5; ++i)
          all.push_back(make_channel<int>(dice.below(2)));
        for (int i = 0; i < 6; ++i) {
          channel_list some;
          for (const auto& c : all) {
            if (dice.below(2) == 0) some.push_back(c);
          }
          go([&dice, some] { wander(dice, some, 2); });
        }
      });
      for (int look = 0; look < 12; ++look) {
        sleep_for(std::chrono::milliseconds(10));
        const stuck_look now = look_now();
        // Words that are left over may hide one later, but none has gone on.
        CHECK(
            std::includes(now.waiting.begin(), now.waiting.end(), certain.begin(), certain.end()));
        certain.insert(now.certain.begin(), now.certain.end());
      }
      found += certain.size();
    });
  }
  MESSAGE("certain: ", found);
  if (can_be_certain) CHECK(found > 0);
}

}  // namespace vigil::testing_support
