#include "core/idle_timeouts/timeout_order.hpp"

#include <algorithm>
#include <utility>

namespace VIGIL_DETAIL {

timeout_order::room::room() noexcept {
  for (auto& level : heads_) {
    for (timeout_links& head : level)
      make_empty(head);
  }
}

timeout_order::room* timeout_order::take_room() noexcept {
  begin_at(base_);
  return std::exchange(room_, nullptr);
}

void timeout_order::begin_at(nanos time) noexcept {
  base_ = time;
  breaking_ = nullptr;
  levels_ = 0;  // entries that were taken out leave no bit
  for (std::uint16_t& level : filled_)
    level = 0;
}

void timeout_order::swap(timeout_order& other) noexcept {
  std::swap(room_, other.room_);
  std::swap(filled_, other.filled_);
  std::swap(levels_, other.levels_);
  std::swap(breaking_, other.breaking_);
  std::swap(base_, other.base_);
}

void timeout_order::unlink(timeout_links& n) noexcept {
  n.before->after = n.after;
  n.after->before = n.before;
  n.before = n.after = nullptr;
}

void timeout_order::append(timeout_links& head, timeout_links& n) noexcept {
  n.before = head.before;
  n.after = &head;
  n.before->after = &n;
  head.before = &n;
}

timeout_order::place timeout_order::place_of(nanos time) const noexcept {
  const auto base = static_cast<std::uint64_t>(base_);
  if (time <= base_) return {0, static_cast<unsigned>(base % slots)};
  const auto t = static_cast<std::uint64_t>(time);
  const auto level = static_cast<unsigned>(std::bit_width(t ^ base) - 1) / digit;
  return {level, static_cast<unsigned>(t >> (level * digit)) % slots};
}

void timeout_order::put(timeout_node& n, nanos time, place p) noexcept {
  append(room_->heads_[p.level][p.slot], n);
  nanos& earliest = room_->earliest_[p.level][p.slot];
  const bool was_filled = (filled_[p.level] >> p.slot & 1U) != 0;
  earliest = was_filled ? std::min(earliest, time) : time;
  filled_[p.level] = static_cast<std::uint16_t>(filled_[p.level] | 1U << p.slot);
  levels_ = static_cast<std::uint16_t>(levels_ | 1U << p.level);
}

void timeout_order::insert(timeout_node& n, nanos time) noexcept {
  put(n, time, place_of(time));
}

void timeout_order::note_empty(unsigned level, unsigned slot) noexcept {
  filled_[level] = static_cast<std::uint16_t>(filled_[level] & ~(1U << slot));
  if (filled_[level] == 0) levels_ = static_cast<std::uint16_t>(levels_ & ~(1U << level));
}

timeout_order::found timeout_order::first(nanos now, unsigned& moves) noexcept {
  for (;;) {
    while (breaking_ != nullptr && !is_empty(*breaking_)) {  // TO3
      if (moves == 0) return {nullptr, true, 0};
      --moves;
      auto& n = static_cast<timeout_node&>(*breaking_->after);
      unlink(n);
      __builtin_prefetch(breaking_->after, 1);
      const nanos time = n.touched.load();
      put(n, time, place_of(time));
    }
    breaking_ = nullptr;
    if (levels_ == 0) return {nullptr, false, never};
    const auto level = static_cast<unsigned>(std::countr_zero(levels_));
    const auto slot = static_cast<unsigned>(std::countr_zero(filled_[level]));
    timeout_links& head = room_->heads_[level][slot];
    if (is_empty(head)) {
      note_empty(level, slot);
      continue;
    }
    auto& n = static_cast<timeout_node&>(*head.after);
    const nanos time = n.touched.load();
    const place p = place_of(time);
    if (p != place{level, slot}) {  // touched since it was put there
      if (moves == 0) return {nullptr, true, 0};
      --moves;
      unlink(n);
      put(n, time, p);
      continue;
    }
    const bool alone = head.before == head.after;
    if (level == 0 || alone) return {&n, false, time};
    const nanos begin = room_->earliest_[level][slot];
    if (begin > now) return {nullptr, false, begin};  // TO2
    base_ = begin;
    breaking_ = &head;
  }
}

timeout_node* timeout_order::any() noexcept {
  if (breaking_ != nullptr && !is_empty(*breaking_))
    return static_cast<timeout_node*>(breaking_->after);
  while (levels_ != 0) {
    const auto level = static_cast<unsigned>(std::countr_zero(levels_));
    const auto slot = static_cast<unsigned>(std::countr_zero(filled_[level]));
    timeout_links& head = room_->heads_[level][slot];
    if (!is_empty(head)) return static_cast<timeout_node*>(head.after);
    note_empty(level, slot);
  }
  return nullptr;
}

}  // namespace VIGIL_DETAIL
