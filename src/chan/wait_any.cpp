// wait_any and wait_all: a select over joins, and joins one after another, which take no
// result.
#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/select_case.hpp>

#include <stdexcept>
#include <vector>

namespace vigil::inline VIGIL_ABI::detail {

std::size_t wait_any(fiber_core* const* fibers, std::size_t count, const wait_limit& limit) {
  std::vector<select_case> cases;
  std::vector<select_case*> pointers;
  cases.reserve(count + 1);
  pointers.reserve(count + 1);
  bool is_there = false;
  for (std::size_t i = 0; i < count; ++i) {
    if (fibers[i] != nullptr) {
      check_join(fibers[i]);
      is_there = true;
    }
    pointers.push_back(&cases.emplace_back(join_case_table, fibers[i]));
  }
  if (!is_there) {
    throw std::invalid_argument(
        "vigil::wait_any: there is no fiber to wait for: every handle is empty");
  }
  pointers.push_back(&cases.emplace_back(select_case::kind::timed, limit));
  const std::size_t taken = select(pointers.data(), pointers.size(), choice::fair);
  if (taken != count) leave_joinable(fibers[taken]);
  return taken;
}

bool wait_all(fiber_core* const* fibers, std::size_t count, const wait_limit& limit) {
  const kept_limit kept(limit.absolute());
  for (std::size_t i = 0; i < count; ++i) {
    if (fibers[i] != nullptr && !wait_for_end(fibers[i], kept.limit)) return false;
  }
  return true;
}

}  // namespace vigil::inline VIGIL_ABI::detail
