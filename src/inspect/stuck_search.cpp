#include "inspect/stuck_search.hpp"

#include "core/base/atomic.hpp"
#include "core/machine/slab_table.hpp"
#include "core/sched/run_core.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/worker.hpp"
#include "core/sync/holder_word.hpp"
#include "inspect/stopped_threads.hpp"

#include <algorithm>

namespace VIGIL_DETAIL {

void stuck_search::add_runtimes() {
  for_each_running([this](const scheduler& s, runtime_slot&) {
    const cancel_node* const root = run_of(s).end.root.load();
    const bool goes_on = s.state.phase() == run_phase::running;
    runtimes_.push_back({&s, root, goes_on, s.settings().is_observer});
    // These have pointers to fibers, and let nobody act on them.
    scan_.leave_out(memory_range::of(&s.fibers, sizeof s.fibers));
    for (const auto& w : s.workers())
      scan_.leave_out(memory_range::of(&*w, sizeof *w));
    if (root == nullptr) return;
    const auto& top = static_cast<const cancel_context&>(*root);
    scan_.leave_out(memory_range::of(&top, sizeof top));
    const bool all = object_view::for_each_below(*root, [this](const cancel_context& c) {
      if (!memory_.is_scarce()) objects_.add(c);
    });
    is_whole_ = is_whole_ && all;
  });
}

const stuck_search::runtime* stuck_search::runtime_of(const fiber& f) const noexcept {
  for (const runtime& r : runtimes_) {
    if (r.sched == f.sched) return &r;
  }
  return nullptr;
}

bool stuck_search::may_be_stuck(const fiber& f) const noexcept {
  if (f.state.load() != fiber_state::parked || f.park_state.load() != park_word::parked)
    return false;
  // Somebody has ended the wait, and is about to say so.
  if (f.own_waiter.outcome() != outcome::open) return false;
  if (f.present.until.load() != never || !is_for_others(f.present.reason.load())) return false;
  if (f.stop_flag.load() && !is_for_lock(f.present.reason.load())) return false;
  const runtime* const r = runtime_of(f);
  return r != nullptr && r->goes_on && !r->is_observer && f.role != fiber_role::timer;
}

void stuck_search::add_fibers() {
  for_each_stack_in_use(
      [](const stack& where, void* argument) noexcept {
        auto& self = *static_cast<stuck_search*>(argument);
        if (self.memory_.is_scarce()) {
          self.is_whole_ = false;
          return;
        }
        entry e;
        e.where = where;
        e.block = control_block(where);
        if (e.block->magic.load() == fiber::live_magic) {
          const fiber& f = *e.block;
          e.id = f.identity.id;
          e.runs = f.runs.load();
          e.is_candidate = self.may_be_stuck(f);
          e.is_live = !e.is_candidate;
          e.is_for_lock = detail::is_for_lock(f.present.reason.load());
          const runtime* const r = self.runtime_of(f);
          if (r != nullptr) e.runtime = r->sched->number();
          e.is_observers = r != nullptr && r->is_observer;
          e.has_handle = f.role != fiber_role::main && f.life.handle.load() == handle_state::held;
        }
        self.entries_.push_back(e);
      },
      this);
  std::sort(entries_.begin(), entries_.end(), [](const entry& a, const entry& b) {
    return a.where.bottom < b.where.bottom;
  });
}

void stuck_search::add_ways() {
  for (entry& e : entries_) {
    if (!e.is_candidate) continue;
    e.first_way = ways_.size();
    e.knows_ways = !memory_.is_scarce() &&
                   read_wait_ways(*e.block, runtime_of(*e.block)->root, objects_, ways_);
    e.last_way = ways_.size();
    // Main waits so for the shutdown, in a server.
    const bool has_none = e.knows_ways && e.first_way == e.last_way;
    if (has_none && e.block->role == fiber_role::main) {
      e.is_candidate = false;
      e.is_live = true;
    }
  }
}

// The part of a stack that has frames, and for an ended fiber its result.
memory_range stuck_search::used_part(const entry& e) const noexcept {
  const auto bottom = reinterpret_cast<std::uintptr_t>(e.where.bottom);
  const auto end = reinterpret_cast<std::uintptr_t>(e.block);
  std::uintptr_t from = bottom;
  if (e.block->magic.load() == fiber::live_magic) {
    const fiber_state state = e.block->state.load();
    if (state == fiber_state::ended) {
      from = reinterpret_cast<std::uintptr_t>(e.block->body);
    } else if (state == fiber_state::running) {
      const bool is_caller = caller_from_ >= bottom && caller_from_ < end;
      from = is_caller ? caller_from_ : stopped_->used_from(bottom, end);
    } else {
      from = reinterpret_cast<std::uintptr_t>(e.block->side.resumes_at());
    }
  }
  return {from >= bottom && from < end ? from : bottom, end};
}

void stuck_search::add_targets() {
  for (std::size_t i = 0; i < objects_.all().size(); ++i) {
    const known_object& o = objects_.all()[i];
    targets_.add(o.block, i);
    scan_.leave_out(o.block);
    if (o.ring.begin != o.ring.end) scan_.leave_out(o.ring);
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const entry& e = entries_[i];
    if (!e.is_candidate) continue;
    memory_range used = used_part(e);
    ++used.begin;  // the saved stack pointer itself is the library's
    targets_.add(used, stack_number(i));
    if (e.has_handle) targets_.add(memory_range::of(e.block, 1), block_number(i));
  }
  targets_.sort();
  for (const memory_range& r : objects_.links())
    links_.add(r, 0);
  links_.sort();
  const std::size_t all = stack_number(entries_.size());
  is_visible_.resize(all);
  seen_by_.resize(all);
}

void stuck_search::make_visible(std::size_t number, const entry* by) {
  if (is_visible_[number]) return;
  is_visible_[number] = true;
  seen_by_[number] = by;
  waiting_.push_back(number);
}

void stuck_search::scan_used(const entry& e) {
  source_ = &e;
  scan_.scan(used_part(e));
  source_ = nullptr;
}

// A visible stack may be that of a fiber that cannot go on itself.
const stuck_search::entry* stuck_search::first_live(const entry* by) const noexcept {
  while (by != nullptr && !by->is_live)
    by = seen_by_[stack_number(static_cast<std::size_t>(by - entries_.data()))];
  return by;
}

void stuck_search::scan_roots() {
  scan_.leave_out(memory_.range());
  for_each_slab(
      [](const std::byte* base, std::size_t bytes, void* argument) noexcept {
        static_cast<stuck_search*>(argument)->scan_.leave_out(memory_range::of(base, bytes));
      },
      this);
  is_whole_ = scan_.scan_process() && is_whole_;
  for (const entry& e : entries_) {
    if (!e.is_candidate) scan_used(e);
  }
}

void stuck_search::scan_visible(std::size_t number) {
  if (number >= objects_.all().size()) {
    const std::size_t n = number - objects_.all().size();
    const entry& e = entries_[n / 2];
    if (n % 2 == 0) scan_used(e);
    return;
  }
  const known_object& o = objects_.all()[number];
  scan_.scan(o.block);
  scan_.scan(o.ring);
}

const stuck_search::entry* stuck_search::holder_of(const wait_way& w) const noexcept {
  const entry* found = nullptr;
  for (const entry& e : entries_) {
    if (e.id != w.holder || e.is_observers) continue;
    if (w.holder_noted != 0) {
      const runtime* const r = runtime_of(*e.block);
      if (r == nullptr || !holder_word::is_of(w.holder_noted, r->sched->number())) continue;
    }
    if (found != nullptr) return nullptr;  // numbers are each runtime's own
    found = &e;
  }
  return found;
}

const stuck_search::entry* stuck_search::with_stack_at(const void* address) const noexcept {
  const auto* const at = static_cast<const std::byte*>(address);
  auto after = std::upper_bound(
      entries_.begin(), entries_.end(), at, [](const std::byte* a, const entry& e) {
        return a < e.where.bottom;
      });
  if (after == entries_.begin()) return nullptr;
  --after;
  return at < after->where.top ? &*after : nullptr;
}

bool stuck_search::is_open(const wait_way& w, entry& of) const noexcept {
  const auto say = [&of](open_way way, const entry* by) {
    of.open = way;
    of.seen_by = by;
    return true;
  };
  switch (w.type) {
    case wait_way::kind::object:
      return is_visible_[w.number] && say(open_way::held_thing, seen_by_[w.number]);
    case wait_way::kind::end_of: {
      const entry* const e = with_stack_at(w.address);
      if (e != nullptr && e->block == w.address && !e->is_live) return false;
      return say(open_way::other_fiber, nullptr);
    }
    case wait_way::kind::place: {
      if (w.holder != 0) {
        const entry* const holder = holder_of(w);
        if (holder != nullptr && !holder->is_live) return false;
      }
      const entry* const e = with_stack_at(w.address);
      if (e == nullptr || !e->is_candidate) return say(open_way::held_thing, e);
      const std::size_t number = stack_number(static_cast<std::size_t>(e - entries_.data()));
      return is_visible_[number] && say(open_way::held_thing, seen_by_[number]);
    }
  }
  return true;
}

// SF3.
bool stuck_search::look_for_open_way(std::size_t i) noexcept {
  entry& e = entries_[i];
  if (!e.knows_ways) {
    e.open = open_way::not_known;
    return true;
  }
  for (std::size_t w = e.first_way; w < e.last_way; ++w) {
    if (is_open(ways_[w], e)) return true;
  }
  if (e.is_for_lock) return false;  // a stop does not end it
  if (e.has_handle && is_visible_[block_number(i)]) {
    e.open = open_way::held_handle;
    e.seen_by = seen_by_[block_number(i)];
    return true;
  }
  if (is_visible_[stack_number(i)]) {
    e.open = open_way::held_stack;
    e.seen_by = seen_by_[stack_number(i)];
    return true;
  }
  return false;
}

void stuck_search::settle() {
  for (bool again = true; again;) {
    again = false;
    while (!waiting_.empty()) {
      const std::size_t number = waiting_.back();
      waiting_.pop_back();
      scan_visible(number);
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
      entry& e = entries_[i];
      if (e.is_live || !look_for_open_way(i)) continue;
      e.seen_by = first_live(e.seen_by);
      e.is_live = true;
      make_visible(stack_number(i), &e);  // SF4
      again = true;
    }
  }
}

bool stuck_search::run(const stopped_threads& stopped) {
  stopped_ = &stopped;
  add_runtimes();
  add_fibers();
  add_ways();
  if (memory_.is_scarce() || candidates() == 0) return is_whole_ && !memory_.is_scarce();
  add_targets();
  scan_roots();
  settle();
  return is_whole_;
}

}  // namespace VIGIL_DETAIL
