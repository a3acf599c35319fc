#include "inspect/measured_stacks.hpp"

#include "core/base/atomic.hpp"
#include "core/base/foreign_memory.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/fiber/stack_sampler.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/stack_use_table.hpp"

#include <vigil/inspect.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

// A larger stack takes too long to look at.
constexpr std::size_t most_measured = std::size_t{16} << 20;
static_assert(most_measured == inspect::stack_use::first_bound
                                   << (inspect::stack_use::buckets - 1));
constexpr std::size_t least_page = 4096;

std::size_t page_size() noexcept {
  static const auto size = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  return size;
}

// Looks at a stack of so many pages at most, with an array that lies on that very stack.
template <std::size_t most_pages>
[[gnu::noinline]] std::size_t look(const stack& s) noexcept {
  unsigned char has_memory[most_pages];
  if (::mincore(s.bottom, s.size(), has_memory) != 0) return 0;
  auto* const end = has_memory + s.size() / page_size();
  auto* const first = std::find_if(has_memory, end, [](unsigned char c) { return (c & 1) != 0; });
  return static_cast<std::size_t>(end - first) * page_size();
}

// From the lowest page of the stack that has memory to its top; 0 if the kernel does not
// say. One call, of a few microseconds at most. A page that is swapped out counts as one
// without memory.
std::size_t bytes_touched(const stack& s) noexcept {
  constexpr std::size_t few = 256;
  constexpr std::size_t most = most_measured / least_page;
  return s.size() <= few * least_page ? look<few>(s) : look<most>(s);
}

// Takes the memory below the control block away from a fiber's stack. False if that
// cannot be done, or not be seen: for locked memory, or in a sandbox. It runs on the
// stack of the fiber that starts this one, which may be small.
bool make_fresh(const fiber_core& f) noexcept {
  const stack& s = f.own_stack.whole;
  const auto at = reinterpret_cast<std::uintptr_t>(&f);
  const auto bottom = reinterpret_cast<std::uintptr_t>(s.bottom);
  const std::uintptr_t end = at - at % page_size();
  if (bottom % page_size() != 0 || bottom >= end) return false;
  if (::madvise(s.bottom, end - bottom, MADV_DONTNEED) != 0) return false;
  unsigned char has_memory = 1;
  void* const highest = reinterpret_cast<void*>(end - page_size());
  return ::mincore(highest, page_size(), &has_memory) == 0 && (has_memory & 1) == 0;
}

class measured_stacks final : public stack_sampler {
 public:
  constexpr measured_stacks() noexcept = default;

  bool begin(const fiber_core& f) noexcept override {
    return f.own_stack.whole.size() <= most_measured &&
           table.begin(f.identity.file, f.identity.line, f.sched->clock.now()) && make_fresh(f);
  }

  void end(const fiber_core& f) noexcept override {
    const stack& s = f.own_stack.whole;
    const std::size_t bytes = bytes_touched(s);
    if (bytes == 0) return;
    table.end(copied_text(f.identity.file).get(), f.identity.line, bytes, s.size());
  }

  stack_use_table table;
};

constinit measured_stacks all_measured;

void add_alive(const stack& where, void* argument) noexcept {
  fiber_view s;
  if (!is_measured(where) || !take_view(where, s) || s.state == fiber_state::ended) return;
  const std::size_t bytes = bytes_touched(where);
  // The fiber may have ended meanwhile, and another one have its stack.
  if (bytes == 0 || !has_id(where, s.id)) return;
  static_cast<stack_use_table::reading*>(argument)->add_alive(
      copied_text(s.file).get(), s.line, bytes, where.size());
}

}  // namespace

void measure_stacks(bool wanted) noexcept {
  installed_sampler.store(wanted ? &all_measured : nullptr);
}

}  // namespace VIGIL_DETAIL

namespace VIGIL_PUBLIC::inspect {

std::uint64_t stack_use::total() const noexcept {
  std::uint64_t n = 0;
  for (const std::uint64_t c : count)
    n += c;
  return n;
}

std::vector<stack_use> stack_use_by_place() {
  detail::stack_use_table::reading now(detail::all_measured.table);
  {
    const detail::handler_scope inside;
    const detail::slab_hold hold;
    detail::for_each_stack_in_use(&detail::add_alive, &now);
  }
  return std::move(now).take();
}

}  // namespace VIGIL_PUBLIC::inspect
