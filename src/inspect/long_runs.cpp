#include "inspect/long_runs.hpp"

#include "core/sched/report/dump_extension.hpp"
#include "core/sched/worker/worker.hpp"

#include <array>
#include <mutex>

namespace VIGIL_DETAIL {
namespace {

struct room_of_runs {
  std::mutex lock;
  std::uint64_t count = 0;  // that were ever kept
  std::array<kept_run, runs_kept> runs;
};

constinit room_of_runs the_room{};

}  // namespace

void keep(const long_run& r, const frame_list& frames) noexcept {
  const std::lock_guard guard(the_room.lock);
  kept_run& to = the_room.runs[the_room.count++ % runs_kept];
  to = {r.who.now, r.who.runtime, r.who.id, r.on.index, r.limit, frames};
}

std::vector<kept_run> kept_runs_of(std::uint64_t runtime) {
  std::vector<kept_run> all;
  all.reserve(runs_kept);  // not while the lock is held
  const std::lock_guard guard(the_room.lock);
  for (std::size_t i = 0; i < runs_kept; ++i) {
    const kept_run& k = the_room.runs[(the_room.count + i) % runs_kept];
    if (k.runtime == runtime) all.push_back(k);
  }
  return all;
}

}  // namespace VIGIL_DETAIL
