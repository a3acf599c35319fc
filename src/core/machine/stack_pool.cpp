#include "core/machine/stack_pool.hpp"

#include "core/base/assert.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/machine/slab_memory.hpp"

#include <algorithm>
#include <cerrno>
#include <new>

#include <sys/mman.h>

namespace VIGIL_DETAIL {

constinit stack_pool process_stacks;

namespace {

constexpr std::uint64_t bit(unsigned n) noexcept {
  return std::uint64_t{1} << n;
}

unsigned lowest_bit(std::uint64_t word) noexcept {
  return static_cast<unsigned>(std::countr_zero(word));
}

unsigned highest_bit(std::uint64_t word) noexcept {
  return 63u - static_cast<unsigned>(std::countl_zero(word));
}

// As many as take about 16 MiB, at most a mask's worth and at least one.
unsigned places_per_slab(unsigned size_class) noexcept {
  constexpr std::size_t aim = std::size_t{16} << 20;
  return static_cast<unsigned>(
      std::clamp<std::size_t>(aim / stride_of(size_class), 1, slab_places));
}

chunk* publish_chunk(unsigned n) noexcept {
  std::byte* const memory = map_memory(sizeof(chunk));
  if (memory == nullptr) return nullptr;
  auto* const c = new (memory) chunk;
  for (unsigned i = 0; i < chunk_slabs; ++i)
    c->slabs[i].index = n * chunk_slabs + i;
  // ordering: the count below publishes the pointer.
  slabs.chunks[n].store(c, std::memory_order_relaxed);
  // Pairs with the acquire in any_mapped_slab().
  slabs.chunk_count.store(n + 1, std::memory_order_release);
  return c;
}

void forget_valgrind_ids(slab& s) noexcept {
#if VIGIL_VALGRIND
  if (s.valgrind_ids == nullptr) return;
  for (unsigned place = 0; place < s.count; ++place) {
    if ((s.guarded & bit(place)) != 0) VALGRIND_STACK_DEREGISTER(s.valgrind_ids[place]);
  }
#endif
  delete[] s.valgrind_ids;
  s.valgrind_ids = nullptr;
}

}  // namespace

void chunk_set::insert(unsigned n) noexcept {
  words_[n / 64] |= bit(n % 64);
  summary_ |= bit(n / 64);
}

void chunk_set::erase(unsigned n) noexcept {
  words_[n / 64] &= ~bit(n % 64);
  if (words_[n / 64] == 0) summary_ &= ~bit(n / 64);
}

unsigned chunk_set::lowest() const noexcept {
  const unsigned word = lowest_bit(summary_);
  return word * 64 + lowest_bit(words_[word]);
}

unsigned chunk_set::highest() const noexcept {
  const unsigned word = highest_bit(summary_);
  return word * 64 + highest_bit(words_[word]);
}

stack stack_pool::take(unsigned size_class, stack_failure& failure) noexcept {
  const std::lock_guard guard(lock_);
  if (overdue_) unmap_spare();
  if (size_class == default_size_class && hot_count_ > 0) return hot_[--hot_count_];
  if (const stack s = take_from_slabs(size_class, failure)) return s;
  // Stacks kept for reuse may be in the way.
  drop_hot();
  for (unsigned c = 0; c < size_class_count; ++c)
    unmap_empty(c, c == size_class ? 1 : 0);
  return take_from_slabs(size_class, failure);
}

std::size_t stack_pool::take_hot(stack* into, std::size_t room) noexcept {
  const std::lock_guard guard(lock_);
  const std::size_t n = std::min(room, hot_count_);
  hot_count_ -= n;
  std::copy_n(hot_ + hot_count_, n, into);
  return n;
}

stack stack_pool::take_from_slabs(unsigned size_class, stack_failure& failure) noexcept {
  slab* const s = slab_with_room(size_class, failure);
  if (s == nullptr) return take_guarded(size_class);
  // A stack that holds memory already is best, then one that has its guard.
  std::uint64_t choice = s->free & s->touched;
  if (choice == 0) choice = s->free & s->guarded;
  if (choice == 0) choice = s->free;
  const unsigned place = lowest_bit(choice);
  if (guard_place(*s, place)) return take_place(*s, place);
  failure = {stack_failure::step::guard, errno};
  unmap_empty(size_class, 1);
  return take_guarded(size_class);
}

// Takes a stack that has its guard, for when the kernel gives no more guards. Linear in
// the number of slabs.
stack stack_pool::take_guarded(unsigned size_class) noexcept {
  // ordering: written only under the pool's lock, which is held here.
  const unsigned count = slabs.chunk_count.load(std::memory_order_relaxed);
  for (unsigned n = 0; n < count; ++n) {
    chunk& c = chunk_at(n);
    for (std::uint64_t left = c.some | c.all; left != 0; left &= left - 1) {
      slab& s = c.slabs[lowest_bit(left)];
      if (s.size_class != size_class) break;
      const std::uint64_t choice = s.free & s.guarded;
      if (choice != 0) return take_place(s, lowest_bit(choice));
    }
  }
  return {};
}

stack stack_pool::take_place(slab& s, unsigned place) noexcept {
  if ((s.touched & bit(place)) != 0) {
    --free_touched_;
  } else {
    ++first_touches_;
  }
  s.free &= ~bit(place);
  s.touched |= bit(place);
  ++taken_;
  file(s);
  return s.at(place);
}

void stack_pool::give(const stack* released, std::size_t count) noexcept {
  const std::lock_guard guard(lock_);
  // Before the release: this is the peak since the one before.
  if (decay_.limit() != 0 && decay_.note(clock(), taken_)) cooled_down_to_ = all_slabs();
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_default = home_of(released[i]).owner->size_class == default_size_class;
    if (is_default && hot_count_ < hot_capacity) {
      hot_[hot_count_++] = released[i];
    } else {
      release(released[i]);
    }
  }
  if (overdue_) unmap_spare();
  // ordering: written only under the pool's lock, which is held here.
  const nanos next = next_step_.load(std::memory_order_relaxed);
  if (next != never && next < decay_.next_step()) decay_one();
}

