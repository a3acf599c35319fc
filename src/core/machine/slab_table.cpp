#include "core/machine/slab_table.hpp"

#include "core/base/debug_layout.hpp"

namespace VIGIL_DETAIL {

constinit slab_table slabs;

// Every program that has the table has this too, even if it links a static library.
[[gnu::used]] static const debug_layout_text* const layout_is_linked = &vigil_debug_layout;

namespace {

// Calls f(slab&) for each mapped slab until it returns true. Caller: holds a slab_hold.
template <class F>
bool any_mapped_slab(F f) noexcept {
  // Pairs with the release in publish_chunk() of the pool.
  const std::uint32_t count = slabs.chunk_count.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    // ordering: the count's acquire above covers the pointer as well.
    chunk* const c = slabs.chunks[i].load(std::memory_order_relaxed);
    for (slab& s : c->slabs) {
      // The load of ST3: after the hold, in the single total order.
      if (s.state.load() != slab_state::mapped) continue;
      if (f(s)) return true;
    }
  }
  return false;
}

bool is_in_use(const slab& s, unsigned place) noexcept {
  // Pairs with the releases in mark_in_use() and mark_idle().
  return s.in_use[place].load(std::memory_order_acquire) != 0;
}

}  // namespace

slab_hold::slab_hold() noexcept {
  slabs.holds.fetch_add(1);
}

slab_hold::~slab_hold() {
  slabs.holds.fetch_sub(1);
}

bool find_stack(const void* address, stack_place& out) noexcept {
  const slab_hold hold;
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  return any_mapped_slab([&](slab& s) {
    const auto base = reinterpret_cast<std::uintptr_t>(s.base);
    if (wanted < base || wanted - base >= s.bytes()) return false;
    const std::size_t stride = stride_of(s.size_class);
    const auto place = static_cast<unsigned>((wanted - base) / stride);
    out.where = s.at(place);
    out.in_use = is_in_use(s, place);
    out.in_guard = (wanted - base) % stride < stack_guard_size;
    return true;
  });
}

void for_each_slab(slab_visitor visit, void* argument) noexcept {
  any_mapped_slab([&](slab& s) {
    visit(s.base, s.bytes(), argument);
    return false;
  });
}

void for_each_stack_in_use(stack_visitor visit, void* argument) noexcept {
  any_mapped_slab([&](slab& s) {
    for (unsigned place = 0; place < s.count; ++place) {
      if (is_in_use(s, place)) visit(s.at(place), argument);
    }
    return false;
  });
}

}  // namespace VIGIL_DETAIL
