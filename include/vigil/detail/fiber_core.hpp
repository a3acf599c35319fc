// The untyped side of fiber<R>, which the templates in fiber.hpp call.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_PUBLIC {

struct fiber_options;  // fiber.hpp

namespace detail {

class fiber_core;  // the control block, at the top of the fiber's stack
class scheduler;
struct core_access;  // wait_cases.hpp

// The runtime's operations on a fiber_body.
struct body_table {
  void (*run)(void* body);                      // calls the function; may throw
  void (*destroy_call)(void* body) noexcept;    // for a fiber that never ran
  void (*destroy_result)(void* body) noexcept;  // for a result that nobody takes
  void* (*result)(void* body) noexcept;
};

// The call that starts a fiber, for its errors, and the scheduler to start it on.
struct start_call {
  const char* name = "vigil::go, vigil::spawn";
  // A scheduler whose runtime exists until the call is over; nullptr means the caller's
  // own.
  scheduler* sched = nullptr;
};

// Where a guard of this_fiber was made. The fiber alone does not tell, because the
// callbacks of a runtime run one after another on the same few fibers.
struct guard_owner {
  std::uint64_t fiber = 0;
  std::uint32_t runtime = 0;
  std::uint32_t callback = 0;
  friend bool operator==(const guard_owner&, const guard_owner&) noexcept = default;
};

// A fiber that is made but not started; gives back its stack if it is never started.
class VIGIL_API new_fiber {
 public:
  // Throws wrong_place, limit_reached, std::bad_alloc, std::invalid_argument.
  new_fiber(const start_call& call,
            const fiber_options& options,
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

// Throws wrong_place for an empty handle, and for that of the calling fiber.
VIGIL_API void check_join(const fiber_core* core);
// Returns true if the fiber has ended, false if the limit has come. Nothing else may join
// meanwhile.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait_for_end(fiber_core* core, const wait_limit& limit);
// The same without a time. Nothing may join afterwards either: the caller takes the
// result.
// Waits: throws stopped, wrong_place, what ended the fiber.
VIGIL_API void join(fiber_core* core, const wait_limit& limit);
VIGIL_API void detach(fiber_core* core);
VIGIL_API void request_stop(fiber_core* core) noexcept;
// Waits: throws nothing.
VIGIL_API void stop_and_join(fiber_core* core) noexcept;
VIGIL_API std::uint64_t id_of(const fiber_core* core) noexcept;

// A joined fiber: rethrows the exception that left it, returns the result, and gives back
// the stack when it is destroyed.
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
}  // namespace VIGIL_PUBLIC
