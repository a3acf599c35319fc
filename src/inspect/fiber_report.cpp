#include "inspect/fiber_report.hpp"

#include "core/sched/report/dump.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "inspect/object_numbers.hpp"
#include "inspect/running_frames.hpp"
#include "inspect/symbols.hpp"
#include "inspect/task_walk.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <unordered_map>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

std::size_t hash_of(const frame_list& f) noexcept {
  std::size_t h = static_cast<std::size_t>(f.result);
  for (unsigned i = 0; i < f.count; ++i)
    h = (h ^ f.places[i]) * 0x9e37'79b9'7f4a'7c15;
  return h;
}

void sort_by_size(std::vector<std::unique_ptr<fiber_group>>& groups) {
  std::stable_sort(groups.begin(), groups.end(), [](const auto& a, const auto& b) {
    return a->fibers.size() > b->fibers.size();
  });
}

template <class F>
void for_each_awaited(fiber_report& r, F f) {
  for (reported_task& t : r.tasks)
    f(t.awaited);
  for (const auto& g : r.groups) {
    for (reported_fiber& one : g->fibers)
      f(one.awaited);
  }
}

class collector {
 public:
  collector(const scheduler* running_on, bool with_frames)
      : running_on_(running_on), with_frames_(with_frames) {}

  // Counts them first: of each kind some are looked at, however many others there are.
  void count_all(const dump_extension* objects) {
    if (running_on_ != nullptr) return;
    report_.table = std::make_unique<fiber_table>();
    report_.table->add_all();
    if (objects == nullptr) return;
    dump_writer out(report_.table_text);
    write_table(out, *report_.table, objects);
    out.flush();
  }

  void visit(const stack& where, const waiting_fiber* found = nullptr) {
    fiber_view s;
    if (!take_view(where, s) || (found != nullptr && !found->is(s))) return;
    const bool runs = s.state == fiber_state::running;
    if (running_on_ != nullptr && (s.sched != running_on_ || !runs)) return;
    ++report_.fibers;
    if (report_.collected == fibers_shown_at_most || !is_in_share(where, s)) return;
    reported_fiber f;
    f.shown = s;
    f.found = found;
    read(where, f);
    if (found != nullptr && (f.shown.moved_on || !found->is(f.shown))) return;
    name_holders(f.awaited);
    ++report_.collected;
    group_of_read().fibers.push_back(f);
  }

  void visit_tasks(const scheduler& s) {
    if (s.settings().is_observer) return;
    const std::size_t room = fibers_shown_at_most - report_.tasks.size();
    report_.all_tasks += walk_tasks(s, room, [&](runtime_part& part, shown_tasks some) {
                           read_tasks(part, some, s.number());
                         }).all;
  }

  // Tells the numbers of tasks that are joined. Caller: has visited all.
  void name_joined() {
    std::unordered_map<const void*, std::uint64_t> numbers;
    for (const reported_task& t : report_.tasks)
      numbers[t.shown.task] = t.shown.id;
    for_each_awaited(report_, [&numbers](awaited_object& o) {
      for (std::size_t i = 0; i < o.case_count; ++i) {
        const auto found = numbers.find(o.cases[i].joined);
        if (found == numbers.end()) continue;
        o.cases[i].type = shown_object::kind::one_task;
        o.cases[i].who.id = found->second;
      }
    });
  }

  // Caller: has visited all, and holds a slab_hold.
  void find_living_users() {
    living_users by_id;
    for (auto& [_, users] : report_.users) {
      for (std::size_t i = 0; i < users.count; ++i)
        by_id.emplace(users.users[i].who.id, &users);
    }
    if (by_id.empty()) return;
    for_each_stack_in_use(
        [](const stack& where, void* argument) noexcept {
          const auto& all = *static_cast<const living_users*>(argument);
          fiber_view v;
          if (!take_view(where, v)) return;
          const auto [begin, end] = all.equal_range(v.id);
          for (auto at = begin; at != end; ++at)
            at->second->note_alive(v);
        },
        &by_id);
  }

  fiber_report take() {
    sort_by_size(report_.groups);
    report_.may_have_ended_calls = room_.get().may_have_ended_calls;
    return std::move(report_);
  }

 private:
  using living_users = std::unordered_multimap<std::uint64_t, shown_users*>;

  bool is_in_share(const stack& where, const fiber_view& v) noexcept {
    if (report_.table == nullptr) return true;
    fiber_row* const row = report_.table->find_or_add(v, where);
    return row != nullptr && row->lines++ < report_.table->share_of(fibers_shown_at_most);
  }

