// The untyped lists that the classes of timeout_list.hpp call, and the part of an entry
// that links it.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/site.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class timeout_core;     // a list
class timeout_table;    // lists by duration
struct timeout_run;     // an on_expire in progress
struct timeout_access;  // for vigil-io

struct timeout_links {
  timeout_links* before = nullptr;
  timeout_links* after = nullptr;
};

struct timeout_node : timeout_links {
  // The time of the last touch while in a list, otherwise 0.
  std::atomic<std::int64_t> touched{0};
  std::atomic<timeout_core*> home{nullptr};
  std::atomic<timeout_run*> run{nullptr};
};

// on_expire with its type erased. Counted, because several lists may share it.
struct timeout_function {
  virtual void call(timeout_node& n) = 0;
  virtual ~timeout_function() = default;
  std::atomic<std::size_t> uses{1};
};

VIGIL_API timeout_core* make_timeouts(std::int64_t duration, timeout_function* f, const site& from);
// Waits: throws nothing.
VIGIL_API void end_timeouts(timeout_core* list) noexcept;
VIGIL_API void add(timeout_core* list, timeout_node& n);
VIGIL_API void add_surely(timeout_core* list, timeout_node& n);
// Waits: throws nothing.
VIGIL_API bool remove(timeout_node& n) noexcept;
// Waits: throws nothing.
VIGIL_API void forget(timeout_node& n) noexcept;
VIGIL_API std::size_t expire_now(timeout_core* list);
VIGIL_API std::size_t size_of(const timeout_core* list) noexcept;
VIGIL_API std::int64_t duration_of(const timeout_core* list) noexcept;
VIGIL_API timeout_table* make_table(timeout_function* f, const site& from);
// Waits: throws nothing.
VIGIL_API void end_table(timeout_table* lists) noexcept;
VIGIL_API void add(timeout_table* lists, timeout_node& n, std::int64_t duration);
VIGIL_API std::size_t expire_now(timeout_table* lists);
VIGIL_API std::size_t size_of(const timeout_table* lists) noexcept;
VIGIL_API std::size_t count_of(const timeout_table* lists) noexcept;

}  // namespace VIGIL_DETAIL
