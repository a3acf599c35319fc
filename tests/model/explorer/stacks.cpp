// Replaces the stacks of machine: plain memory, none used twice in a run. Guards, and the
// report of an overflow, are not covered here.
#include "core/machine/overflow.hpp"
#include "core/machine/stack.hpp"
#include "explorer/engine.hpp"

#include <vigil/detail/config.hpp>

#include <new>

namespace model {
namespace {

constexpr std::size_t stacks = 256;
constexpr std::size_t room = 256 * 1024;

// Mapped once, and never part of the program's static memory.
std::byte* region = nullptr;
// A part of it: begins anew with each run.
std::size_t taken = 0;
bool released[stacks] = {};

}  // namespace

void stacks_begin() {
  if (region != nullptr) return;
  region = reserve_pages(stacks * room);
}

bool released_stack(const void* address) noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  if (region == nullptr || at < region || at >= region + stacks * room) return false;
  return released[static_cast<std::size_t>(at - region) / room];
}

// A stack that nobody has taken yet, in this run.
bool is_unused_stack(const void* address) noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  return at >= region + taken * room && at < region + stacks * room;
}

}  // namespace model

namespace VIGIL_DETAIL {

stack allocate_stack(std::size_t usable) {
  static_cast<void>(usable);  // one size is enough for a model test
  if (model::taken == model::stacks) throw std::bad_alloc();
  std::byte* const bottom = model::region + model::room * model::taken++;
  return {bottom, bottom + model::room, 0};
}

void release_stack(stack s) noexcept {
  if (model::engine* const e = model::engine_of_program()) e->ends(s.bottom, model::room);
  model::released[static_cast<std::size_t>(s.bottom - model::region) / model::room] = true;
}

void trim_stacks() noexcept {}

warm_stacks::warm_stacks(std::size_t) noexcept : most_(0) {}

warm_stacks::~warm_stacks() = default;

bool decay_stacks() noexcept {
  return true;
}

bool decay_wants_attendant() noexcept {
  return false;
}

decay_attendant::decay_attendant() noexcept : when_(never) {}

decay_attendant::~decay_attendant() = default;

stack stack_cache::take(std::size_t usable) {
  return allocate_stack(usable);
}

void stack_cache::give(stack s) noexcept {
  release_stack(s);
}

void stack_cache::flush() noexcept {}

stack_stats read_stack_stats() noexcept {
  return {};
}

bool find_stack(const void*, stack_place&) noexcept {
  return false;
}

slab_hold::slab_hold() noexcept = default;
slab_hold::~slab_hold() = default;

void for_each_stack_in_use(stack_visitor, void*) noexcept {}

alternate_signal_stack::alternate_signal_stack() = default;
alternate_signal_stack::~alternate_signal_stack() = default;

void install_overflow_report(describe_stack) noexcept {}

void remove_overflow_report() noexcept {}

}  // namespace VIGIL_DETAIL
