#include "core/timer/heap_keeper.hpp"

#include <algorithm>
#include <new>

namespace VIGIL_DETAIL {
namespace {

class no_room_for_timer : public std::bad_alloc {
 public:
  const char* what() const noexcept override {
    return "vigil: no memory for another pending timer; nothing was armed. Stop some, or raise the "
           "limit on memory (ulimit -v, RLIMIT_DATA, cgroup memory.max)";
  }
};

enum class entry_state : std::uint8_t { dead, in_force, moved };

// Says whether an entry still counts. An entry that speaks for an idle timer, for a
// deadline later than its key or for an earlier arming is withdrawn first, and then
// `when` is looked at again (RT1); it may come out with a later key or another tie.
entry_state validate(heap_entry& e) noexcept {
  runtime_timer& t = *e.timer;
  if (t.filed.load() != e.key) return entry_state::dead;
  nanos deadline = t.when.load();
  // ordering: the exchange of `when`, which was seen, has published the tie; so below.
  if (deadline > 0 && t.key_for(deadline) <= e.key && e.tie == t.tie.load(order::relaxed))
    return entry_state::in_force;
  nanos expected = e.key;
  if (!t.filed.compare_exchange_strong(expected, runtime_timer::nothing)) return entry_state::dead;
  deadline = t.when.load();
  if (deadline <= 0) return entry_state::dead;
  const nanos key = t.key_for(deadline);
  expected = runtime_timer::nothing;
  if (!t.filed.compare_exchange_strong(expected, key)) return entry_state::dead;
  const std::uint32_t tie = t.tie.load(order::relaxed);  // ordering: as above
  const bool has_moved = key != e.key || tie != e.tie;
  e.key = key;
  e.tie = tie;
  e.slack_us = t.slack_us.load(order::relaxed);  // ordering: as in entry_for()
  return has_moved ? entry_state::moved : entry_state::in_force;
}

void attach(worker& w, intake& in) noexcept {
  w.own_intake = &in;
  if (!w.counters.log.is_on()) return;
  in.log = &w.counters.log;
  in.notes_armings = true;
}

}  // namespace

heap_keeper::heap_keeper(scheduler& sched, const timer_owner& owner)
    : clock_(sched.clock),
      board_(sched.board),
      owner_(owner),
      as_armed_(sched.settings().equal_deadlines == timer_order::as_armed),
      has_ties_(as_armed_ || clock_.is_virtual()),
      tie_seed_(sched.settings().seed ^ 0x7469'6573),
      intakes_(sched.workers().size() + 1) {
  for (intake& in : intakes_)
    in.notes_armings = has_ties_;
  for (std::size_t i = 0; i < sched.workers().size(); ++i)
    attach(*sched.workers()[i], intakes_[i]);
}

// --- arming

// Not inlined: as note_arming(). The seed draws 31 bits, so that the heap can compare any
// two ties (timer_heap.hpp).
[[gnu::noinline]] void heap_keeper::draw_tie(runtime_timer& t) noexcept {
  if (!has_ties_) return;
  // ordering: each number is drawn once, and if one arming happens before another, it
  // draws the lower number.
  const std::uint64_t n = armings_.fetch_add(1, order::relaxed);
  const std::uint64_t tie = as_armed_ ? n : random::nth(tie_seed_, n) >> 33;
  // ordering: published by the exchange of `when`.
  t.tie.store(static_cast<std::uint32_t>(tie), order::relaxed);
}

heap_entry heap_keeper::entry_for(runtime_timer& t, nanos key) noexcept {
  // ordering: see key_for(); a slack that changes in between makes the due run
  // look at the timer a little early or late, never fire it early.
  const std::uint32_t slack = t.slack_us.load(order::relaxed);
  // ordering: the caller's own tie, or that of an arming at the same time.
  return {key, t.tie.load(order::relaxed), slack, &t};
}

void heap_keeper::lower_next_deadline(nanos key, bool parking) noexcept {
  if (key >= runtime_timer::latest) return;
  nanos seen = board_.next_deadline.load();
  while (key < seen) {
    if (board_.next_deadline.compare_exchange_weak(seen, key)) {
      board_.deadline_lowered(key, parking);
      return;
    }
  }
}

bool heap_keeper::arm(intake& in, runtime_timer& t, nanos deadline, bool parking) {
  if (in.allowance == 0) make_room(in);
  deadline = runtime_timer::clamp_deadline(deadline);
  const bool is_noted = in.notes_armings;
  if (is_noted) [[unlikely]]
    draw_tie(t);
  const nanos before = t.when.exchange(deadline);
  if (is_noted) [[unlikely]]
    note_arming(in, before, deadline);
  nanos key = 0;
  if (t.file(deadline, key)) {
    {
      const lock_guard guard(in.lock);
      // ordering: the owner is the only one that adds; drains hold the lock.
      const std::uint32_t n = in.size.load(order::relaxed);
      in.entries[n] = entry_for(t, key);
      in.size.store(n + 1);  // HK1
    }
    --in.allowance;
    lower_next_deadline(key, parking);
  }
  const bool was_pending = before > 0;
  in.count(was_pending ? timer_event::reset : timer_event::armed).add();
  return was_pending;
}

// Not inlined: it is rare, and arming is not.
[[gnu::noinline]] void heap_keeper::note_arming(const intake& in,
                                                nanos before,
                                                nanos deadline) noexcept {
  if (recorder_is_built && in.log != nullptr)
    in.record(before > 0 ? timer_event::reset : timer_event::armed, deadline);
}

// Sets heap slots aside for a whole intake (HK3), after merging what is in it.
void heap_keeper::make_room(intake& in) {
  const lock_guard guard(lock_);
  if (in.size.load() != 0) merge(in);
  // More than half of the entries are dead then, so looking at twice as many as can have
  // come in since the last time keeps the number of dead ones where it is.
  if (has_too_many_dead()) sweep(2 * intake::capacity);
  const auto reserve = [this]() VIGIL_REQUIRES(lock_) {
    return heap_.reserve(heap_.size() + taken_ + granted_ + intake::capacity);
  };
  if (!reserve()) {
    // Only the room of dead entries is left: sweep it out, however long that takes.
    sweep(2 * heap_.size());
    if (!reserve()) throw no_room_for_timer();
  }
  size_.store(heap_.size(), order::relaxed);  // ordering: a statistic
  granted_ += intake::capacity;
  in.allowance = intake::capacity;
}

// The events counted so far, by all threads.
std::uint64_t heap_keeper::counted(timer_event event) const noexcept {
  std::uint64_t n = owner_.counted_outside(event);
  for (const intake& in : intakes_)
    n += in.counted(event);
  return n;
}

std::uint64_t heap_keeper::pending() const noexcept {
  // In this order: what is armed and gone meanwhile counts as pending, not the reverse.
  const std::uint64_t gone = counted(timer_event::stopped) + counted(timer_event::fired);
  const std::uint64_t armed = counted(timer_event::armed);
  // A timer armed on one worker and stopped on another may be counted as stopped first.
  return armed < gone ? 0 : armed - gone;
}

// --- upkeep

// Merges a whole intake into the heap, dropping the entries that died there.
void heap_keeper::merge(intake& in) noexcept {
  heap_entry fresh[intake::capacity];
  std::uint32_t n = 0;
  {
    const lock_guard guard(in.lock);
    n = in.size.load(order::relaxed);  // ordering: under the lock
    std::copy_n(in.entries, n, fresh);
    // Pairs with the loads of publish() and drain(): one that reads 0 sees all taken.
    in.size.store(0, order::release);
  }
  granted_ -= n;
  for (std::uint32_t i = 0; i < n; ++i) {
    if (validate(fresh[i]) == entry_state::dead) {
      release_record(*fresh[i].timer);
    } else {
      heap_.push(fresh[i]);
    }
  }
}

void heap_keeper::drain() noexcept {
  for (intake& in : intakes_) {
    if (in.size.load() != 0) merge(in);
  }
}

// The only place where next_deadline is raised (HK1), and never over a lowering whose
// entry has not been taken in here: the compare-exchange fails then.
void heap_keeper::publish() noexcept {
  for (;;) {
    nanos seen = board_.next_deadline.load();
    drain();
    nanos next = never;
    if (!heap_.empty() && heap_.top().key < runtime_timer::latest) next = heap_.top().key;
    size_.store(heap_.size(), order::relaxed);  // ordering: a statistic
    if (next != seen && !board_.next_deadline.compare_exchange_strong(seen, next)) continue;
    bool more = false;
    for (const intake& in : intakes_)
      more = more || in.size.load() != 0;
    if (!more) return;
  }
}

// Otherwise the entry is dropped, or moved to where it belongs. One that climbs past a
// sweep is met in its next round.
bool heap_keeper::is_in_force(std::size_t index) noexcept {
  heap_entry e = heap_[index];
  const entry_state found = validate(e);
  if (found == entry_state::in_force) return true;
  heap_.remove(index);
  if (found == entry_state::moved) {
    heap_.push(e);
  } else {
    release_record(*e.timer);
  }
  return false;
}

// Looks for dead entries among a few.
void heap_keeper::sweep(std::size_t budget) noexcept {
  while (budget-- > 0 && !heap_.empty()) {
    if (sweep_at_ >= heap_.size()) sweep_at_ = 0;
    if (is_in_force(sweep_at_)) ++sweep_at_;
  }
}

bool heap_keeper::has_too_many_dead() const noexcept {
  constexpr std::size_t few = 1024;
  return heap_.size() > few && heap_.size() > 2 * pending() + few;
}

// Does enough that no worker sleeps to a dead deadline and that dead entries stay
// bounded, in slices, so that no thread waits long for the heap.
bool heap_keeper::tidy() noexcept {
  std::size_t budget = slice;
  const lock_guard guard(lock_);
  drain();
  bool clean = heap_.empty();
  while (!clean && (budget-- > 0 || clock_.is_virtual())) {
    if (is_in_force(0)) {
      heap_.top().timer->prefetch_waiter();
      clean = true;
    } else {
      clean = heap_.empty();
    }
  }
  if (has_too_many_dead()) {
    sweep(slice);
    clean = clean && !has_too_many_dead();
  }
  publish();
  return clean;
}

nanos heap_keeper::second_deadline() noexcept {
  const lock_guard guard(lock_);
  const nanos second = heap_.second_key();
  return second >= runtime_timer::latest ? never : second;
}

// Changes nothing, and looks only at entries whose key has come: those below a later
// entry are later.
bool heap_keeper::anything_due(nanos now) noexcept {
  const auto is_due = [now](const heap_entry& e) {
    const nanos deadline = e.timer->when.load();
    // The key is later than the deadline by the timer's slack: until then it may wait.
    return e.key <= now && e.timer->filed.load() == e.key && deadline > 0 && deadline <= now;
  };
  const lock_guard guard(lock_);
  for (intake& in : intakes_) {
    const lock_guard inner(in.lock);
    const std::uint32_t n = in.size.load(order::relaxed);  // ordering: under the lock
    for (std::uint32_t i = 0; i < n; ++i) {
      if (is_due(in.entries[i])) return true;
    }
  }
  std::size_t i = 0;
  for (;;) {
    if (i < heap_.size() && heap_[i].key <= now) {
      if (is_due(heap_[i])) return true;
      i = 2 * i + 1;
      continue;
    }
    while (i != 0 && i % 2 == 0)  // a right child, or the root
      i = (i - 1) / 2;
    if (i == 0) return false;
    ++i;
  }
}

// --- taking and putting back

std::size_t heap_keeper::take_due(nanos now,
                                  heap_entry* out,
                                  std::size_t most,
                                  std::size_t given_up) noexcept {
  const lock_guard guard(lock_);
  taken_ -= given_up;
  drain();
  // A key is `when` plus slack. Popping goes on while the top's own `when` has come, so
  // slack lets the entries next in order go before their keys, and nothing deeper.
  std::size_t n = 0;
  if (!as_armed_) {
    n = heap_.pop_until(now, out, most);
  } else {
    // An entry that has missed an arming goes to its place before others are taken.
    for (std::size_t looks = 0; looks < slice && n < most; ++looks) {
      if (heap_.empty() || heap_.top().when() > now) break;
      if (is_in_force(0)) out[n++] = heap_.pop();
    }
  }
  taken_ += n;
  publish();
  return n;
}

void heap_keeper::put_back(const heap_entry* entries, std::size_t n) noexcept {
  const lock_guard guard(lock_);
  for (std::size_t i = 0; i < n; ++i) {
    heap_.push(entries[i]);
    lower_next_deadline(entries[i].key, false);
  }
  taken_ -= n;
}

void heap_keeper::give_up_slot() noexcept {
  const lock_guard guard(lock_);
  --taken_;
}

void heap_keeper::refile_periodic(timer_record& t) noexcept {
  t.filed.store(runtime_timer::nothing);
  const nanos deadline = t.when.load();
  if (deadline > 0) {
    const nanos key = t.key_for(deadline);
    nanos expected = runtime_timer::nothing;
    if (t.filed.compare_exchange_strong(expected, key)) {
      const lock_guard guard(lock_);
      heap_.push(entry_for(t, key));
      --taken_;
      // As if parking: the runner's turn ends soon, and the runner covers the deadline
      // before more user code runs.
      lower_next_deadline(key, true);
      return;
    }
  }
  give_up_slot();
  release_record(t);
}

std::size_t heap_keeper::take_any(heap_entry* out, std::size_t most) noexcept {
  const lock_guard guard(lock_);
  drain();
  const std::size_t n = heap_.pop_until(never, out, most);
  if (n == 0) publish();
  return n;
}

void heap_keeper::add_stats(runtime_stats& s) const noexcept {
  s.timers_armed += counted(timer_event::armed);
  s.timers_reset += counted(timer_event::reset);
  s.timers_stopped += counted(timer_event::stopped);
  s.timers_fired += counted(timer_event::fired);
  s.timers_pending = pending();
  s.heap_entries += size_.load(order::relaxed);  // ordering: a statistic
  for (const intake& in : intakes_)
    s.heap_entries += in.size.load(order::relaxed);  // ordering: as above
  s.dead_entries = s.heap_entries > s.timers_pending ? s.heap_entries - s.timers_pending : 0;
}

}  // namespace VIGIL_DETAIL