void stack_pool::release(const stack& released) noexcept {
  const auto [owner, place] = home_of(released);
  slab& s = *owner;
  VIGIL_CHECK((s.free & bit(place)) == 0, "a stack is released twice");
  s.free |= bit(place);
  ++free_touched_;
  --taken_;
  file(s);
  const bool is_spare = s.room == slab_room::all && classes_[s.size_class].empty_slabs > 1;
  if (!is_spare && !many_are_idle()) return;
  if (is_warm()) {
    plan_step();
    return;
  }
  if (is_spare) {
    if (unmap_slab(s)) return;
    overdue_ = true;
  }
  if (many_are_idle()) give_back_free(s);
}

// Gives back the memory of the slab's free stacks once they are as many as its taken
// ones: so a slab that runs empty calls the kernel a few times, not at each release.
// False if they are not.
bool stack_pool::give_back_free(slab& s) noexcept {
  const std::uint64_t idle = s.free & s.touched;
  if (idle == 0 || std::popcount(idle) < std::popcount(s.all_places() & ~s.free)) return false;
  const std::size_t stride = stride_of(s.size_class);
  ::iovec ranges[slab_places / 2];
  std::size_t count = 0;
  for (std::uint64_t left = idle; left != 0;) {
    const unsigned first = lowest_bit(left);
    const auto length = static_cast<unsigned>(std::countr_one(left >> first));
    ranges[count++] = {s.base + first * stride + stack_guard_size,
                       length * stride - stack_guard_size};
    left = first + length >= 64 ? 0 : left & (~std::uint64_t{0} << (first + length));
  }
  give_back_memory(ranges, count);
  free_touched_ -= static_cast<std::size_t>(std::popcount(idle));
  s.touched &= ~idle;
  return true;
}

void stack_pool::drop_hot() noexcept {
  while (hot_count_ > 0)
    release(hot_[--hot_count_]);
}

void stack_pool::trim() noexcept {
  const std::lock_guard guard(lock_);
  drop_hot();
  for (unsigned c = 0; c < size_class_count; ++c)
    unmap_empty(c, 0);
}

slab* stack_pool::slab_with_room(unsigned size_class, stack_failure& failure) noexcept {
  class_state& mine = classes_[size_class];
  if (!mine.some.empty()) {
    chunk& c = chunk_at(mine.some.lowest());
    return &c.slabs[lowest_bit(c.some)];
  }
  if (!mine.all.empty()) {
    chunk& c = chunk_at(mine.all.lowest());
    return &c.slabs[lowest_bit(c.all)];
  }
  return map_slab(size_class, failure);
}

slab* stack_pool::map_slab(unsigned size_class, stack_failure& failure) noexcept {
  slab* const s = vacant_record(size_class, failure);
  if (s == nullptr) return nullptr;
  unsigned count = places_per_slab(size_class);
  std::byte* base = map_memory(count * stride_of(size_class));
  if (base == nullptr && count > 1) {
    count = 1;
    base = map_memory(stride_of(size_class));
  }
  if (base == nullptr) {
    failure = {stack_failure::step::map, errno};
    return nullptr;
  }
  s->base = base;
  s->count = static_cast<std::uint8_t>(count);
  s->size_class = static_cast<std::uint8_t>(size_class);
  s->free = s->all_places();
  s->touched = 0;
  s->guarded = 0;
#if VIGIL_VALGRIND
  if (RUNNING_ON_VALGRIND) s->valgrind_ids = new (std::nothrow) unsigned[count];
#endif
  const unsigned n = s->index / chunk_slabs;
  chunk& c = chunk_at(n);
  c.vacant &= ~bit(s->index % chunk_slabs);
  if (c.vacant == 0) classes_[size_class].vacant.erase(n);
  file(*s);
  // Publishes ST2 to readers of `mapped`.
  s->state.store(slab_state::mapped);
  return s;
}

