// The program's memory, which is the same at the start of each run.
//
// Static memory is remembered before the first run and put back before each; allocated or
// mapped memory comes from an arena that begins anew; freed memory stays marked until the
// run ends, so that a later use is found. A checkpoint has a copy of all of it.
#include "explorer/engine.hpp"
#include "explorer/original.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include <cxxabi.h>
#include <link.h>
#include <sys/mman.h>

extern "C" {
extern char __data_start[];
extern char _end[];
}

namespace model {
namespace {

constexpr std::size_t arena_size = 64u << 20;
constexpr std::size_t granule = 16;
constexpr std::size_t mappings_size = std::size_t{1} << 40;

struct world {
  std::byte* arena = nullptr;
  std::size_t arena_used = 0;
  std::uint32_t* freed = nullptr;  // of each granule: the run in which it was freed
  std::uint32_t run = 0;
  // The blocks that were freed in this run: the first granule, and how many.
  std::pair<std::size_t, std::size_t>* frees = nullptr;
  std::size_t free_count = 0;
  std::byte* mappings = nullptr;  // for the program's own mappings
  std::size_t mappings_used = 0;
  char* statics = nullptr;  // the program's static memory before the first run
  std::terminate_handler terminate = nullptr;
  // The main program's thread-locals: one block for each thread.
  std::size_t locals_size = 0;
  const void* exceptions = nullptr;  // the C++ library's
  std::byte* locals = nullptr;
  const void* locals_image = nullptr;
};

// Its address stays, so that putting the static memory back does no harm.
world* the_world = nullptr;

std::byte* reserve(std::size_t size) {
  void* const at = ::mmap(
      nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  return static_cast<std::byte*>(at);
}

world& get_world() {
  if (the_world == nullptr) {
    world* const w = new world;
    w->arena = reserve(arena_size);
    w->freed = reinterpret_cast<std::uint32_t*>(reserve(arena_size / granule * 4));
    w->frees = reinterpret_cast<std::pair<std::size_t, std::size_t>*>(
        reserve(arena_size / granule / 2 * sizeof *w->frees));
    w->mappings = reserve_pages(mappings_size);
    // The first object is the main program.
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, std::size_t, void* argument) {
          auto& found = *static_cast<world*>(argument);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const auto& header = info->dlpi_phdr[i];
            if (header.p_type != PT_TLS) continue;
            found.locals_size = header.p_memsz;
            found.locals = static_cast<std::byte*>(info->dlpi_tls_data);
            // Zero-initialised beyond the image.
            auto* const image = static_cast<std::byte*>(std::calloc(1, header.p_memsz));
            std::memcpy(image,
                        reinterpret_cast<const void*>(info->dlpi_addr + header.p_vaddr),
                        header.p_filesz);
            found.locals_image = image;
          }
          return 1;
        },
        w);
    w->exceptions = abi::__cxa_get_globals();
    the_world = w;
    stacks_begin();
  }
  return *the_world;
}

void free_memory(void* p) {
  world& w = *the_world;
  const auto* const start = static_cast<std::byte*>(p);
  std::size_t size = 0;
  std::memcpy(&size, start - granule, sizeof size);
  const auto first = static_cast<std::size_t>(start - w.arena) / granule;
  // Memory that the explorer itself took while the program ran, for the lines of a trace,
  // is returned between two runs.
  if (!engine::get().running()) return;
  if (w.freed[first] == w.run) engine::get().fail("memory is freed twice");
  engine::get().ends(start, size - granule);
  const std::size_t granules = size / granule - 1;
  std::fill_n(w.freed + first, granules, w.run);
  w.frees[w.free_count++] = {first, granules};
}

bool is_mapping(const world& w, const void* p) noexcept {
  return p >= w.mappings && p < w.mappings + mappings_size;
}

void clear_pages(const void* start, std::size_t size) noexcept {
  const auto* const first = static_cast<const std::byte*>(start);
  for (std::byte* const page : used_pages()) {
    if (page >= first && page < first + size) std::memset(page, 0, page_size);
  }
}

