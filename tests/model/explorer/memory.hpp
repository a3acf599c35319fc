// The values that a load may see, and the plain accesses that race: memory.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace model {

inline constexpr unsigned max_threads = 6;

using thread_mask = std::uint32_t;

constexpr thread_mask bit(unsigned t) noexcept {
  return thread_mask{1} << t;
}

using step_clock = std::array<std::uint32_t, max_threads>;

enum class access : std::uint8_t { load, store, modify };

enum class order : std::uint8_t { relaxed, acquire, release, acq_rel, seq_cst };

constexpr bool acquires(order o) noexcept {
  return o == order::acquire || o == order::acq_rel || o == order::seq_cst;
}

constexpr bool releases(order o) noexcept {
  return o == order::release || o == order::acq_rel || o == order::seq_cst;
}

// The knowledge of a thread or a message: for each location the oldest value that may
// still be read, and for each thread the last step known of it.
struct view {
  step_clock heard{};
  std::vector<std::uint16_t> oldest;  // by location; missing ones are 0

  std::uint16_t at(unsigned location) const noexcept {
    return location < oldest.size() ? oldest[location] : std::uint16_t{0};
  }

  void raise(unsigned location, std::uint16_t to);
  void join(const view& other);
};

struct message {
  std::uint64_t value = 0;
  bool carries = false;  // a view that acquiring readers take over
  view known;
};

// One atomic object during one run.
struct location {
  const void* address = nullptr;
  unsigned size = 0;
  std::size_t length = 0;  // of its history
  std::uint16_t last_seq_cst = 0;

  // For the reduction: the last access of each thread, and the steps that any later
  // access comes after.
  struct access {
    std::uint32_t step = 0;  // in its thread; 0: none
    std::int32_t decision = -1;
    std::int32_t block = -1;
  };

  std::array<access, max_threads> last_write{};
  std::array<access, max_threads> last_any{};
  step_clock after_writes{};
  step_clock after_all{};
};

class memory {
  struct shadow_cell;
  struct place;

 public:
  memory();
  void begin_run();

  // A moment of a run to which the memory can return. Histories only grow, so their
  // lengths are enough; the cells and the places that change afterwards are noted.
  struct moment {
    std::vector<location> locations;
    std::array<view, max_threads> views;
    std::size_t cells_in_use = 0;
    std::size_t earlier_cells = 0;
    std::size_t earlier_places = 0;
    bool one_thread = true;
  };

  void remember(moment& m);
  // Moments come back in the reverse order: a return ends those that are later.
  void return_to(const moment& m);

  unsigned find(const void* address, unsigned size, unsigned thread);

  location& at(unsigned l) { return locations_[l]; }

  std::size_t count() const noexcept { return used_; }

  view& of_thread(unsigned thread) { return views_[thread]; }

  // The oldest message that the thread may read.
  std::uint16_t oldest_readable(unsigned l, unsigned thread, order o);
  std::uint64_t read(unsigned l, unsigned thread, std::uint16_t which, order o);

  std::uint64_t value(unsigned l, std::uint16_t which) const noexcept {
    return histories_[l][which].value;
  }

  std::uint16_t newest(unsigned l) const noexcept {
    return static_cast<std::uint16_t>(locations_[l].length - 1);
  }

  // Appends a message; `continues`: a read-modify-write, which carries on what its
  // predecessor carried.
  void write(unsigned l, unsigned thread, std::uint64_t value, order o, bool continues);

  // A plain access; returns a description of the fault, or nullptr.
  const char* plain(std::uintptr_t address, std::size_t size, bool is_write, unsigned thread);
  const char* atomic_access(std::uintptr_t address, std::size_t size, unsigned thread);

  // Gives a thread's knowledge to one that starts, or that joins it.
  void hand_over(unsigned from, unsigned to);

  // After a release: others do not yet know of later steps.
  void tick(unsigned thread) { ++views_[thread].heard[thread]; }

  void see_newest(unsigned thread, unsigned l);

  bool is_behind(unsigned thread, unsigned l) const noexcept {
    return views_[thread].at(l) + 1u < locations_[l].length;
  }

  // The memory is given back: counts as a write to all of it.
  const char* end_of(std::uintptr_t start, std::size_t size, unsigned thread);

 private:
  struct shadow_cell {
    std::uintptr_t granule = 0;
    std::uint32_t run = 0;
    std::uint32_t epoch = 0;   // the one in which it was last noted for a return
    std::uint8_t atomics = 0;  // bytes at which an atomic object begins
    std::uint8_t users = 0;    // threads with an access
    std::array<std::uint32_t, max_threads> wrote{};
    std::array<std::uint32_t, max_threads> read{};
    std::array<std::uint8_t, max_threads> wrote_bytes{};
    std::array<std::uint8_t, max_threads> read_bytes{};
  };

  struct place {
    const void* address = nullptr;
    std::uint32_t run = 0;
    unsigned location = 0;
  };

  static constexpr unsigned no_location = UINT32_MAX;

  shadow_cell& cell(std::uintptr_t granule);
  // Whether a cell may be in use there, in this run.
  bool has_cells(std::uintptr_t address, std::size_t size) const;
  void forget(std::uintptr_t start);
  void note(place& p);
  void note(shadow_cell& c);

  std::vector<location> locations_;
  std::vector<std::vector<message>> histories_;  // of each location, in modification order
  std::size_t used_ = 0;
  std::array<view, max_threads> views_;
  std::vector<shadow_cell> cells_;
  std::size_t cells_in_use_ = 0;  // in this run
  // By hash, of 16 granules and of 512: the last run that touched one.
  std::vector<std::uint32_t> blocks_;
  std::vector<std::uint32_t> pages_;

  std::vector<place> places_;
  std::uint32_t run_ = 0;
  bool one_thread_ = true;  // of this run, so far
  // The cells and places that have changed since the oldest checkpoint, as they were.
  std::vector<std::pair<std::uint32_t, shadow_cell>> earlier_cells_;
  std::vector<std::pair<std::uint32_t, place>> earlier_places_;
  std::uint32_t epoch_ = 0;  // a new one with each run, checkpoint and return
  bool notes_ = false;       // a checkpoint was taken in this run
};

}  // namespace model
