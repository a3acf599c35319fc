// The world around the program: its memory, futex, clock, threads and mutexes.
//
// Each run starts from the same memory. What the program keeps in static
// memory is remembered before the first run and put back before each; what it
// allocates comes from an arena that begins anew; what it freed stays marked
// until the run ends, so that a later use is found.
#include "base/atomic.hpp"
#include "base/futex.hpp"
#include "explorer/engine.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <new>
#include <string>
#include <utility>

#include <cxxabi.h>
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

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
  std::byte* mappings = nullptr;  // for what the program maps
  std::size_t mappings_used = 0;
  char* statics = nullptr;  // the program's static memory before the first run
  std::terminate_handler terminate = nullptr;
  // Of the main program's thread-locals: one block for each thread.
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
    w->mappings = reserve(mappings_size);
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

void* allocate(std::size_t size) {
  world& w = *the_world;
  size = (size + granule - 1) / granule * granule + granule;  // a gap behind each
  if (w.arena_used + size > arena_size) {
    engine::get().fail("a run allocates more than the explorer's arena holds (64 MiB)");
  }
  std::byte* const at = w.arena + w.arena_used;
  w.arena_used += size;
  // Its size stands in the gap before it.
  std::memcpy(at, &size, sizeof size);
  return at + granule;
}

void free_memory(void* p) {
  world& w = *the_world;
  const auto* const start = static_cast<std::byte*>(p);
  std::size_t size = 0;
  std::memcpy(&size, start - granule, sizeof size);
  const auto first = static_cast<std::size_t>(start - w.arena) / granule;
  // What the explorer itself took while the program ran, the lines of a trace, it
  // gives back between two runs.
  if (!engine::get().running()) return;
  if (w.freed[first] == w.run) engine::get().fail("memory is freed twice");
  engine::get().ends(start, size - granule);
  for (std::size_t i = 0; i < size / granule - 1; ++i)
    w.freed[first + i] = w.run;
}

bool is_ours(const void* p) noexcept {
  return the_world != nullptr && p >= the_world->arena && p < the_world->arena + arena_size;
}

}  // namespace

void world_begin() {
  world& w = get_world();
  const auto size = static_cast<std::size_t>(_end - __data_start);
  w.statics = static_cast<char*>(std::malloc(size));
  if (w.statics == nullptr) throw std::bad_alloc();
  std::memcpy(w.statics, __data_start, size);
  w.terminate = std::get_terminate();
}

void world_restore() {
  world& w = *the_world;
  std::memcpy(__data_start, w.statics, static_cast<std::size_t>(_end - __data_start));
  std::set_terminate(w.terminate);  // what the C++ library remembers of the program
  w.arena_used = granule;           // so that the first is not at the arena's start
  ++w.run;
  if (w.mappings_used != 0) {
    ::madvise(w.mappings, w.mappings_used, MADV_DONTNEED);
    w.mappings_used = 0;
  }
}

void world_end() {
  std::memcpy(__data_start, the_world->statics, static_cast<std::size_t>(_end - __data_start));
  std::free(the_world->statics);
  the_world->statics = nullptr;
}

