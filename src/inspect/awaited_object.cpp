#include "inspect/awaited_object.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/base/object_names.hpp"
#include "core/base/thread_annotations.hpp"
#include "core/chan/channel_core.hpp"
#include "core/chan/selecting.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/run/side_call.hpp"
#include "core/sched/wait/case_table.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/sync/holder_word.hpp"
#include "core/sync/wait_queue.hpp"

#include <vigil/detail/sync_core.hpp>

#include <algorithm>

namespace VIGIL_DETAIL {
namespace {

// The address may be any number, and overflow.
const void* address_after(const void* at, std::size_t bytes) noexcept {
  return reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(at) + bytes);
}

bool read_birth(const birth& b, const void* address, shown_birth& out) noexcept {
  out.line = b.line();
  out.address = address;
  const char* const name = name_by_number(b.name());
  if (name != nullptr && !read_text(name, out.name, sizeof out.name)) out.name[0] = '\0';
  return read_text(b.file, out.file, sizeof out.file);
}

bool read_birth_at(const void* at, shown_birth& out) noexcept {
  copied_bytes<birth> copy;
  return copy.read(at) && read_birth(copy.as_object(), at, out);
}

// 0 if it does not run any more.
std::uint64_t number_of(const scheduler* sched) noexcept {
  std::uint64_t number = 0;
  for_each_running([&](const scheduler& s, runtime_slot&) {
    if (&s == sched) number = s.number();
  });
  return number;
}

bool read_fiber_at(const void* block, shown_fiber& out) noexcept {
  copied_bytes<fiber> copy;
  if (!copy.read(block)) return false;
  const fiber& f = copy.as_object();
  if (f.magic.load() != fiber::live_magic) return false;
  out.id = f.identity.id;
  out.runtime = number_of(f.sched);
  std::copy_n(f.identity.name, sizeof out.name, out.name);
  out.name[sizeof out.name - 1] = '\0';
  return true;
}

VIGIL_NO_SANITIZE_UNDEFINED bool read_channel_at(const void* at, shown_object& out) noexcept {
  copied_bytes<channel_core> copy;
  if (!copy.read(at)) return false;
  const channel_core& c = copy.as_object();
  out.type = shown_object::kind::channel;
  const channel_core::state s = c.state_in_copy();
  out.size = s.size;
  out.capacity = s.capacity;
  out.is_closed = s.is_closed;
  out.address = at;
  if (c.remembers_in_copy()) out.users = address_after(at, named_channel::users_offset());
  return read_birth(c.made_at, at, out.made);
}

bool read_case(const select_case& c, shown_object& out) noexcept {
  copied_bytes<case_table> table;
  if (!table.read(c.table)) return false;
  const case_table& t = table.as_object();
  const void* shown = address_after(c.object, static_cast<std::size_t>(t.shown_at));
  if (t.reason == wait_reason::io) {  // there lies what is shown
    copied_bytes<const void*> word;
    if (!word.read(shown)) return false;
    shown = word.as_object();
  }
  return shown == nullptr || detail::read_object(t.reason, shown, out);
}

bool read_select_at(const void* at, awaited_object& out) noexcept {
  copied_bytes<shown_select> copy;
  if (!copy.read(at)) return false;
  const shown_select all = copy.as_object();
  // If the fiber has moved on, the count may be any number.
  const std::size_t looked_at = std::min<std::size_t>(all.count, 1024);
  out.other_cases = all.count - looked_at;
  for (std::size_t i = 0; i < looked_at; ++i) {
    copied_bytes<select_case*> place;
    copied_bytes<select_case> one;
    if (!place.read(address_after(all.cases, i * sizeof *all.cases)) ||
        !one.read(place.as_object()))
      return false;
    const select_case& c = one.as_object();
    if (c.type != select_case::kind::waits || c.object == nullptr) continue;
    if (out.case_count == awaited_object::most_cases) {
      ++out.other_cases;
    } else if (read_case(c, out.cases[out.case_count])) {
      ++out.case_count;
    }
  }
  out.type = awaited_object::kind::select;
  return true;
}

// `holder` as note_holder() writes it.
void read_holder(std::uint64_t holder, shown_object& out) noexcept {
  if (holder == 0) return;
  out.holder_noted = holder;
  if (holder_word::is_thread(holder)) {
    out.held_by = shown_object::holder::a_thread;
  } else {
    out.held_by = shown_object::holder::a_number;
    out.who.id = holder_word::fiber_number(holder);
  }
}

template <class Core>
bool copy_around(const void* queue, copied_bytes<Core>& out) noexcept {
  return out.read(static_cast<const std::byte*>(queue) - queue_offset<Core>());
}

// A thing with a queue of waits, which begins with the `birth`.
bool read_queue(wait_reason reason, const void* queue, shown_object& out) noexcept {
  if (!read_birth_at(queue, out.made)) return false;
  out.type = shown_object::kind::queue;
  using enum wait_reason;
  if (reason == mutex) {
    copied_bytes<mutex_core> m;
    if (!copy_around(queue, m)) return false;
    read_holder(m.as_object().holder.load(order::relaxed), out);  // ordering: a copy
  } else if (reason == shared_mutex_read || reason == shared_mutex_write) {
    copied_bytes<shared_mutex_core> m;
    if (!copy_around(queue, m)) return false;
    read_holder(m.as_object().holder.load(order::relaxed), out);  // ordering: a copy
  } else if (reason == semaphore) {
    copied_bytes<permit_core> s;
    if (!copy_around(queue, s)) return false;
    out.address = queue;
    out.users = s.as_object().users;
  } else if (reason == once) {
    copied_bytes<once_core> o;
    if (!copy_around(queue, o)) return false;
    read_holder(o.as_object().runner, out);
  }
  return true;
}

bool read_one(wait_reason reason, const void* object, awaited_object& out) noexcept {
  if (!detail::read_object(reason, object, out.cases[0])) return false;
  out.case_count = 1;
  out.type = awaited_object::kind::object;
  return true;
}

// `object` as shown_object.hpp of vigil-io makes it.
bool read_io(const void* object, awaited_object& out) noexcept {
  auto word = reinterpret_cast<std::uintptr_t>(object);
  if ((word & 3) == 2) {
    copied_bytes<std::uintptr_t> place;
    if (!place.read(reinterpret_cast<const void*>(word - 2))) return false;
    word = place.as_object();
  }
  if (word == 0) return true;
  if ((word & 1) == 0) {
    return read_one(wait_reason::io, reinterpret_cast<const void*>(word), out);
  }
  read_descriptor(static_cast<int>(word >> 1), out.descriptor);
  out.type = awaited_object::kind::descriptor;
  return true;
}

VIGIL_NO_SANITIZE_UNDEFINED bool read_call(const fiber_view& s, awaited_object& out) noexcept {
  copied_bytes<side_call> copy;
  if (!copy.read(s.object)) return false;
  // Pairs with side_pool::run().
  out.thread = copy.as_object().thread.load(order::acquire);
  out.type = awaited_object::kind::call;
  return true;
}

bool read_by_reason(const fiber_view& s, awaited_object& out) noexcept {
  if (s.object == nullptr) return true;
  if (s.reason == wait_reason::select) return read_select_at(s.object, out);
  if (s.reason == wait_reason::io) return read_io(s.object.get(), out);
  if (s.reason == wait_reason::blocking) return read_call(s, out);
  return read_one(s.reason, s.object.get(), out);
}

struct wanted_fiber {
  std::uint64_t id = 0;
  const scheduler* sched = nullptr;
  bool is_found = false;
  shown_fiber found;
};

void look_for(const stack& where, void* argument) noexcept {
  auto& wanted = *static_cast<wanted_fiber*>(argument);
  if (wanted.is_found || !has_id(where, wanted.id)) return;
  fiber_view s;
  if (!take_view(where, s) || s.id != wanted.id || s.state == fiber_state::ended) return;
  if (s.sched != wanted.sched) return;
  wanted.is_found = true;
  std::copy_n(s.name, sizeof wanted.found.name, wanted.found.name);
}

void write_birth(dump_writer& out, const shown_birth& b, bool with_addresses) noexcept {
  if (b.name[0] != '\0') out.text(" \"").name(b.name).text("\"");
  if (b.line != 0) {
    out.text(" made at ").file(b.file).text(":").number(b.line);
    if (b.number != 0) out.text(" #").number(b.number);
  } else {
    out.text(" of ").file(b.file);
  }
  if (with_addresses) {
    out.text(" at 0x").number(reinterpret_cast<std::uintptr_t>(b.address.get()), 16);
  }
}

void write_fiber(dump_writer& out, const shown_fiber& f) noexcept {
  out.text("fiber ").number(f.id);
  if (f.name[0] != '\0') out.text(" (").name(f.name).text(")");
  write_runtime(out, f.runtime);
}

void write_holder(dump_writer& out, const shown_object& o) noexcept {
  switch (o.held_by) {
    case shown_object::holder::unknown:
      return;
    case shown_object::holder::a_thread:
      out.text(", held by a thread");
      return;
    case shown_object::holder::a_number:
    case shown_object::holder::a_fiber:
      write_fiber(out.text(", held by "), o.who);
      return;
    case shown_object::holder::gone:
      write_fiber(out.text(", held by "), o.who);
      out.text(", which has ended");
      return;
  }
}

void write_channel(dump_writer& out, const shown_object& c, bool with_addresses) noexcept {
  out.text("the channel");
  write_birth(out, c.made, with_addresses);
  if (c.is_closed) {
    out.text(" (closed)");
  } else if (c.capacity != 0) {
    out.text(" (").number(c.size).text(" of ").number(c.capacity).text(" values)");
  }
}

// To follow the reason.
void write_object(dump_writer& out, const shown_object& o, bool with_addresses) noexcept {
  switch (o.type) {
    case shown_object::kind::none:
      break;
    case shown_object::kind::one_fiber:
      write_fiber(out.text(" of "), o.who);
      break;
    case shown_object::kind::one_task:
      out.text(" of task ").number(o.who.id);
      break;
    case shown_object::kind::channel:
      out.text(o.reason == wait_reason::send ? " to " : " from ");
      write_channel(out, o, with_addresses);
      break;
    case shown_object::kind::queue:
      write_birth(out, o.made, with_addresses);
      write_holder(out, o);
      break;
    case shown_object::kind::descriptor:
      out.text(" of descriptor ").number(static_cast<unsigned>(o.number));
      break;
  }
}

void write_cases(dump_writer& out, const awaited_object& o, bool with_addresses) noexcept {
  for (std::size_t i = 0; i < o.case_count; ++i) {
    out.text(i == 0 ? " (" : ", ").text(case_name(o.cases[i].reason));
    write_object(out, o.cases[i], with_addresses);
  }
  if (o.other_cases != 0) out.text(", and ").number(o.other_cases).text(" more");
  if (o.case_count != 0) out.text(")");
}

void write_descriptor(dump_writer& out, const shown_descriptor& d) noexcept {
  const bool is_socket = d.type == shown_descriptor::kind::socket;
  out.text(is_socket ? " of socket " : " of descriptor ").number(static_cast<unsigned>(d.number));
  if (d.type == shown_descriptor::kind::closed) out.text(" (closed)");
  if (!is_socket) return;
  out.text(" (").text(d.protocol);
  if (d.local[0] != '\0') out.text(" ").file(d.local);
  if (d.peer[0] != '\0') out.text(", peer ").file(d.peer);
  if (d.listens) out.text(", listening");
  out.text(")");
}

void write_call(dump_writer& out, int thread) noexcept {
  if (thread == side_call::not_begun) {
    out.text(" (not begun)");
  } else if (thread == side_call::has_returned) {
    out.text(" (has returned)");
  } else {
    out.text(" (on thread ").number(static_cast<unsigned>(thread)).text(")");
  }
}

}  // namespace

