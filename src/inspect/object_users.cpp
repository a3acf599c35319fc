#include "inspect/object_users.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <cstring>

namespace VIGIL_DETAIL {
namespace {

struct read_user {
  std::uint64_t serial = 0;
  shown_user user;
};

// ordering, of all loads: a copy.
bool is_whole(const object_user& a, const object_user& b) noexcept {
  return a.serial.load() != 0 && std::memcmp(&a, &b, sizeof a) == 0;
}

read_user copied(const object_user& e) noexcept {
  read_user r;
  r.serial = e.serial.load();
  shown_user& u = r.user;
  u.kind = e.kind.load();
  u.runtime = e.runtime.load();
  u.amount = e.amount.load();
  if (u.kind == user_kind::of_fiber) {
    u.who.id = e.id.load();
    for (std::size_t i = 0; i < object_user::name_words; ++i) {
      const std::uint64_t word = e.name[i].load();
      std::memcpy(u.who.name + i * sizeof word, &word, sizeof word);
    }
    u.who.name[sizeof u.who.name - 1] = '\0';
    u.line = e.line.load();
    if (!read_text(e.file.load(), u.file, sizeof u.file)) std::strcpy(u.file, "?");
  }
  nanos now = monotonic_now();
  bool is_read = e.clock_of.load() == 0 || e.is_virtual.load() == 0;
  for_each_running([&](const scheduler& s, runtime_slot&) {
    if (s.number() == u.runtime) u.sched = &s;
    if (s.number() != e.clock_of.load()) return;
    now = s.clock.now();
    is_read = true;
  });
  u.has_age = is_read;
  u.age = std::max<nanos>(now - e.when.load(), 0);
  u.has_ended = u.kind == user_kind::of_fiber;  // until it is found
  return r;
}

void look_for_users(const stack& where, void* argument) noexcept {
  auto& all = *static_cast<shown_users*>(argument);
  bool is_one = false;
  for (std::size_t i = 0; i < all.count; ++i)
    is_one = is_one || has_id(where, all.users[i].who.id);
  fiber_view v;
  if (is_one && take_view(where, v)) all.note_alive(v);
}

const object_user* ring_of(const last_users& all, bool gave) noexcept {
  return gave ? all.givers() : all.takers();
}

// A channel alone remembers both sides.
void read_other_side(const last_users& first,
                     const last_users& second,
                     bool gave,
                     shown_users& out) noexcept {
  const char* const did = gave ? "sent" : "received";
  const object_user* newest = nullptr;
  for (std::size_t i = 0; i < last_users::most; ++i) {
    const object_user& e = ring_of(first, gave)[i];
    if (!is_whole(e, ring_of(second, gave)[i])) continue;
    if (newest == nullptr || e.serial.load() > newest->serial.load()) newest = &e;
  }
  if (newest != nullptr) {
    shown_user& last = out.users[out.count++];
    last = copied(*newest).user;
    last.did = did;
  } else if (!(gave ? second.is_given_to() : second.is_taken_from())) {
    out.never = did;
  }
}

}  // namespace

void shown_users::note_alive(const fiber_view& v) noexcept {
  if (v.state == fiber_state::ended) return;
  for (std::size_t i = 0; i < count; ++i) {
    shown_user& u = users[i];
    if (u.who.id == v.id && u.sched != nullptr && u.sched == v.sched) u.has_ended = false;
  }
}

void find_living_users(shown_users& all) noexcept {
  if (all.count != 0) for_each_stack_in_use(&look_for_users, &all);
}

bool read_object_users(const shown_object& o, shown_users& out) noexcept {
  out.count = 0;
  out.never = nullptr;
  out.of = o.made;
  if (o.users == nullptr) return false;
  copied_bytes<last_users> first;
  copied_bytes<last_users> second;
  if (!first.read(o.users) || !second.read(o.users)) return false;
  if (!first.as_object().is_of(o.address)) return false;
  const bool gave = o.reason == wait_reason::send;
  const char* const did =
      o.reason == wait_reason::semaphore ? "acquired" : (gave ? "sent" : "received");
  std::uint64_t serials[last_users::most] = {};
  for (std::size_t i = 0; i < last_users::most; ++i) {
    const object_user& e = ring_of(first.as_object(), gave)[i];
    if (!is_whole(e, ring_of(second.as_object(), gave)[i])) continue;
    const read_user r = copied(e);
    std::size_t at = out.count++;
    for (; at > 0 && serials[at - 1] > r.serial; --at) {
      serials[at] = serials[at - 1];
      out.users[at] = out.users[at - 1];
    }
    serials[at] = r.serial;
    out.users[at] = r.user;
    out.users[at].did = did;
  }
  if (o.reason != wait_reason::semaphore) {
    read_other_side(first.as_object(), second.as_object(), !gave, out);
  }
  return out.count != 0 || out.never != nullptr;
}

void write_object_users(dump_writer& out, const shown_users& all) noexcept {
  for (std::size_t i = 0; i < all.count; ++i) {
    const shown_user& u = all.users[i];
    out.text("    \"").name(all.of.name).text("\": ").text(u.did);
    if (u.amount != 1) out.text(" ").number(static_cast<std::uint64_t>(u.amount));
    if (u.kind == user_kind::of_thread) out.text(" by a thread");
    if (u.kind == user_kind::of_task) out.text(" by a task");
    if (u.kind == user_kind::of_fiber) {
      out.text(" by fiber ").number(u.who.id);
      if (u.who.name[0] != '\0') out.text(" (").name(u.who.name).text(")");
      if (u.has_ended) out.text(", which has ended");
    }
    if (u.has_age) out.text(u.has_ended ? ", " : " ").seconds(u.age).text(" ago");
    if (u.kind == user_kind::of_fiber) {
      out.text(", started at ").file(u.file);
      if (u.line != 0) out.text(":").number(u.line);
    }
    out.text("\n");
  }
  if (all.never != nullptr) {
    out.text("    \"").name(all.of.name).text("\": nobody has ever ").text(all.never).text("\n");
  }
}

}  // namespace VIGIL_DETAIL
