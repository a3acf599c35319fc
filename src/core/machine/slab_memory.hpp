// The system calls behind slabs. Nothing here knows the pool or its lock. Each function
// says whether it succeeded and leaves errno as the call left it.
#pragma once

#include <vigil/detail/config.hpp>

#include <cstddef>

#include <sys/uio.h>

namespace VIGIL_DETAIL {

// Maps address space without huge pages; memory comes with the first touch. Null if it
// cannot be had.
std::byte* map_memory(std::size_t size) noexcept;

// Makes stack_guard_size bytes fault at `first` and, where that costs less than doing it
// later, at a few of the `count` - 1 places that follow, `stride` apart. Returns how many
// guards it made, 0 if not even the first. It uses MADV_GUARD_INSTALL, which splits no
// mapping (Linux 6.13 and later, not for locked memory), if the process's first guard
// passes a trial; else mprotect, which makes two mappings out of one.
// VIGIL_STACK_GUARD=mprotect in the environment of the process forces the latter.
std::size_t install_guards(std::byte* first, std::size_t stride, std::size_t count) noexcept;

// Gives the memory back and keeps the address space. Guards inside survive.
void give_back_memory(const ::iovec* ranges, std::size_t count) noexcept;

}  // namespace VIGIL_DETAIL
