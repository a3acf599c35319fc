// The values that a load may see, and the plain accesses that race.
//
// Each atomic object has a history: its values in modification order, which is here the
// order in which the stores were executed. Each thread has a view: of each object the
// oldest value that it may still read. Reading and writing raise it (coherence). A
// releasing store puts its thread's view into the message; an acquiring load takes that
// over. A read-modify-write reads the newest value and carries on what its predecessor
// carried (release sequence). A sequentially consistent load reads nothing older than the
// last sequentially consistent store.
//
// Left out, as in most such tools: a load never sees a value that is stored later in
// execution order (load buffering), and two stores never come in another modification
// order than they were executed in.
#include "explorer/engine.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace model {
namespace {

constexpr std::size_t places = 1 << 14;
constexpr std::size_t cells = 1 << 16;
constexpr std::size_t blocks = 1 << 14;
constexpr std::uintptr_t block_size = 16;  // granules
constexpr std::size_t pages = 1 << 12;
constexpr std::uintptr_t page_granules = 512;

std::size_t hash(std::uintptr_t key) noexcept {
  return static_cast<std::size_t>((key * 0x9e3779b97f4a7c15u) >> 32);
}

// Neighbours in memory are neighbours in the table, which is larger than the caches: most
// accesses are near the one before.
std::size_t first_slot(std::uintptr_t granule) noexcept {
  return (hash(granule / block_size) * block_size + granule % block_size) % cells;
}

std::uint64_t value_in_memory(const void* address, unsigned size) noexcept {
  std::uint64_t value = 0;
  std::memcpy(&value, address, size);
  return value;
}

}  // namespace

void view::raise(unsigned location, std::uint16_t to) {
  if (location >= oldest.size()) oldest.resize(location + 1, 0);
  oldest[location] = std::max(oldest[location], to);
}

void view::join(const view& other) {
  for (unsigned i = 0; i < max_threads; ++i)
    heard[i] = std::max(heard[i], other.heard[i]);
  if (oldest.size() < other.oldest.size()) oldest.resize(other.oldest.size(), 0);
  for (std::size_t i = 0; i < other.oldest.size(); ++i)
    oldest[i] = std::max(oldest[i], other.oldest[i]);
}

memory::memory() {
  places_.resize(places);
  cells_.resize(cells);
  blocks_.resize(blocks);
  pages_.resize(pages);
}

void memory::begin_run() {
  ++run_;
  used_ = 0;
  cells_in_use_ = 0;
  one_thread_ = true;
  earlier_cells_.clear();
  earlier_places_.clear();
  notes_ = false;
  ++epoch_;
  for (unsigned t = 0; t < max_threads; ++t) {
    views_[t].heard = {};
    views_[t].heard[t] = 1;
    views_[t].oldest.clear();
  }
  find(this, 0, 0);  // the clock
}

// --- moments

void memory::note(place& p) {
  if (notes_) earlier_places_.emplace_back(static_cast<std::uint32_t>(&p - places_.data()), p);
}

void memory::note(shadow_cell& c) {
  if (notes_) earlier_cells_.emplace_back(static_cast<std::uint32_t>(&c - cells_.data()), c);
}

void memory::remember(moment& m) {
  m.locations.assign(locations_.begin(), locations_.begin() + static_cast<std::ptrdiff_t>(used_));
  m.views = views_;
  m.cells_in_use = cells_in_use_;
  m.earlier_cells = earlier_cells_.size();
  m.earlier_places = earlier_places_.size();
  m.one_thread = one_thread_;
  notes_ = true;
  ++epoch_;
}

void memory::return_to(const moment& m) {
  for (; earlier_cells_.size() > m.earlier_cells; earlier_cells_.pop_back())
    cells_[earlier_cells_.back().first] = earlier_cells_.back().second;
  for (; earlier_places_.size() > m.earlier_places; earlier_places_.pop_back())
    places_[earlier_places_.back().first] = earlier_places_.back().second;
  cells_in_use_ = m.cells_in_use;
  used_ = m.locations.size();
  std::copy(m.locations.begin(), m.locations.end(), locations_.begin());
  views_ = m.views;
  one_thread_ = m.one_thread;
  ++epoch_;
}

// --- atomic objects

