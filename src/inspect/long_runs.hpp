// long_runs: the fibers that have passed a limit while they ran (dump_extension::report),
// kept for the traces of the runs that record. The last 32 of the process, in a room of
// fixed size: a report takes no memory, as it must not wait for malloc.
#pragma once

#include "core/base/nanos.hpp"
#include "inspect/frame_list.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace VIGIL_DETAIL {

struct long_run;

struct kept_run {
  nanos time = 0;  // on the clock of its runtime
  std::uint64_t runtime = 0;
  std::uint64_t fiber = 0;
  std::size_t worker = 0;
  const char* limit = "";  // that it has passed, as long_run has it
  frame_list frames;
};

inline constexpr std::size_t runs_kept = 32;

// Keeps it in place of the oldest. Any thread.
void keep(const long_run& r, const frame_list& frames) noexcept;

// Those of one runtime, the oldest first. Any thread. Throws std::bad_alloc.
std::vector<kept_run> kept_runs_of(std::uint64_t runtime);

}  // namespace VIGIL_DETAIL
