// object_view: where the memory of a channel, a context and a group lies, and how
// contexts hang together, for those who look inside while no other thread runs.
#pragma once

#include "core/cancel/context_core.hpp"
#include "core/chan/channel_core.hpp"
#include "core/sched/wait/cancel_tree.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

struct memory_range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  static memory_range of(const void* at, std::size_t size) noexcept {
    const auto begin = reinterpret_cast<std::uintptr_t>(at);
    return {begin, begin + size};
  }

  bool has(std::uintptr_t address) const noexcept { return address - begin < end - begin; }
};

// Caller, for all: has stopped the threads that may change the object.
struct object_view {
  static memory_range ring_of(const channel_core& c) noexcept {
    return memory_range::of(c.ring_, c.ring_ == nullptr ? 0 : c.capacity_ * c.ops.size);
  }

  // The node whose `made_at` this is.
  static const cancel_context& context_with(const birth& made_at) noexcept {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
    constexpr std::size_t offset = offsetof(cancel_node, made_at);
#pragma GCC diagnostic pop
    const auto* const at = reinterpret_cast<const std::byte*>(&made_at) - offset;
    return static_cast<const cancel_context&>(*reinterpret_cast<const cancel_node*>(at));
  }

  // Whether it may be done without anybody's help.
  static bool ends_by_itself(const cancel_context& c) noexcept {
    return c.deadline != never || c.timer_ != nullptr || c.heard_ != nullptr || c.is_done();
  }

  // Calls f with each context below this one. False, having seen only some, if a thread
  // was stopped while it changed the tree.
  template <class F>
  static bool for_each_below(const cancel_node& top, F&& f) {
    const cancel_node* at = &top;
    for (;;) {
      const cancel_node::inside here = at->look_inside();
      if (!here.is_at_rest) return false;
      if (at != &top) f(static_cast<const cancel_context&>(*at));
      const cancel_node* next = here.first_child;
      while (next == nullptr) {
        if (at == &top) return true;
        next = cancel_node::child_list::next(*at);
        if (next == nullptr) at = at->look_inside().above;
      }
      at = next;
    }
  }

  VIGIL_FOR_IO static const std::size_t group_size;
};

}  // namespace VIGIL_DETAIL