bool freed_memory(const void* address) noexcept {
  if (!is_ours(address)) return released_stack(address);
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

std::map<const void*, std::string> source_lines(const std::set<const void*>& codes) {
  std::map<const void*, std::string> lines;
  const int file = ::memfd_create("addresses", MFD_CLOEXEC);
  if (file < 0) return lines;
  std::vector<const void*> asked;
  for (const void* const code : codes) {
    lines[code] = "?";
    Dl_info info{};
    if (::dladdr(code, &info) == 0) continue;
    asked.push_back(code);
    ::dprintf(file,
              "%#lx\n",
              static_cast<unsigned long>(static_cast<const char*>(code) -
                                         static_cast<const char*>(info.dli_fbase) - 1));
  }
  // Of each its address first, on a line of its own, then the places, innermost
  // first.
  const std::string self = "/proc/" + std::to_string(::getpid());
  const std::string command = "addr2line -a -i -e " + self + "/exe < " + self + "/fd/" +
                              std::to_string(file) + " 2>/dev/null";
  if (std::FILE* const f = ::popen(command.c_str(), "r")) {
    char text[512];
    std::size_t at = 0;
    bool named = true;
    while (std::fgets(text, sizeof text, f) != nullptr) {
      const std::string whole(text, std::strcspn(text, "\n"));
      if (whole.compare(0, 2, "0x") == 0) {
        ++at;
        named = false;
      } else if (!named && at <= asked.size() && whole.find("/include/c++/") == std::string::npos) {
        const std::string line = whole.substr(whole.find_last_of('/') + 1);
        lines[asked[at - 1]] = line.substr(0, line.find(' '));
        named = true;
      }
    }
    ::pclose(f);
  }
  ::close(file);
  return lines;
}

// --- for programs

void require(bool holds, const char* what) {
  if (holds || engine_of_program() == nullptr) return;
  engine& e = *the_engine;
  const inside_engine guard(e);
  e.trace(__builtin_return_address(0), "requirement does not hold: %s", what);
  e.fail(std::string("requirement does not hold: ") + what);
}

window::window() {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.open_window();
}

namespace {

bool others_rest(void* me) {
  engine& e = engine::get();
  for (unsigned t = 0; t < max_threads; ++t) {
    const thread& other = e.of(t);
    const bool ends_a_window =
        other.state == thread_state::waiting && other.condition == others_rest;
    if (&other != me && !ends_a_window && e.can_run(t)) return false;
  }
  return true;
}

void let_others_rest(engine& e) {
  thread& self = e.of(e.current());
  self.condition = others_rest;
  self.condition_argument = &self;
  self.state = thread_state::waiting;
  self.next = {};
  e.block();
}

}  // namespace

// What the others have begun inside the window they also end there: its thread
// goes on when none of them can.
window::~window() {
  engine& e = engine::get();
  const inside_engine guard(e);
  let_others_rest(e);
  e.close_window();
}

void wait_until(bool (*condition)(void*), void* argument) {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.reach({});
  thread& self = e.of(e.current());
  self.condition = condition;
  self.condition_argument = argument;
  self.state = thread_state::waiting;
  e.block();
  // The look that found it, as the thread's own: it acquires what it acquires.
  e.observing = true;
  e.inside = false;
  condition(argument);
  e.inside = true;
  e.observing = false;
}

void enough() {
  engine& e = engine::get();
  const inside_engine guard(e);
  let_others_rest(e);
  e.end_run();
}

std::int64_t now() {
  return engine::get().clock;
}

void advance(std::int64_t nanoseconds) {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.reach({clock_location, true});
  e.clock += nanoseconds;
}

void note_outcome(const std::string& text) {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.outcomes.insert(std::string(text.c_str()));
}

std::set<std::string> take_outcomes() {
  return std::exchange(engine::get().outcomes, {});
}

namespace {

void pause_here(const void* from) {
  engine* const e = engine_of_program();
  if (e == nullptr) return;
  const inside_engine guard(*e);
  thread& self = e->of(e->current());
  e->trace(from, "pauses");
  self.next = {};
  self.state = thread_state::paused;
  self.paused_at = e->writes();
  // Who has just seen an old value need not wait for another.
  for (const std::int64_t l : self.looked_at) {
    if (l >= 0 && e->mem().is_behind(e->current(), static_cast<unsigned>(l))) self.paused_at = 0;
  }
  e->block();
  // What it spins on is seen at last, and no more than that.
  for (const std::int64_t l : self.looked_at) {
    if (l >= 0) e->mem().see_newest(e->current(), static_cast<unsigned>(l));
  }
  self.looked_at.fill(-1);
}

std::int64_t read_clock() {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.reach({clock_location, false});
  e.offer_timeouts(nullptr);
  return e.clock;
}

}  // namespace
}  // namespace model

// --- in place of base/futex.cpp

namespace vigil::internal {

void cpu_pause(unsigned) noexcept {
  model::pause_here(__builtin_return_address(0));
}

void futex_wait(futex_word& word, std::uint32_t expected, nanos deadline) noexcept {
  using namespace model;
  engine& e = engine::get();
  const inside_engine guard(e);
  const void* const from = __builtin_return_address(0);
  memory& m = e.mem();
  e.reach({m.find(&word, sizeof word, e.current()), true});
  const unsigned l = m.find(&word, sizeof word, e.current());
  // The kernel reads the word itself, as it is.
  const location& at = m.at(l);
  if (at.history[at.length - 1].value != expected) {
    e.trace(from, "futex  word %u: has changed, no wait", l);
    return;
  }
  if (deadline <= e.clock) {
    e.trace(from, "futex  word %u: the deadline has come", l);
    thread& self = e.of(e.current());
    if (self.in_vain_at == e.switches()) {
      // Round and round: somebody else must move first.
      self.next = {};
      self.state = thread_state::paused;
      self.paused_at = e.writes();
      e.block();
    }
    self.in_vain_at = e.switches();
    return;
  }
  e.trace(from, "futex  word %u: sleeps", l);
  thread& self = e.of(e.current());
  self.state = thread_state::sleeping;
  self.futex = &word;
  self.until = deadline;
  self.paused_at = e.next_arrival();
  self.next = {l, true};
  e.block();
  if (self.futex != nullptr) {
    self.futex = nullptr;
    if (e.clock < deadline) e.clock = deadline;
    e.record({l, true});
    e.record({clock_location, true});
    e.trace(from, "futex  word %u: timed out", l);
  } else {
    e.trace(from, "futex  word %u: woken", l);
  }
}

void futex_wake_one(futex_word& word) noexcept {
  using namespace model;
  engine& e = engine::get();
  const inside_engine guard(e);
  memory& m = e.mem();
  const unsigned l = m.find(&word, sizeof word, e.current());
  e.reach({l, true});
  e.offer_timeouts(&word);
  thread* first = nullptr;
  unsigned who = 0;
  for (unsigned t = 0; t < max_threads; ++t) {
    thread& it = e.of(t);
    if (it.state != thread_state::sleeping || it.futex != &word) continue;
    if (first == nullptr || it.paused_at < first->paused_at) {
      first = &it;
      who = t;
    }
  }
  e.trace(__builtin_return_address(0),
          "futex  word %u: wakes %s",
          l,
          first != nullptr ? std::to_string(who).c_str() : "nobody");
  if (first == nullptr) return;
  first->state = thread_state::ready;
  first->futex = nullptr;
  e.comes_after(who, e.current());
}

unsigned long set_thread_timer_slack(unsigned long) noexcept {
  return 0;
}

}  // namespace vigil::internal

