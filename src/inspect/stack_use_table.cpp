#include "inspect/stack_use_table.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

void raise_to(atomic<std::size_t>& word, std::size_t value) noexcept {
  std::size_t seen = word.load();
  while (seen < value && !word.compare_exchange_weak(seen, value)) {
  }
}

// Zero stands for none yet.
void lower_to(atomic<std::size_t>& word, std::size_t value) noexcept {
  std::size_t seen = word.load();
  while ((seen == 0 || value < seen) && !word.compare_exchange_weak(seen, value)) {
  }
}

std::size_t bucket_of(std::size_t bytes) noexcept {
  const std::size_t pages =
      (bytes + inspect::stack_use::first_bound - 1) / inspect::stack_use::first_bound;
  const auto bucket = static_cast<std::size_t>(std::bit_width(pages == 0 ? 0 : pages - 1));
  return std::min(bucket, inspect::stack_use::buckets - 1);
}

std::size_t hash(const char* file, unsigned line) noexcept {
  return std::hash<std::string_view>{}(file) ^ line * std::size_t{0x9e37'79b9};
}

}  // namespace

// Returns the slot of a place, or the free one where it would be; `slots` if there is
// neither. No two places lie in one slot, and none ever leaves.
std::size_t stack_use_table::find(const char* file, unsigned line) const noexcept {
  const std::size_t start = hash(file, line);
  for (std::size_t i = 0; i < slots; ++i) {
    const std::size_t at = (start + i) % slots;
    const char* const known = places_[at].file.load();
    if (known == nullptr || (places_[at].line == line && std::strcmp(known, file) == 0)) return at;
  }
  return slots;
}

std::size_t stack_use_table::find_or_add(const char* file, unsigned line) noexcept {
  std::size_t at = find(file, line);
  if (at == slots || places_[at].file.load() != nullptr) return at;
  const std::lock_guard guard(adding_);
  at = find(file, line);
  if (places_[at].file.load() != nullptr) return at;
  if (known_ == most_places) return slots;
  // The text belongs to a library that may be unloaded.
  const char* const copy = ::strdup(file);
  if (copy == nullptr) return slots;
  ++known_;
  places_[at].line = line;
  places_[at].file.store(copy);
  return at;
}

bool stack_use_table::begin(const char* file, unsigned line, nanos now) noexcept {
  place& p = places_[find_or_add(file, line)];
  if (p.begun.load() < first_ones) return p.begun.fetch_add(1) < first_ones;
  // Runtimes have clocks of their own: one that is far from `due` is another.
  nanos due = p.next.load();
  const bool is_due = now >= due || due - now > spacing;
  return is_due && p.next.compare_exchange_strong(due, now + spacing);
}

void stack_use_table::end(const char* file,
                          unsigned line,
                          std::size_t bytes,
                          std::size_t stack) noexcept {
  place& p = places_[find_or_add(file, line)];
  p.sum.fetch_add(bytes);
  raise_to(p.most, bytes);
  lower_to(p.least_stack, stack);
  p.count[bucket_of(bytes)].fetch_add(1);
}

stack_use_table::reading::reading(const stack_use_table& of) : table_(of), all_(slots + 1) {
  for (std::size_t i = 0; i < all_.size(); ++i) {
    const place& from = of.places_[i];
    inspect::stack_use& to = all_[i];
    const char* const file = from.file.load();
    if (file != nullptr) {
      to.place = file;
      if (from.line != 0) to.place += ":" + std::to_string(from.line);
    } else if (i == slots) {
      to.place = "others";
    } else {
      continue;
    }
    for (std::size_t b = 0; b < to.count.size(); ++b)
      to.count[b] = from.count[b].load();
    to.sum_bytes = from.sum.load();
    to.most_bytes = from.most.load();
    to.least_stack = from.least_stack.load();
  }
}

void stack_use_table::reading::add_alive(const char* file,
                                         unsigned line,
                                         std::size_t bytes,
                                         std::size_t stack) noexcept {
  std::size_t at = table_.find(file, line);
  if (table_.places_[at].file.load() == nullptr) at = slots;
  inspect::stack_use& to = all_[at];
  if (to.place.empty()) return;  // added since
  to.most_bytes = std::max(to.most_bytes, bytes);
  to.least_stack = to.least_stack == 0 ? stack : std::min(to.least_stack, stack);
}

std::vector<inspect::stack_use> stack_use_table::reading::take() && {
  std::erase_if(all_, [](const inspect::stack_use& u) { return u.most_bytes == 0; });
  std::sort(all_.begin(), all_.end(), [](const auto& a, const auto& b) {
    return a.most_bytes != b.most_bytes ? a.most_bytes > b.most_bytes : a.place < b.place;
  });
  return std::move(all_);
}

}  // namespace VIGIL_DETAIL