std::size_t statics_size() noexcept {
  return static_cast<std::size_t>(_end - __data_start);
}

bool is_own_mapping(const void* p) noexcept {
  return the_world != nullptr && is_mapping(*the_world, p);
}

}  // namespace

bool is_in_arena(const void* p) noexcept {
  return the_world != nullptr && p >= the_world->arena && p < the_world->arena + arena_size;
}

void* allocate(std::size_t size) {
  world& w = *the_world;
  size = (size + granule - 1) / granule * granule + granule;  // a gap behind each
  if (w.arena_used + size > arena_size) {
    engine::get().fail("a run allocates more than the explorer's arena holds (64 MiB)");
  }
  std::byte* const at = w.arena + w.arena_used;
  w.arena_used += size;
  // Its size is stored in the gap before it.
  std::memcpy(at, &size, sizeof size);
  return at + granule;
}

void world_begin() {
  world& w = get_world();
  w.statics = static_cast<char*>(std::malloc(statics_size()));
  if (w.statics == nullptr) throw std::bad_alloc();
  std::memcpy(w.statics, __data_start, statics_size());
  w.terminate = std::get_terminate();
}

void world_restore() {
  world& w = *the_world;
  std::memcpy(__data_start, w.statics, statics_size());
  std::set_terminate(w.terminate);  // the C++ library's memory of the program
  w.arena_used = granule;           // so that the first block is not at the arena's start
  ++w.run;
  w.free_count = 0;
  w.mappings_used = 0;
  clear_pages(w.mappings, mappings_size);
}

void world_end() {
  std::memcpy(__data_start, the_world->statics, statics_size());
  std::free(the_world->statics);
  the_world->statics = nullptr;
}

void world_remember(world_moment& m, unsigned threads) {
  const world& w = *the_world;
  m.arena_used = w.arena_used;
  m.mappings_used = w.mappings_used;
  m.frees = w.free_count;
  m.terminate = std::get_terminate();
  const auto pages = used_pages();
  m.pages_used = pages.size();
  m.pages.clear();
  for (std::byte* const page : pages) {
    const bool is_beyond = page >= w.mappings + w.mappings_used && is_mapping(w, page);
    if (!is_beyond && !is_unused_stack(page) && !engine::get().is_unused_stack(page, threads))
      m.pages.push_back(page);
  }
  m.bytes.resize(statics_size() + w.arena_used + m.pages.size() * page_size);
  std::byte* to = m.bytes.data();
  std::memcpy(to, __data_start, statics_size());
  to += statics_size();
  std::memcpy(to, w.arena, w.arena_used);
  to += w.arena_used;
  for (const std::byte* const page : m.pages) {
    std::memcpy(to, page, page_size);
    to += page_size;
  }
}

// Caller: not on a stack that is put back.
void world_return_to(const world_moment& m) {
  world& w = *the_world;
  const std::byte* from = m.bytes.data();
  std::memcpy(__data_start, from, statics_size());
  from += statics_size();
  std::memcpy(w.arena, from, m.arena_used);
  from += m.arena_used;
  for (std::byte* const page : m.pages) {
    std::memcpy(page, from, page_size);
    from += page_size;
  }
  // Mappings begin as zeroes: pages used for the first time since then, and mappings made
  // since then.
  const auto pages = used_pages();
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const bool is_later = i >= m.pages_used || pages[i] >= w.mappings + m.mappings_used;
    if (is_later && is_mapping(w, pages[i])) std::memset(pages[i], 0, page_size);
  }
  for (; w.free_count > m.frees; --w.free_count) {
    const auto [first, granules] = w.frees[w.free_count - 1];
    std::fill_n(w.freed + first, granules, 0u);
  }
  std::set_terminate(m.terminate);
  w.arena_used = m.arena_used;
  w.mappings_used = m.mappings_used;
}