  // Reads the frames and the object of the wait, of the moment of the snapshot. A fiber
  // that moves on meanwhile is looked at again, a few times; then only who it is is told.
  // The stack of a running thread was read in one moment, which is shown even if it has
  // passed.
  void read(const stack& where, reported_fiber& f) {
    for (int tries = 0; tries < 3; ++tries) {
      frames_.count = 0;
      frames_.result = frames_result::not_wanted;
      called_.count = 0;
      called_.result = frames_result::not_wanted;
      f.awaited = {};
      if (with_frames_) read_frames_of(where, f.shown);
      const bool is_one_moment = f.shown.state == fiber_state::running || read_wait(where, f);
      const bool is_other_stack = frames_.result == frames_result::other_stack;
      const bool has_moved = frames_.result == frames_result::moved_on;
      if (is_one_moment && !is_other_stack && !has_moved) return;
      fiber_view again;
      if (!take_view(where, again) || again.id != f.shown.id) break;
      if (is_other_stack && is_in_run_of(f.shown, again)) return;
      f.shown = again;
    }
    f.awaited = {};
    f.shown.moved_on = true;
    frames_.count = 0;
    frames_.result = frames_result::moved_on;
    called_.count = 0;
    called_.result = frames_result::not_wanted;
  }

  // `earlier` runs.
  static bool is_in_run_of(const fiber_view& earlier, const fiber_view& s) noexcept {
    return s.state == fiber_state::running && s.runs == earlier.runs;
  }

  // Reads the frames of the function on a side pool, if the fiber waits for one that
  // runs. False if it may be another one's.
  bool read_called(const stack& where, reported_fiber& f) {
    const int thread = f.awaited.thread;
    if (!with_frames_ || thread <= 0) return true;
    if (!read_called_frames(where, f.shown, thread, room_.get(), called_)) return false;
    awaited_object now;
    const bool goes_on = read_awaited(where, f.shown, now) && now.thread == thread;
    f.shown.left_since = called_.count != 0 && !goes_on;
    return goes_on || f.shown.left_since;
  }

  void read_frames_of(const stack& where, fiber_view& s) {
    if (s.state == fiber_state::running) {
      read_running_frames(where, s, room_.get(), frames_);
      fiber_view now;
      const bool goes_on = take_view(where, now) && now.id == s.id && is_in_run_of(s, now);
      s.left_since = frames_.count != 0 && !goes_on;
    } else {
      read_parked_frames(where, s, room_.get(), frames_);
    }
  }

  // Many may wait for one holder, and finding it takes a walk over all fibers.
  void name_holders(awaited_object& awaited) {
    for (std::size_t i = 0; i < awaited.case_count; ++i) {
      shown_object& o = awaited.cases[i];
      if (o.held_by != shown_object::holder::a_number) continue;
      const auto [found, is_new] = holders_.try_emplace(o.holder_noted, o);
      if (is_new) find_holder(found->second);
      o.held_by = found->second.held_by;
      o.who = found->second.who;
    }
  }

  // Reads the objects of their waits. Copying them once more tells whose wait has lasted.
  void read_tasks(runtime_part& part, shown_tasks some, std::uint64_t runtime) {
    const std::size_t before = report_.tasks.size();
    for (std::size_t i = 0; i < some.copied; ++i) {
      reported_task& t = report_.tasks.emplace_back();
      t.shown = some.to[i];
      t.runtime = runtime;
      read_awaited(t.shown, t.awaited);
    }
    part.copy(some);
    for (std::size_t i = before, j = 0; i < report_.tasks.size(); ++i) {
      reported_task& t = report_.tasks[i];
      const std::size_t at = j;
      while (j < some.copied && !is_same_wait(some.to[j], t.shown))
        ++j;
      if (j == some.copied) {
        t.awaited = {};
        j = at;
      }
      name_holders(t.awaited);
      read_users(t.awaited);
    }
  }

  static bool is_same_wait(const fiber_view& a, const fiber_view& b) noexcept {
    return a.id == b.id && a.state == b.state && a.runs == b.runs && a.reason == b.reason &&
           a.object == b.object;
  }

  // False if the fiber has moved on.
  bool read_wait(const stack& where, reported_fiber& f) {
    if (!read_awaited(where, f.shown, f.awaited)) return false;
    read_users(f.awaited);
    return read_called(where, f);
  }

