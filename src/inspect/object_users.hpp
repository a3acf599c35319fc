// object_users: the last that took from a channel or a semaphore with a name, or gave to
// it, as they are shown to those that wait there for the same; and of a channel the last
// user on the other side. Async-signal-safe.
#pragma once

#include "core/sched/call/last_users.hpp"
#include "inspect/awaited_object.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class dump_writer;

struct shown_user {
  user_kind kind = user_kind::of_fiber;
  const char* did = "";  // "received"
  shown_fiber who;
  bool has_ended = false;
  char file[128] = "";  // where the fiber was started
  std::uint32_t line = 0;
  std::int64_t amount = 0;
  bool has_age = false;  // false: on a virtual clock that is gone
  nanos age = 0;
  // --- until its fiber has been looked for
  std::uint64_t runtime = 0;
  const scheduler* sched = nullptr;
};

struct shown_users {
  shown_birth of;
  // Notes that the fiber is alive, if it is one of them.
  void note_alive(const fiber_view& v) noexcept;

  std::size_t count = 0;
  shown_user users[last_users::most + 1];  // the earliest first; then that of the other side
  const char* never = nullptr;             // what nobody on the other side has ever done
};

// Reads them for a wait; each fiber among them counts as ended until it is found. False
// if there are none, or if they cannot be read.
bool read_object_users(const shown_object& o, shown_users& out) noexcept;

// Walks over all fibers. Caller: holds a slab_hold.
void find_living_users(shown_users& all) noexcept;

// Writes a line for each.
void write_object_users(dump_writer& out, const shown_users& u) noexcept;

}  // namespace VIGIL_DETAIL
