// The program's memory, which the explorer puts back: world.cpp, pages.cpp, stacks.cpp.
#pragma once

#include <cstddef>
#include <exception>
#include <span>
#include <vector>

namespace model {

// --- world.cpp

// A moment of a run, with all of the program's memory as it was then.
struct world_moment {
  std::size_t arena_used = 0;
  std::size_t mappings_used = 0;
  std::size_t frees = 0;
  std::size_t pages_used = 0;
  std::terminate_handler terminate = nullptr;
  std::vector<std::byte*> pages;  // those that are in `bytes`
  std::vector<std::byte> bytes;   // the static memory, the arena, the pages
};

void world_begin();    // remembers the program's static memory
void world_restore();  // puts it back, and frees everything that the last run allocated
void world_end();
// `threads`: how many stacks of the engine are in use.
void world_remember(world_moment& m, unsigned threads);
void world_return_to(const world_moment& m);
bool freed_memory(const void* address) noexcept;
// The engine gives each thread its own copy at the same place: the program's
// thread-locals, the C++ library's exceptions, errno.
bool is_thread_local(const void* address) noexcept;
std::size_t thread_locals_size() noexcept;
std::byte* thread_locals() noexcept;
const void* thread_locals_image() noexcept;
void* allocate(std::size_t size);          // for the program, until the run ends
bool is_in_arena(const void* p) noexcept;  // allocate() has it

// --- pages.cpp: large regions of which a program uses few pages

inline constexpr std::size_t page_size = 4096;

std::byte* reserve_pages(std::size_t size);
// For the handler of crashes: returns true if the address lies in a page that was not
// used before, and now can be.
bool begins_page(const void* address) noexcept;
// All pages that were ever used, the latest last.
std::span<std::byte* const> used_pages() noexcept;

// --- stacks.cpp: the stacks of the program's fibers

void stacks_begin();
bool released_stack(const void* address) noexcept;
bool is_unused_stack(const void* address) noexcept;

}  // namespace model
