#include "inspect/wait_ways.hpp"

#include "core/chan/selecting.hpp"
#include "core/sched/wait/case_table.hpp"
#include "inspect/awaited_object.hpp"

#include <vigil/detail/sync_core.hpp>

#include <cstdint>

namespace VIGIL_DETAIL {

std::size_t object_table::add(const known_object& o) {
  const auto [at, is_new] = by_begin_.try_emplace(o.block.begin, objects_.size());
  if (is_new) objects_.push_back(o);
  return at->second;
}

std::size_t object_table::add(const channel_core& c) {
  return add(known_object{memory_range::of(&c, sizeof c), object_view::ring_of(c)});
}

std::size_t object_table::add(const cancel_context& c) {
  const std::size_t before = objects_.size();
  const std::size_t number = add(known_object{memory_range::of(&c, sizeof c), {}});
  if (objects_.size() == before) return number;
  const cancel_node::inside in = c.look_inside();
  for (const auto& ends : {in.links, in.children}) {
    links_.push_back(
        {reinterpret_cast<std::uintptr_t>(ends[0]), reinterpret_cast<std::uintptr_t>(ends[1])});
  }
  return number;
}

std::size_t object_table::add_group(const void* group) {
  return add(known_object{memory_range::of(group, object_view::group_size), {}});
}

std::size_t object_table::find(const void* address) const noexcept {
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  auto after = by_begin_.upper_bound(wanted);
  if (after == by_begin_.begin()) return target_list::none;
  --after;
  return objects_[after->second].block.has(wanted) ? after->second : target_list::none;
}

void object_table::add_queue(const birth& queue, bool is_shared_mutex) {
  const auto& q = static_cast<const wait_queue&>(queue);
  links_.push_back(memory_range::of(&q.first, sizeof q.first + sizeof q.last));
  if (!is_shared_mutex) return;
  // The queue of the readers follows.
  static constexpr shared_mutex_core example{site{"", 0}};
  const auto at = reinterpret_cast<std::uintptr_t>(&q);
  const auto example_at = reinterpret_cast<std::uintptr_t>(&example.queue);
  const auto of_example = [&](const void* member) {
    return at + (reinterpret_cast<std::uintptr_t>(member) - example_at);
  };
  links_.push_back({of_example(&example.first_reader), of_example(&example.last_reader + 1)});
}

bool is_for_lock(wait_reason reason) noexcept {
  return reason == wait_reason::mutex || reason == wait_reason::shared_mutex_read ||
         reason == wait_reason::shared_mutex_write;
}

namespace {

// The channel as an object, or the context whose end it tells. False for one that values
// come to from elsewhere: a timer's.
bool add_channel(const channel_core& c, object_table& objects, own_vector<wait_way>& out) {
  std::size_t number = objects.find(&c);
  if (number == target_list::none) {
    if (c.source != nullptr) return false;
    number = objects.add(c);
  }
  out.push_back({.type = wait_way::kind::object, .number = number});
  return true;
}

// A context ends with those above it. Those above were made before, and a way that leads
// to one of them ends this wait as well.
bool add_context(const cancel_context& made,
                 const cancel_node* root,
                 object_table& objects,
                 own_vector<wait_way>& out) {
  for (const cancel_node* n = &made; n != nullptr && n != root; n = n->look_inside().above) {
    const auto& c = static_cast<const cancel_context&>(*n);
    if (object_view::ends_by_itself(c)) return false;
    out.push_back({.type = wait_way::kind::object, .number = objects.add(c)});
  }
  return true;
}

bool add_end_of_context(const channel_core& c,
                        const cancel_node* root,
                        object_table& objects,
                        own_vector<wait_way>& out) {
  // A context has one channel, which is a part of it.
  const auto& context = static_cast<const cancel_context&>(c);
  return add_context(context, root, objects, out);
}

bool add_waited_channel(const channel_core& c,
                        const cancel_node* root,
                        object_table& objects,
                        own_vector<wait_way>& out) {
  if (root != nullptr && &c == static_cast<const cancel_context*>(root)) return true;
  const bool is_known = objects.find(&c) != target_list::none;
  if (c.source != nullptr && is_known) return add_end_of_context(c, root, objects, out);
  return add_channel(c, objects, out);
}

// The queue of a lock, of a count or of a condition, and the holder if there is one.
bool add_queue(wait_reason reason,
               const void* object,
               object_table& objects,
               own_vector<wait_way>& out) {
  if (object == nullptr) return false;
  wait_way way{.type = wait_way::kind::place, .address = object};
  objects.add_queue(
      *static_cast<const birth*>(way.address),
      reason == wait_reason::shared_mutex_read || reason == wait_reason::shared_mutex_write);
  shown_object o;
  if (!read_object(reason, object, o)) return false;
  const bool is_fiber =
      o.held_by == shown_object::holder::a_number || o.held_by == shown_object::holder::a_fiber;
  if (is_fiber) way.holder = o.who.id;
  way.holder_noted = o.holder_noted;
  out.push_back(way);
  return true;
}

bool add_select(const shown_select& all,
                const cancel_node* root,
                object_table& objects,
                own_vector<wait_way>& out);

bool add_object(wait_reason reason,
                const void* object,
                const cancel_node* root,
                object_table& objects,
                own_vector<wait_way>& out) {
  switch (what_ends(reason)) {
    case ended_by::system:
      return false;
    case ended_by::nobody:
      return true;
    case ended_by::end_of_other:
      out.push_back({.type = wait_way::kind::end_of, .address = object});
      return true;
    case ended_by::channel:
      return add_waited_channel(*static_cast<const channel_core*>(object), root, objects, out);
    case ended_by::cases:
      return object != nullptr &&
             add_select(*static_cast<const shown_select*>(object), root, objects, out);
    case ended_by::group:
      out.push_back({.type = wait_way::kind::object, .number = objects.add_group(object)});
      return true;
    case ended_by::queue:
      return add_queue(reason, object, objects, out);
  }
  return false;
}

bool add_select(const shown_select& all,
                const cancel_node* root,
                object_table& objects,
                own_vector<wait_way>& out) {
  for (std::size_t i = 0; i < all.count; ++i) {
    const select_case& c = *all.cases[i];
    if (c.type != select_case::kind::waits) return false;
    if (c.object == nullptr) continue;
    const void* const shown = static_cast<const std::byte*>(c.object) + c.table->shown_at;
    if (!add_object(c.table->reason, shown, root, objects, out)) return false;
  }
  return true;
}

}  // namespace

bool read_wait_ways(const fiber& f,
                    const cancel_node* root,
                    object_table& objects,
                    own_vector<wait_way>& out) {
  if (const birth* const context = f.present.ends_with.load()) {
    if (!add_context(object_view::context_with(*context), root, objects, out)) return false;
  }
  return add_object(f.present.reason.load(), f.present.object.load(), root, objects, out);
}

}  // namespace VIGIL_DETAIL
