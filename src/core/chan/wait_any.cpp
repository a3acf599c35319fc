// wait_any and wait_all: a select over joins, and joins one after another, which take no
// result.
#include <vigil/detail/wait_cases.hpp>
#include <vigil/error.hpp>

#include <stdexcept>
#include <utility>

namespace VIGIL_DETAIL {

// The handles of one range are of one kind, which is asked once.
void check_ends(const std::vector<any_end>& ends) {
  const end_kind* kind = nullptr;
  const void* own = nullptr;
  for (const any_end& e : ends) {
    if (e.kind != kind) {
      kind = e.kind;
      own = kind->own();
    }
    if (e.object != nullptr && e.object == own) {
      throw wrong_place(
          "vigil::wait_any or wait_all: the caller's own handle is among the handles, and a fiber "
          "or task cannot wait for its own end");
    }
  }
}

end_cases::end_cases(std::vector<any_end> ends, const wait_limit& limit) : ends_(std::move(ends)) {
  check_ends(ends_);
  cases_.reserve(ends_.size() + 1);
  pointers_.reserve(ends_.size() + 1);
  bool is_there = false;
  for (const any_end& e : ends_) {
    is_there = is_there || e.object != nullptr;
    pointers_.push_back(&cases_.emplace_back(*e.kind->join, e.object));
  }
  if (!is_there) {
    throw std::invalid_argument(
        "vigil::wait_any: there is nothing to wait for: every handle is empty");
  }
  pointers_.push_back(&cases_.emplace_back(select_case::kind::timed, limit));
}

std::optional<std::size_t> end_cases::taken(std::size_t index) const noexcept {
  if (index == ends_.size()) return std::nullopt;
  ends_[index].kind->leave(ends_[index].object);
  return index;
}

std::optional<std::size_t> wait_any(std::vector<any_end> ends, const wait_limit& limit) {
  const end_cases cases(std::move(ends), limit);
  return cases.taken(select(cases.data(), cases.size(), choice::fair));
}

bool wait_all(const std::vector<any_end>& ends, const wait_limit& limit) {
  check_ends(ends);
  const kept_limit kept(limit.absolute());
  for (const any_end& e : ends) {
    if (e.object != nullptr && !e.kind->wait(e.object, kept.limit)) return false;
  }
  return true;
}

}  // namespace VIGIL_DETAIL
