#include "inspect/object_numbers.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string_view>

namespace VIGIL_DETAIL {
namespace {

// The kind of thing: a group, for one, has two queues in one line.
wait_reason thing_of(const shown_object& o) noexcept {
  if (o.type == shown_object::kind::channel) return wait_reason::recv;
  if (o.reason == wait_reason::shared_mutex_read) return wait_reason::shared_mutex_write;
  return o.reason;
}

// Calls f with the birth and the kind of each object that has a line.
template <class Awaited, class F>
void for_each_birth(Awaited& o, F f) {
  for (std::size_t i = 0; i < o.case_count; ++i) {
    auto& c = o.cases[i];
    const bool has_birth =
        c.type == shown_object::kind::channel || c.type == shown_object::kind::queue;
    if (has_birth && c.made.line != 0) f(c.made, thing_of(c));
  }
  if (o.ends_with_context && o.context.line != 0) f(o.context, wait_reason::none);
}

}  // namespace

object_numbers::entry object_numbers::entry_of(const shown_birth& b, wait_reason thing) noexcept {
  constexpr std::uint64_t odd = 0x9e3779b97f4a7c15;
  constexpr std::uint64_t in_no_pointer = std::uint64_t{1} << 47;
  std::uint64_t h = std::hash<std::string_view>{}(b.file);
  h = h * odd + std::hash<std::string_view>{}(b.name);
  h = h * odd + b.line;
  return {h * odd + static_cast<std::uint64_t>(thing),
          reinterpret_cast<std::uintptr_t>(b.address.get()) ^ in_no_pointer};
}

void object_numbers::add(const awaited_object& o) {
  for_each_birth(
      o, [this](const shown_birth& b, wait_reason thing) { all_.push_back(entry_of(b, thing)); });
}

void object_numbers::finish() noexcept {
  std::sort(all_.begin(), all_.end());
  all_.erase(std::unique(all_.begin(), all_.end()), all_.end());
}

void object_numbers::apply(awaited_object& o) const noexcept {
  for_each_birth(o, [this](shown_birth& b, wait_reason thing) {
    const entry own = entry_of(b, thing);
    const auto first = std::lower_bound(all_.begin(), all_.end(), entry{own.first, 0});
    const auto at = std::lower_bound(first, all_.end(), own);
    if (at == all_.end() || *at != own) return;
    const bool is_alone = at == first && (at + 1 == all_.end() || (at + 1)->first != own.first);
    if (!is_alone) b.number = static_cast<std::uint32_t>(at - first) + 1;
  });
}

}  // namespace VIGIL_DETAIL