slab* stack_pool::vacant_record(unsigned size_class, stack_failure& failure) noexcept {
  chunk_set& vacant = classes_[size_class].vacant;
  if (vacant.empty()) {
    // ordering: written only under the pool's lock, which is held here.
    const unsigned n = slabs.chunk_count.load(std::memory_order_relaxed);
    if (n == max_chunks || publish_chunk(n) == nullptr) {
      failure = {n == max_chunks ? stack_failure::step::table : stack_failure::step::map,
                 n == max_chunks ? ENOMEM : errno};
      return nullptr;
    }
    vacant.insert(n);
  }
  chunk& c = chunk_at(vacant.lowest());
  return &c.slabs[lowest_bit(c.vacant)];
}

// Guards a place, perhaps with some places behind it, which are likely to be next.
bool stack_pool::guard_place(slab& s, unsigned place) noexcept {
  if ((s.guarded & bit(place)) != 0) return true;
  const std::size_t stride = stride_of(s.size_class);
  const std::uint64_t behind = s.guarded >> place;
  const auto room = std::min(static_cast<unsigned>(std::countr_zero(behind)), s.count - place);
  const auto installed =
      static_cast<unsigned>(install_guards(s.base + place * stride, stride, room));
  for (unsigned i = place; i < place + installed; ++i) {
    s.guarded |= bit(i);
#if VIGIL_VALGRIND
    if (s.valgrind_ids != nullptr) {
      const stack where = s.at(i);
      s.valgrind_ids[i] = VALGRIND_STACK_REGISTER(where.bottom, where.top);
    }
#endif
  }
  return installed != 0;
}

// Returns false if the slab must stay for now; it then remains an empty slab.
bool stack_pool::unmap_slab(slab& s) noexcept {
  // The two halves of ST3.
  s.state.store(slab_state::unmapping);
  // The kernel may refuse at the limit of mappings, if it has to split one.
  if (slabs.holds.load() != 0 || ::munmap(s.base, s.bytes()) != 0) {
    s.state.store(slab_state::mapped);
    return false;
  }
  forget_valgrind_ids(s);
  free_touched_ -= static_cast<std::size_t>(std::popcount(s.touched));
  s.free = 0;
  s.touched = 0;
  s.guarded = 0;
  file(s);
  const unsigned n = s.index / chunk_slabs;
  chunk_at(n).vacant |= bit(s.index % chunk_slabs);
  classes_[s.size_class].vacant.insert(n);
  s.state.store(slab_state::vacant);
  return true;
}

void stack_pool::unmap_empty(unsigned size_class, unsigned keep) noexcept {
  class_state& mine = classes_[size_class];
  while (mine.empty_slabs > keep && unmap_highest(mine)) {
  }
}

// Unmaps the highest empty slab. Caller: there is one.
bool stack_pool::unmap_highest(class_state& of) noexcept {
  chunk& c = chunk_at(of.all.highest());
  if (unmap_slab(c.slabs[highest_bit(c.all)])) return true;
  overdue_ = true;
  return false;
}

// Unmaps the empty slabs that may not stay.
void stack_pool::unmap_spare() noexcept {
  overdue_ = false;
  for (class_state& of : classes_) {
    while (of.empty_slabs > 1 && !is_warm() && unmap_highest(of)) {
    }
  }
}

// Restores SP1 and SP2 after s.free has changed.
void stack_pool::file(slab& s) noexcept {
  const slab_room now = s.free == 0                ? slab_room::none
                        : s.free == s.all_places() ? slab_room::all
                                                   : slab_room::some;
  if (now == s.room) return;
  const unsigned n = s.index / chunk_slabs;
  const std::uint64_t mine = bit(s.index % chunk_slabs);
  chunk& c = chunk_at(n);
  class_state& k = classes_[s.size_class];
  if (s.room == slab_room::some && (c.some &= ~mine) == 0) k.some.erase(n);
  if (s.room == slab_room::all) {
    --k.empty_slabs;
    if ((c.all &= ~mine) == 0) k.all.erase(n);
  }
  if (now == slab_room::some) {
    c.some |= mine;
    k.some.insert(n);
  }
  if (now == slab_room::all) {
    ++k.empty_slabs;
    c.all |= mine;
    k.all.insert(n);
  }
  s.room = now;
}

}  // namespace VIGIL_DETAIL