bool freed_memory(const void* address) noexcept {
  if (!is_in_arena(address)) return released_stack(address);
  const auto at =
      static_cast<std::size_t>(static_cast<const std::byte*>(address) - the_world->arena);
  return the_world->freed[at / granule] == the_world->run;
}

std::size_t thread_locals_size() noexcept {
  return get_world().locals_size;
}

std::byte* thread_locals() noexcept {
  return the_world->locals;
}

const void* thread_locals_image() noexcept {
  return the_world->locals_image;
}

bool is_thread_local(const void* address) noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  const auto lies_in = [at](const void* start, std::size_t size) {
    const auto* const first = static_cast<const std::byte*>(start);
    return at >= first && at < first + size;
  };
  return lies_in(the_world->locals, the_world->locals_size) || lies_in(the_world->exceptions, 16) ||
         lies_in(&errno, sizeof errno);
}

}  // namespace model

// --- in place of the system's functions

void* operator new(std::size_t size) {
  if (model::engine_of_program() != nullptr) return model::allocate(size);
  void* const p = std::malloc(size == 0 ? 1 : size);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void* operator new(std::size_t size, std::align_val_t align) {
  const auto to = static_cast<std::size_t>(align);
  if (model::engine_of_program() != nullptr) {
    const auto p = reinterpret_cast<std::uintptr_t>(model::allocate(size + to));
    // free_memory() looks at the gap before: keep it there too.
    const auto aligned = (p + to - 1) / to * to;
    std::memmove(reinterpret_cast<void*>(aligned - 16), reinterpret_cast<void*>(p - 16), 16);
    if (aligned != p) {
      const std::size_t shorter = (size + 15) / 16 * 16 + 16;
      std::memcpy(reinterpret_cast<void*>(aligned - 16), &shorter, sizeof shorter);
    }
    return reinterpret_cast<void*>(aligned);
  }
  void* const p = std::aligned_alloc(to, (size + to - 1) / to * to);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void operator delete(void* p) noexcept {
  if (model::is_in_arena(p)) {
    model::free_memory(p);
  } else {
    std::free(p);
  }
}

void operator delete(void* p, std::size_t) noexcept {
  operator delete(p);
}

void operator delete(void* p, std::align_val_t) noexcept {
  operator delete(p);
}

void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  operator delete(p);
}

extern "C" {

void* mmap(
    void* address, std::size_t size, int protection, int flags, int file, off_t at) noexcept {
  if (model::engine_of_program() == nullptr || (flags & MAP_ANONYMOUS) == 0) {
    static auto* const original =
        model::original_of<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
    return original(address, size, protection, flags, file, at);
  }
  model::world& w = *model::the_world;
  size = (size + 4095) / 4096 * 4096;
  if (w.mappings_used + size > model::mappings_size) return MAP_FAILED;
  void* const p = w.mappings + w.mappings_used;
  w.mappings_used += size;
  return p;
}

int munmap(void* address, std::size_t size) noexcept {
  if (model::is_own_mapping(address)) return 0;
  static auto* const original = model::original_of<int(void*, std::size_t)>("munmap");
  return original(address, size);
}

// The pages of the program's mappings are the explorer's to open (pages.cpp).
int mprotect(void* address, std::size_t size, int protection) noexcept {
  if (model::is_own_mapping(address)) return 0;
  static auto* const original = model::original_of<int(void*, std::size_t, int)>("mprotect");
  return original(address, size, protection);
}

int madvise(void* address, std::size_t size, int advice) noexcept {
  if (model::is_own_mapping(address)) {
    model::engine* const e = model::engine_of_program();
    if (e == nullptr || advice != MADV_DONTNEED) return 0;
    const model::inside_engine guard(*e);
    model::clear_pages(address, size);
    return 0;
  }
  static auto* const original = model::original_of<int(void*, std::size_t, int)>("madvise");
  return original(address, size, advice);
}

}  // extern "C"
