// The untyped select and its cases.
#pragma once

#include <vigil/detail/channel_core.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

// The functions poll, enqueue, retract and others of one kind of case;
// src/core/sched/wait/case_table.hpp.
struct case_table;

// One case of a select, during the call.
struct select_case {
  enum class kind : std::uint8_t {
    waits,      // for the event of its table
    timed,      // taken when `limit` has come, if no other case was
    otherwise,  // taken if no other case is ready
  };

  select_case(const case_table& of, void* waits_for) noexcept
      : table(&of), object(waits_for), value(nullptr), type(kind::waits) {}

  select_case(const case_table& of, void* waits_for, std::int64_t n) noexcept
      : table(&of), object(waits_for), amount(n), type(kind::waits) {}

  select_case(kind k, const wait_limit& l) noexcept : limit(l), type(k) {}

  const case_table* table = nullptr;  // nullptr: a case that was switched off, or a time
  void* object = nullptr;             // nullptr: never ready, like Go's nil channel

  union {
    void* value;          // of a channel's case
    std::int64_t amount;  // of permits
    wait_limit limit;     // for `timed`
  };

  kind type;
  channel_status status = channel_status::not_ready;  // how a channel's case has ended
  // Its place in the queue of the object. Not initialised.
  alignas(void*) std::byte place[72];
};

VIGIL_API extern const case_table recv_case_table;
VIGIL_API extern const case_table send_case_table;
VIGIL_API extern const case_table join_case_table;
VIGIL_API extern const case_table mutex_case_table;
VIGIL_API extern const case_table write_case_table;  // a shared_mutex, to write
VIGIL_API extern const case_table read_case_table;
VIGIL_API extern const case_table permit_case_table;
VIGIL_API extern const case_table wait_group_case_table;
VIGIL_API extern const case_table latch_case_table;
VIGIL_API extern const case_table group_case_table;
VIGIL_API extern const case_table next_case_table;  // a result of a group_of

// An end that wait_any and wait_all wait for, of a fiber or a task. They take no result:
// the handle may be joined afterwards.
struct end_kind {
  const case_table* join;
  // The caller's own, for whose end it cannot wait; nullptr if it is none. Only compared.
  const void* (*own)() noexcept;
  bool (*wait)(void* object, const wait_limit& limit);  // false if the limit has come
  void (*leave)(void* object) noexcept;                 // gives back what the case has taken
};

struct any_end {
  const end_kind* kind;
  void* object;  // nullptr: the handle is empty
};

VIGIL_API extern const end_kind end_of_fiber;
VIGIL_API extern const end_kind end_of_task;

// Each type of handle has a specialisation, with `static any_end end_of(H& handle)`.
template <class H>
struct ends_of_handle;

// Throws: std::logic_error.
[[noreturn]] VIGIL_API void throw_select_within();

enum class choice : std::uint8_t {
  fair,     // all ready cases have the same chance
  ordered,  // the first ready case
};

// Takes one case as soon as one is ready, and returns its index.
// Waits (on_timeout, on_deadline, on_done): throws stopped, channel_closed, wrong_place,
// std::invalid_argument, what the case throws.
VIGIL_API std::size_t select(select_case* const* cases, std::size_t count, choice mode);

}  // namespace VIGIL_DETAIL