unsigned memory::find(const void* address, unsigned size, unsigned thread) {
  std::size_t slot = hash(reinterpret_cast<std::uintptr_t>(address)) % places;
  while (places_[slot].run == run_ && places_[slot].address != address)
    slot = (slot + 1) % places;
  place& p = places_[slot];
  if (p.run == run_ && p.location != no_location) return p.location;
  note(p);
  if (p.run != run_) {
    if (used_ + 1 >= places / 2) {
      engine::get().fail("the program has more atomic objects than the explorer has room for");
    }
    p.run = run_;
    p.address = address;
  }
  if (used_ == locations_.size()) {
    locations_.emplace_back();
    histories_.emplace_back(1);
  }
  p.location = static_cast<unsigned>(used_++);
  location& l = locations_[p.location];
  l.address = address;
  l.size = size;
  l.length = 1;
  l.last_seq_cst = 0;
  l.last_write = {};
  l.last_any = {};
  l.after_writes = {};
  l.after_all = {};
  message& first = histories_[p.location][0];
  first.value = size == 0 ? 0 : value_in_memory(address, size);
  first.carries = false;
  if (size != 0) {
    const auto start = reinterpret_cast<std::uintptr_t>(address);
    shadow_cell& c = cell(start / 8);
    c.atomics |= static_cast<std::uint8_t>(1u << (start % 8));
  }
  static_cast<void>(thread);
  return p.location;
}

// The object at this address ends: another may begin there.
void memory::forget(std::uintptr_t start) {
  const void* const address = reinterpret_cast<const void*>(start);
  std::size_t slot = hash(start) % places;
  while (places_[slot].run == run_ && places_[slot].address != address)
    slot = (slot + 1) % places;
  if (places_[slot].run != run_) return;
  note(places_[slot]);
  places_[slot].location = no_location;
}

std::uint16_t memory::oldest_readable(unsigned l, unsigned thread, order o) {
  const std::uint16_t known = views_[thread].at(l);
  return o == order::seq_cst ? std::max(known, locations_[l].last_seq_cst) : known;
}

std::uint64_t memory::read(unsigned l, unsigned thread, std::uint16_t which, order o) {
  view& mine = views_[thread];
  const message& m = histories_[l][which];
  mine.raise(l, which);
  if (acquires(o) && m.carries) mine.join(m.known);
  return m.value;
}

void memory::write(unsigned l, unsigned thread, std::uint64_t value, order o, bool continues) {
  location& at = locations_[l];
  if (at.length == UINT16_MAX) engine::get().fail("a word is written more than 65 000 times");
  const auto index = static_cast<std::uint16_t>(at.length);
  std::vector<message>& history = histories_[l];
  if (at.length == history.size()) history.emplace_back();
  ++at.length;
  message& m = history[index];
  view& mine = views_[thread];
  mine.raise(l, index);
  m.value = value;
  m.carries = releases(o);
  if (m.carries) m.known = mine;
  if (continues) {
    const message& before = history[index - 1u];
    if (before.carries) {
      if (m.carries) {
        m.known.join(before.known);
      } else {
        m.known = before.known;
        m.carries = true;
      }
    }
  }
  if (o == order::seq_cst) at.last_seq_cst = index;
  if (releases(o)) tick(thread);
}

void memory::hand_over(unsigned from, unsigned to) {
  one_thread_ = false;
  views_[to].join(views_[from]);
  tick(from);
}

void memory::see_newest(unsigned thread, unsigned l) {
  views_[thread].raise(l, static_cast<std::uint16_t>(locations_[l].length - 1));
}

// --- plain memory

memory::shadow_cell& memory::cell(std::uintptr_t granule) {
  std::size_t slot = first_slot(granule);
  while (cells_[slot].run == run_ && cells_[slot].granule != granule)
    slot = (slot + 1) % cells;
  shadow_cell& c = cells_[slot];
  if (c.run != run_) {
    if (cells_in_use_ == cells * 3 / 4) {
      engine::get().fail("a run touches more memory than the explorer watches (384 KiB)");
    }
    note(c);
    ++cells_in_use_;
    blocks_[hash(granule / block_size) % blocks] = run_;
    pages_[hash(granule / page_granules) % pages] = run_;
    c = {};
    c.run = run_;
    c.epoch = epoch_;
    c.granule = granule;
  } else if (c.epoch != epoch_) {
    note(c);
    c.epoch = epoch_;
  }
  return c;
}

bool memory::has_cells(std::uintptr_t address, std::size_t size) const {
  if (size == 0) return false;
  const std::uintptr_t last = (address + size - 1) / 8 / block_size;
  for (std::uintptr_t b = address / 8 / block_size; b <= last; ++b) {
    if (blocks_[hash(b) % blocks] == run_) return true;
  }
  return false;
}

