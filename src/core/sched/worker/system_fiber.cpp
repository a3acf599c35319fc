#include "core/sched/worker/system_fiber.hpp"

#include <new>

namespace VIGIL_DETAIL {
namespace {

struct system_body {
  void (*run)(void*);
  void* part;
};

}  // namespace

fiber& make_system_fiber(
    scheduler& sched, const char* name, fiber_role role, void (*run)(void*), void* part) {
  fiber& f =
      sched.make_fiber(0, name, sizeof(system_body), alignof(system_body), site{"vigil", 0}, role);
  ::new (f.body) system_body{run, part};
  static constexpr body_table table = {[](void* body) {
                                         const auto& b = *static_cast<system_body*>(body);
                                         // ordering: as a fiber's after any wait.
                                         current_fiber()->present.reason.store(wait_reason::none,
                                                                               order::relaxed);
                                         b.run(b.part);
                                       },
                                       [](void*) noexcept {},
                                       [](void*) noexcept {},
                                       [](void*) noexcept -> void* { return nullptr; }};
  f.table = &table;
  sched.fibers.count_system(1);
  sched.adopt(f);
  f.present.reason.store(role == fiber_role::timer ? wait_reason::timer_empty
                                                   : wait_reason::idle_runner);
  f.state.store(fiber_state::parked);
  f.park_state.store(park_word::parked);
  return f;
}

void retire_system_fiber(fiber& f) noexcept {
  scheduler& sched = *f.sched;
  sched.fibers.count_system(-1);
  sched.retire(f);
}

}  // namespace VIGIL_DETAIL