bool read_awaited(const stack& where, const fiber_view& s, awaited_object& out) noexcept {
  out = {};
  if (s.state != fiber_state::parked) return true;
  const bool is_read = read_by_reason(s, out);
  if (s.ends_with != nullptr) out.ends_with_context = read_birth_at(s.ends_with, out.context);
  // As long as the fiber waits, what it waits for is there.
  if (!is_unmoved(where, s)) {
    out = {};
    return false;
  }
  if (!is_read) out.type = awaited_object::kind::none;
  return true;
}

void read_awaited(const fiber_view& task, awaited_object& out) noexcept {
  out = {};
  if (task.state != fiber_state::parked) return;
  if (!read_by_reason(task, out)) out.type = awaited_object::kind::none;
}

bool read_object(wait_reason reason, const void* object, shown_object& out) noexcept {
  out.reason = reason;
  if (reason == wait_reason::join) {
    if (read_fiber_at(object, out.who)) {
      out.type = shown_object::kind::one_fiber;
    } else {
      out.joined = object;
    }
    return true;
  }
  if (reason == wait_reason::send || reason == wait_reason::recv) {
    return read_channel_at(object, out);
  }
  // As shown_object.hpp of vigil-io makes it.
  const auto word = reinterpret_cast<std::uintptr_t>(object);
  if (reason == wait_reason::io && (word & 1) != 0) {
    out.type = shown_object::kind::descriptor;
    out.number = static_cast<int>(word >> 1);
    return true;
  }
  return read_queue(reason, object, out);
}