  // Reads each object's but once.
  void read_users(const awaited_object& awaited) {
    for (std::size_t i = 0; i < awaited.case_count; ++i) {
      const shown_object& o = awaited.cases[i];
      if (o.users == nullptr || report_.users_of(o) != nullptr) continue;
      shown_users users;
      read_object_users(o, users);  // none are noted as well
      report_.users.emplace(std::pair{o.users, o.reason}, users);
    }
  }

  // The group of those with the frames that have just been read.
  fiber_group& group_of_read() {
    auto& bucket = by_hash_[hash_of(frames_) * 3 + hash_of(called_)];
    for (fiber_group* const g : bucket) {
      if (g->frames == frames_ && g->called == called_) return *g;
    }
    report_.groups.push_back(std::make_unique<fiber_group>());
    fiber_group& fresh = *report_.groups.back();
    fresh.frames = frames_;
    fresh.called = called_;
    bucket.push_back(&fresh);
    return fresh;
  }

  const scheduler* const running_on_;
  const bool with_frames_;
  const own_frames_room room_;
  frame_list frames_;
  frame_list called_;
  fiber_report report_;
  std::unordered_map<std::size_t, std::vector<fiber_group*>> by_hash_;
  std::map<std::uint64_t, shown_object> holders_;  // by holder_noted
};

}  // namespace

namespace {

// The places that are not the library's, or all if there are no others, with what else
// tells groups apart.
std::vector<std::uintptr_t> own_places(const fiber_group& g, symbol_reader& names) {
  std::vector<std::uintptr_t> all;
  std::vector<std::uintptr_t> own;
  for (const frame_list* const l : {&g.called, &g.frames}) {
    for (unsigned i = 0; i < l->count; ++i) {
      all.push_back(l->places[i]);
      if (!is_library(names.at(l->places[i]))) own.push_back(l->places[i]);
    }
    all.push_back(static_cast<std::uintptr_t>(l->result));
    if (!own.empty()) own.push_back(all.back());
  }
  return own.empty() ? all : own;
}

}  // namespace

void join_groups(fiber_report& r, symbol_reader& names) {
  std::map<std::vector<std::uintptr_t>, fiber_group*> by_places;
  std::vector<std::unique_ptr<fiber_group>> joined;
  for (std::unique_ptr<fiber_group>& g : r.groups) {
    const auto [at, is_new] = by_places.try_emplace(own_places(*g, names), g.get());
    if (is_new) {
      joined.push_back(std::move(g));
    } else {
      std::move(g->fibers.begin(), g->fibers.end(), std::back_inserter(at->second->fibers));
    }
  }
  sort_by_size(joined);
  r.groups = std::move(joined);
}

fiber_report collect_fibers(const scheduler* running_on,
                            bool with_frames,
                            const dump_extension* objects) {
  collector all(running_on, with_frames);
  std::exception_ptr error;

  struct visiting {
    collector& all;
    std::exception_ptr& error;
  } argument{all, error};

  {
    const handler_scope inside;
    const slab_hold hold;
    all.count_all(objects);
    for_each_stack_in_use(
        [](const stack& where, void* a) noexcept {
          auto& v = *static_cast<visiting*>(a);
          if (v.error != nullptr) return;
          try {
            v.all.visit(where);
          } catch (...) {
            v.error = std::current_exception();
          }
        },
        &argument);
    for_each_running([&](const scheduler& s, runtime_slot&) {
      if (running_on != nullptr || error != nullptr) return;
      try {
        all.visit_tasks(s);
      } catch (...) {
        error = std::current_exception();
      }
    });
    try {
      all.find_living_users();
    } catch (...) {
      error = std::current_exception();
    }
  }
  if (error != nullptr) std::rethrow_exception(error);
  all.name_joined();
  fiber_report r = all.take();
  number_objects({&r});
  return r;
}

fiber_report collect_these(std::span<const stack> some, bool with_frames) {
  collector all(nullptr, with_frames);
  for (const stack& where : some)
    all.visit(where);
  all.find_living_users();
  return all.take();
}

fiber_report collect_these(std::span<const waiting_fiber> some) {
  collector all(nullptr, true);
  for (const waiting_fiber& f : some)
    all.visit(f.where, &f);
  all.find_living_users();
  return all.take();
}

void number_objects(std::initializer_list<fiber_report*> reports) {
  object_numbers numbers;
  for (fiber_report* const r : reports)
    for_each_awaited(*r, [&numbers](awaited_object& o) { numbers.add(o); });
  numbers.finish();
  for (fiber_report* const r : reports)
    for_each_awaited(*r, [&numbers](awaited_object& o) { numbers.apply(o); });
}

}  // namespace VIGIL_DETAIL
