// The untyped side of fiber<R>: what the templates in fiber.hpp call.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI {

struct fiber_options;  // fiber.hpp

namespace detail {

class fiber_core;  // the control block, at the top of the fiber's stack

// The operations of the runtime on a fiber_body.
struct body_table {
  void (*run)(void* body);                      // calls the function; may throw
  void (*destroy_call)(void* body) noexcept;    // a fiber that never ran
  void (*destroy_result)(void* body) noexcept;  // a result that is thrown away
  void* (*result)(void* body) noexcept;
};

// Which call starts a fiber, for its errors, and where.
struct start_call {
  const char* name = "vigil::go, vigil::spawn";
  // The scheduler of a runtime that stays until the call is over; nullptr: the
  // caller's own.
  void* sched = nullptr;
};

// Where a guard of this_fiber was made. The callbacks of a runtime run one after
// another on the same few fibers, so the fiber alone does not tell.
struct guard_owner {
  std::uint64_t fiber = 0;
  std::uint32_t runtime = 0;
  std::uint32_t callback = 0;
  friend bool operator==(const guard_owner&, const guard_owner&) noexcept = default;
};

// A fiber between its making and its start; gives its stack back if it is not
// started.
class VIGIL_API new_fiber {
 public:
  // Throws wrong_place, limit_reached, std::bad_alloc, std::invalid_argument.
  new_fiber(const start_call& call,
            const fiber_options& how,
            std::size_t size,
            std::size_t align,
            const site& from);
  ~new_fiber();
  new_fiber(const new_fiber&) = delete;
  new_fiber& operator=(const new_fiber&) = delete;

  void* room() const noexcept;  // where the body is to be built
  fiber_core* start(const body_table& table, bool detached) noexcept;

 private:
  fiber_core* core_;
};

// True if the fiber has ended; false: the limit has come. Nobody else may join
// meanwhile.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait_for_end(fiber_core* core, const wait_limit& limit);
// The same, without a time; nor may anybody join afterwards: the caller takes the
// result.
// Waits: throws stopped, wrong_place, what ended the fiber.
VIGIL_API void join(fiber_core* core, const wait_limit& limit);
VIGIL_API void detach(fiber_core* core);
VIGIL_API void request_stop(fiber_core* core) noexcept;
// Waits: throws nothing.
VIGIL_API void stop_and_join(fiber_core* core) noexcept;
VIGIL_API std::uint64_t id_of(const fiber_core* core) noexcept;

// A joined fiber: rethrows what left it, hands out the result, gives the stack
// back when it dies.
class VIGIL_API ended_fiber {
 public:
  explicit ended_fiber(fiber_core* core);
  ~ended_fiber();
  ended_fiber(const ended_fiber&) = delete;
  ended_fiber& operator=(const ended_fiber&) = delete;
  void* result() const noexcept;

 private:
  fiber_core* core_;
};

VIGIL_API void* find_local(const void* key);
VIGIL_API void add_local(const void* key, void* value, void (*destroy)(void*) noexcept);

}  // namespace detail
}  // namespace vigil::inline VIGIL_ABI