void find_holder(shown_object& o) noexcept {
  if (o.held_by != shown_object::holder::a_number) return;
  wanted_fiber wanted;
  wanted.id = wanted.found.id = o.who.id;
  for_each_running([&](const scheduler& s, runtime_slot&) {
    if (!holder_word::is_of(o.holder_noted, s.number())) return;
    wanted.sched = &s;
    wanted.found.runtime = s.number();
  });
  if (wanted.sched != nullptr) for_each_stack_in_use(&look_for, &wanted);
  o.held_by = wanted.is_found ? shown_object::holder::a_fiber : shown_object::holder::gone;
  o.who = wanted.found;
}

void find_holders(awaited_object& o) noexcept {
  for (std::size_t i = 0; i < o.case_count; ++i)
    find_holder(o.cases[i]);
}

void write_runtime(dump_writer& out, std::uint64_t runtime) noexcept {
  if (runtime != 0 && runtimes_running.load() > 1) out.text(" of runtime ").number(runtime);
}

void write_awaited(dump_writer& out, const awaited_object& o, bool with_addresses) noexcept {
  switch (o.type) {
    case awaited_object::kind::none:
      break;
    case awaited_object::kind::object:
      write_object(out, o.cases[0], with_addresses);
      break;
    case awaited_object::kind::select:
      write_cases(out, o, with_addresses);
      break;
    case awaited_object::kind::descriptor:
      write_descriptor(out, o.descriptor);
      break;
    case awaited_object::kind::call:
      write_call(out, o.thread);
      break;
  }
  if (o.ends_with_context) {
    out.text(", or the end of the context");
    write_birth(out, o.context, with_addresses);
  }
}

}  // namespace VIGIL_DETAIL
