#include "core/guest/side_stack.hpp"

#include "core/machine/sanitizer.hpp"
#include "core/sched/worker/worker.hpp"

#include <cerrno>
#include <cfenv>
#include <system_error>

#include <sys/mman.h>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t largest_page = 65536;  // of all systems

}  // namespace

// A mapping with a guard below it.
side_stack::side_stack(std::size_t usable)
    : size_((usable + largest_page - 1) / largest_page * largest_page + largest_page) {
  mapping_ = ::mmap(nullptr,
                    size_,
                    PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK,
                    -1,
                    0);
  if (mapping_ == MAP_FAILED || ::mprotect(mapping_, largest_page, PROT_NONE) != 0) {
    const int error = errno;
    if (mapping_ != MAP_FAILED) ::munmap(mapping_, size_);
    throw std::system_error(error,
                            std::generic_category(),
                            "vigil::guest_runtime: no memory for the stack of its worker");
  }
#if VIGIL_VALGRIND
  auto* const bottom = static_cast<std::byte*>(mapping_);
  valgrind_id_ = VALGRIND_STACK_REGISTER(bottom + largest_page, bottom + size_);
#endif
}

side_stack::~side_stack() {
#if VIGIL_VALGRIND
  VALGRIND_STACK_DEREGISTER(valgrind_id_);
#endif
  ::munmap(mapping_, size_);
}

void side_stack::prepare(void (*entry)(void*), void* argument) noexcept {
  auto* const bottom = static_cast<std::byte*>(mapping_) + largest_page;
  auto* const top = static_cast<std::byte*>(mapping_) + size_;
  side_.prepare(stack{bottom, top}, top, entry, argument);
}

// A switch clears the flags of floating-point exceptions (SX3): these are the host's.
void side_stack::enter() noexcept {
  thread_side outside;
  std::fexcept_t flags;
  std::fegetexceptflag(&flags, FE_ALL_EXCEPT);
  worker* const before = exchange_worker(within_);
  is_inside_ = true;
  detail::enter(outside, side_);
  is_inside_ = false;
  within_ = exchange_worker(before);
  std::fesetexceptflag(&flags, FE_ALL_EXCEPT);
}

}  // namespace VIGIL_DETAIL
