// awaited_object: the object that a parked fiber or task waits for: a channel, a lock and
// its holder, another fiber, a socket. Async-signal-safe.
#pragma once

#include "core/base/disguised.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "inspect/socket_ends.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class dump_writer;

// Where an object was made: "file:line", or what stands in place of a file; its name, if
// it has one.
struct shown_birth {
  char file[128] = "";
  char name[32] = "";
  std::uint32_t line = 0;
  std::uint32_t number = 0;  // object_numbers; 0: the only one of its line
  disguised<const void> address;
};

struct shown_fiber {
  std::uint64_t id = 0;
  std::uint64_t runtime = 0;  // its number; 0: not known
  char name[fiber_identity::name_room] = "";
};

// The object of a wait, or of one case of a select.
struct shown_object {
  enum class kind : std::uint8_t { none, one_fiber, one_task, channel, queue, descriptor };
  enum class holder : std::uint8_t { unknown, a_number, a_fiber, a_thread, gone };

  wait_reason reason = wait_reason::none;
  kind type = kind::none;
  shown_birth made;  // of a channel or a queue
  // --- a channel
  std::size_t size = 0;
  std::size_t capacity = 0;
  bool is_closed = false;
  // --- a channel or a semaphore that remembers its users
  disguised<const void> address;  // the object's, as last_users has it
  disguised<const void> users;    // read_object_users()
  // --- none: a task that is joined, perhaps, whose number is not known yet
  const void* joined = nullptr;
  // --- a descriptor
  int number = -1;
  // --- a lock
  holder held_by = holder::unknown;
  std::uint64_t holder_noted = 0;  // holder_word
  shown_fiber who;  // the fiber or task that is joined, or the fiber that holds the lock
};

struct awaited_object {
  enum class kind : std::uint8_t { none, object, select, descriptor, call };

  static constexpr std::size_t most_cases = 8;

  kind type = kind::none;
  std::size_t case_count = 0;   // object: 1
  std::size_t other_cases = 0;  // select: more than fit
  shown_object cases[most_cases];
  shown_descriptor descriptor;
  int thread = 0;  // call: side_call::thread
  bool ends_with_context = false;
  shown_birth context;
};

// Reads the object of a wait for this reason. False if it cannot be read.
bool read_object(wait_reason reason, const void* object, shown_object& out) noexcept;

// Reads it for a fiber whose state is `parked`. False if the fiber has moved on
// meanwhile. Caller: holds a slab_hold.
bool read_awaited(const stack& where, const fiber_view& s, awaited_object& out) noexcept;

// Reads it for a task. As the task may go on meanwhile, the caller copies it once more
// afterwards: if it waits as before, the object is the one of that wait.
void read_awaited(const fiber_view& task, awaited_object& out) noexcept;

// Finds the fiber whose number an object names as its holder (holder::a_number). Walks
// over all fibers. Caller: as above.
void find_holder(shown_object& o) noexcept;
void find_holders(awaited_object& o) noexcept;

// Writes " of runtime 2" after a fiber, if several run.
void write_runtime(dump_writer& out, std::uint64_t runtime) noexcept;

// Writes it in words, to follow the reason: " of fiber 4 (main)".
void write_awaited(dump_writer& out, const awaited_object& o, bool with_addresses) noexcept;

}  // namespace VIGIL_DETAIL
