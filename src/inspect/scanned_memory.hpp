// scanned_memory: reads the memory of the whole process, except for ranges that are
// named, and reports the words that point into targets. A word may begin at each fourth
// byte: epoll_event is packed, for one.
//
// The danger. The scan's own notes hold the addresses that it looks for, and it must not
// allocate while the threads are stopped that may hold malloc's lock.
//
// The rule. All that belongs to a scan lies in one own_memory, which is never scanned:
// its lists, its buffers, and the stack of its thread.
#pragma once

#include "core/cancel/object_view.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace VIGIL_DETAIL {

// A mapping that pieces are cut from, and that goes as a whole. Its constructor throws
// std::bad_alloc. Users with unbounded lists ask is_scarce() before they add to one: to
// throw while threads are stopped would take malloc's lock.
class own_memory final : public std::pmr::memory_resource {
 public:
  explicit own_memory(std::size_t bytes);
  ~own_memory() override;
  own_memory(const own_memory&) = delete;
  own_memory& operator=(const own_memory&) = delete;

  memory_range range() const noexcept { return memory_range::of(begin_, size_); }

  // A list may grow to twice its size, and leaves its old place behind.
  bool is_scarce() const noexcept { return used_ > size_ / 8; }

 private:
  void* do_allocate(std::size_t bytes, std::size_t alignment) override;

  void do_deallocate(void*, std::size_t, std::size_t) noexcept override {}

  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  std::byte* begin_;
  std::size_t size_;
  std::size_t used_ = 0;
};

template <class T>
using own_vector = std::pmr::vector<T>;

// Ranges, found by an address in them; they do not overlap.
class target_list {
 public:
  static constexpr std::size_t none = static_cast<std::size_t>(-1);

  explicit target_list(own_memory& memory) : targets_(&memory) {}

  void add(const memory_range& r, std::size_t number) { targets_.push_back({r, number}); }

  // Caller: has added all.
  void sort() noexcept;

  // The number given to the range that holds the address, or none.
  std::size_t find(std::uintptr_t address) const noexcept;

 private:
  struct target {
    memory_range range;
    std::size_t number;
  };

  own_vector<target> targets_;
  memory_range all_;
};

// Where a word was found that points to a target.
struct found_word {
  std::uintptr_t at = 0;
  std::uintptr_t value = 0;
  std::size_t target = target_list::none;
};

// Called with each such word.
class word_visitor {
 public:
  virtual void visit(const found_word& w) = 0;

 protected:
  ~word_visitor() = default;
};

class memory_scan {
 public:
  memory_scan(own_memory& memory, const target_list& targets, word_visitor& visitor);

  // Nothing in this range is read by scan_process().
  void leave_out(const memory_range& r) { left_out_.push_back(r); }

  // Reads the range; what is not there is skipped.
  void scan(const memory_range& r);

  // Reads everything that the process can write, all memory without a file, and what the
  // process has changed of a file's that it cannot write now. Memory that is not there is
  // not made. False if the system does not say where all that is.
  bool scan_process();

 private:
  struct mapping {
    memory_range range;
    bool is_shared = false;
    bool is_changed_only = false;  // the pages of a file that are as in the file do not count
  };

  bool read_mappings(own_vector<mapping>& out);
  void scan_mapping(const mapping& m);
  void scan_present(const memory_range& r, const mapping& m);
  std::size_t pages_there(std::uintptr_t at, std::size_t pages, const mapping& m) noexcept;
  void look_at(std::uintptr_t at, std::size_t bytes);

  own_memory& memory_;
  const target_list& targets_;
  word_visitor& visitor_;
  own_vector<memory_range> left_out_;
  std::byte* bytes_;
  std::uint64_t* page_entries_;
  unsigned char* in_core_;
  bool* is_there_;
  int page_map_ = -1;
};

}  // namespace VIGIL_DETAIL