const char* memory::plain(std::uintptr_t address,
                          std::size_t size,
                          bool is_write,
                          unsigned thread) {
  // Accesses before the second thread starts are known to all threads. They count only
  // where they end an atomic object, and that has cells.
  if (one_thread_ && !has_cells(address, size)) return nullptr;
  const view& mine = views_[thread];
  const char* fault = nullptr;
  while (size != 0) {
    const std::uintptr_t first = address % 8;
    const std::size_t here = std::min<std::size_t>(size, 8 - first);
    const auto bytes = static_cast<std::uint8_t>(((1u << here) - 1u) << first);
    shadow_cell& c = cell(address / 8);
    if (is_write && (c.atomics & bytes) != 0) {
      for (unsigned i = 0; i < 8; ++i) {
        if ((c.atomics & bytes & (1u << i)) != 0) forget(address / 8 * 8 + i);
      }
      c.atomics = static_cast<std::uint8_t>(c.atomics & ~bytes);
    }
    for (thread_mask others = c.users & ~bit(thread); others != 0; others &= others - 1) {
      const auto t = static_cast<unsigned>(std::countr_zero(others));
      if (c.wrote[t] > mine.heard[t] && (c.wrote_bytes[t] & bytes) != 0) {
        fault = is_write ? "data race: two threads write the same memory"
                         : "data race: a thread reads what another writes";
      }
      if (is_write && c.read[t] > mine.heard[t] && (c.read_bytes[t] & bytes) != 0) {
        fault = "data race: a thread writes what another reads";
      }
    }
    std::uint32_t& when = is_write ? c.wrote[thread] : c.read[thread];
    std::uint8_t& which = is_write ? c.wrote_bytes[thread] : c.read_bytes[thread];
    which = when == mine.heard[thread] ? static_cast<std::uint8_t>(which | bytes) : bytes;
    when = mine.heard[thread];
    c.users = static_cast<std::uint8_t>(c.users | bit(thread));
    address += here;
    size -= here;
  }
  return fault;
}

const char* memory::end_of(std::uintptr_t start, std::size_t size, unsigned thread) {
  const view& mine = views_[thread];
  bool bad = false;
  for (std::uintptr_t g = start / 8; g < (start + size) / 8; ++g) {
    if (g % page_granules == 0 && pages_[hash(g / page_granules) % pages] != run_) {
      g |= page_granules - 1;  // none of its page was touched
      continue;
    }
    if (blocks_[hash(g / block_size) % blocks] != run_) {
      g |= block_size - 1;  // none of its block was touched
      continue;
    }
    std::size_t slot = first_slot(g);
    while (cells_[slot].run == run_ && cells_[slot].granule != g)
      slot = (slot + 1) % cells;
    const shadow_cell& c = cells_[slot];
    if (c.run != run_) continue;
    for (thread_mask others = c.users & ~bit(thread); others != 0; others &= others - 1) {
      const auto t = static_cast<unsigned>(std::countr_zero(others));
      if (c.wrote[t] > mine.heard[t] || c.read[t] > mine.heard[t]) bad = true;
    }
  }
  return bad ? "data race: memory is freed that another thread may still use" : nullptr;
}

const char* memory::atomic_access(std::uintptr_t address, std::size_t size, unsigned thread) {
  if (one_thread_) return nullptr;  // as in plain()
  const view& mine = views_[thread];
  const auto bytes = static_cast<std::uint8_t>(((1u << size) - 1u) << (address % 8));
  shadow_cell& c = cell(address / 8);
  const char* fault = nullptr;
  for (thread_mask others = c.users & ~bit(thread); others != 0; others &= others - 1) {
    const auto t = static_cast<unsigned>(std::countr_zero(others));
    if (c.wrote[t] > mine.heard[t] && (c.wrote_bytes[t] & bytes) != 0) {
      fault = "data race: an atomic is used by a thread that does not know of its construction";
    }
  }
  // As a read: the thread that ends the object must know of this use.
  c.read_bytes[thread] = c.read[thread] == mine.heard[thread]
                             ? static_cast<std::uint8_t>(c.read_bytes[thread] | bytes)
                             : bytes;
  c.read[thread] = mine.heard[thread];
  c.users = static_cast<std::uint8_t>(c.users | bit(thread));
  return fault;
}

}  // namespace model