// --- in place of the system's

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
  if (model::is_ours(p)) {
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

namespace {

template <class F>
F* real(const char* name) {
  return reinterpret_cast<F*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int sched_yield() noexcept {
  model::pause_here(__builtin_return_address(0));
  return 0;
}

int clock_gettime(clockid_t which, timespec* t) noexcept {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = real<int(clockid_t, timespec*)>("clock_gettime");
    return original(which, t);
  }
  const std::int64_t now =
      which == CLOCK_MONOTONIC ? model::read_clock() : model::engine::get().clock;
  t->tv_sec = now / 1'000'000'000;
  t->tv_nsec = now % 1'000'000'000;
  return 0;
}

void* mmap(
    void* address, std::size_t size, int protection, int flags, int file, off_t at) noexcept {
  if (model::engine_of_program() == nullptr || (flags & MAP_ANONYMOUS) == 0) {
    static auto* const original = real<void*(void*, std::size_t, int, int, int, off_t)>("mmap");
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
  const model::world* const w = model::the_world;
  if (w != nullptr && address >= w->mappings && address < w->mappings + model::mappings_size) {
    return 0;
  }
  static auto* const original = real<int(void*, std::size_t)>("munmap");
  return original(address, size);
}

int pthread_create(pthread_t* made,
                   const pthread_attr_t* attributes,
                   void* (*start)(void*),
                   void* argument) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original =
        real<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>("pthread_create");
    return original(made, attributes, start, argument);
  }
  const model::inside_engine guard(*e);

  struct call {
    void* (*start)(void*);
    void* argument;
  };

  auto* const what = static_cast<call*>(model::allocate(sizeof(call)));
  *what = {start, argument};
  const unsigned t = e->create_thread(
      [](void* c) { static_cast<call*>(c)->start(static_cast<call*>(c)->argument); }, what);
  *made = t + 1;
  return 0;
}

int pthread_join(pthread_t which, void** result) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = real<int(pthread_t, void**)>("pthread_join");
    return original(which, result);
  }
  const model::inside_engine guard(*e);
  model::thread& self = e->of(e->current());
  e->reach({});
  self.joined = static_cast<unsigned>(which - 1);
  self.state = model::thread_state::joining;
  e->block();
  e->mem().hand_over(self.joined, e->current());
  e->comes_after(e->current(), self.joined);
  return 0;
}

int pthread_atfork(void (*)(), void (*)(), void (*)()) {
  return 0;
}

// fatal(), std::terminate(): a fault, if the program does it.
void abort() noexcept {
  if (model::engine* const e = model::engine_of_program()) {
    e->fail("the program aborts: see its message above");
  }
  std::_Exit(134);
}

int pthread_setname_np(pthread_t, const char*) {
  return 0;
}

// A mutex of the operating system: taken or not, first come, first served by
// whoever is chosen. The state lies in the mutex's own first word.
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = real<int(pthread_mutex_t*)>("pthread_mutex_lock");
    return original(mutex);
  }
  const model::inside_engine guard(*e);
  model::memory& m = e->mem();
  for (;;) {
    const unsigned l = m.find(mutex, 4, e->current());
    e->reach({l, true});
    const auto newest = static_cast<std::uint16_t>(m.at(l).length - 1);
    if (m.at(l).history[newest].value == 0) {
      m.read(l, e->current(), newest, model::order::acquire);
      m.write(l, e->current(), 1, model::order::relaxed, true);
      e->wrote();
      return 0;
    }
    model::thread& self = e->of(e->current());
    self.state = model::thread_state::locked;
    self.paused_at = e->writes();
    e->block();
  }
}

int pthread_mutex_trylock(pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = real<int(pthread_mutex_t*)>("pthread_mutex_trylock");
    return original(mutex);
  }
  e->fail("pthread_mutex_trylock is not modelled");
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = real<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
    return original(condition, mutex);
  }
  e->fail("pthread_cond_wait is not modelled");
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = real<int(pthread_mutex_t*)>("pthread_mutex_unlock");
    return original(mutex);
  }
  const model::inside_engine guard(*e);
  model::memory& m = e->mem();
  const unsigned l = m.find(mutex, 4, e->current());
  e->reach({l, true});
  m.write(l, e->current(), 0, model::order::release, false);
  e->wrote();
  return 0;
}

}  // extern "C"
