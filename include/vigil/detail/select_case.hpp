// The untyped select: its cases, whatever they wait for.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/detail/channel_core.hpp>
#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

// {poll, enqueue, claim, retract} of one kind of case; src/chan/select_core.hpp.
struct case_table;

// One case of a select, for the length of the call.
struct select_case {
  enum class kind : std::uint8_t {
    waits,      // for what its table says
    timed,      // taken when `limit` has come, if nothing else was
    otherwise,  // taken if nothing else is ready
  };

  select_case(const case_table& of, void* waits_for) noexcept
      : table(&of), object(waits_for), value(nullptr), what(kind::waits) {}

  select_case(kind k, const wait_limit& l) noexcept : limit(l), what(k) {}

  const case_table* table = nullptr;
  void* object = nullptr;  // nullptr: never ready, as Go's nil channel

  union {
    void* value;
    wait_limit limit;  // of a timed one
  };

  kind what;
  channel_status status = channel_status::not_ready;
  // Its place in the queue of what it waits for. Not initialised.
  alignas(void*) std::byte place[72];
};

VIGIL_API extern const case_table recv_case_table;
VIGIL_API extern const case_table send_case_table;

// A handle for a case that outlives the statement it was made in.
inline channel_handle keep_channel(const select_case& c) noexcept {
  if (c.table != &recv_case_table && c.table != &send_case_table) return {};
  auto* const core = static_cast<channel_core*>(c.object);
  if (core != nullptr) add_handle(core);
  return channel_handle(core);
}

// Throws: std::logic_error.
[[noreturn]] VIGIL_API void throw_select_within();

enum class choice : std::uint8_t {
  fair,     // among those that are ready each has the same chance
  ordered,  // the first of them
};

// Takes one case as soon as one is ready, and returns its index.
// Waits (on_timeout, on_deadline, on_done): throws stopped, channel_closed,
// wrong_place, std::invalid_argument, what the case throws.
VIGIL_API std::size_t select(select_case* const* cases, std::size_t count, choice mode);

}  // namespace vigil::inline VIGIL_ABI::detail
