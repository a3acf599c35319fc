// The system around the program: futex, clock, threads and mutexes.
#include "core/base/futex.hpp"
#include "explorer/engine.hpp"
#include "explorer/original.hpp"

#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <string>

#include <pthread.h>
#include <sched.h>

namespace model {
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
  // A thread that has just seen an old value need not wait for another.
  for (const std::int64_t l : self.looked_at) {
    if (l >= 0 && e->mem().is_behind(e->current(), static_cast<unsigned>(l))) self.paused_at = 0;
  }
  e->block();
  // It sees the newest value of what it spins on, and no more than that.
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

namespace VIGIL_DETAIL {

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
  // The kernel reads the current word.
  if (m.value(l, m.newest(l)) != expected) {
    e.trace(from, "futex  word %u: has changed, no wait", l);
    return;
  }
  if (deadline <= e.clock) {
    e.trace(from, "futex  word %u: the deadline has come", l);
    thread& self = e.of(e.current());
    if (self.in_vain_at == e.switches()) {
      // Round and round: another thread must move first.
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

}  // namespace VIGIL_DETAIL

// --- in place of the system's functions

extern "C" {

int sched_yield() noexcept {
  model::pause_here(__builtin_return_address(0));
  return 0;
}

int clock_gettime(clockid_t which, timespec* t) noexcept {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = model::original_of<int(clockid_t, timespec*)>("clock_gettime");
    return original(which, t);
  }
  const std::int64_t now =
      which == CLOCK_MONOTONIC ? model::read_clock() : model::engine::get().clock;
  t->tv_sec = now / 1'000'000'000;
  t->tv_nsec = now % 1'000'000'000;
  return 0;
}

int pthread_create(pthread_t* made,
                   const pthread_attr_t* attributes,
                   void* (*start)(void*),
                   void* argument) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original =
        model::original_of<int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*)>(
            "pthread_create");
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
    static auto* const original = model::original_of<int(pthread_t, void**)>("pthread_join");
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

// fatal(), std::terminate(): a fault, if the program calls it.
void abort() noexcept {
  if (model::engine* const e = model::engine_of_program()) {
    e->fail("the program aborts: see its message above");
  }
  std::_Exit(134);
}

int pthread_setname_np(pthread_t, const char*) {
  return 0;
}

// A mutex of the operating system: taken or not; the thread that is chosen first gets it.
// The state lies in the mutex's own first word.
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = model::original_of<int(pthread_mutex_t*)>("pthread_mutex_lock");
    return original(mutex);
  }
  const model::inside_engine guard(*e);
  model::memory& m = e->mem();
  for (;;) {
    const unsigned l = m.find(mutex, 4, e->current());
    e->reach({l, true});
    const std::uint16_t newest = m.newest(l);
    if (m.value(l, newest) == 0) {
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
    static auto* const original =
        model::original_of<int(pthread_mutex_t*)>("pthread_mutex_trylock");
    return original(mutex);
  }
  e->fail("pthread_mutex_trylock is not modelled");
}

int pthread_cond_wait(pthread_cond_t* condition, pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original =
        model::original_of<int(pthread_cond_t*, pthread_mutex_t*)>("pthread_cond_wait");
    return original(condition, mutex);
  }
  e->fail("pthread_cond_wait is not modelled");
}

int pthread_mutex_unlock(pthread_mutex_t* mutex) {
  model::engine* const e = model::engine_of_program();
  if (e == nullptr) {
    static auto* const original = model::original_of<int(pthread_mutex_t*)>("pthread_mutex_unlock");
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
