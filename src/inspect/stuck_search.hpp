// stuck_search: one search for stuck fibers (stuck_fibers.hpp), while all threads stand
// still. All that it allocates is own memory.
#pragma once

#include "core/machine/stack.hpp"
#include "core/sched/fiber/fiber.hpp"
#include "inspect/scanned_memory.hpp"
#include "inspect/stuck_fibers.hpp"
#include "inspect/wait_ways.hpp"

#include <vigil/detail/config.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class scheduler;
class stopped_threads;

class stuck_search final : word_visitor {
 public:
  // `caller_from`: the lowest address of the caller's stack that is in use.
  stuck_search(own_memory& memory, std::uintptr_t caller_from)
      : memory_(memory),
        caller_from_(caller_from),
        entries_(&memory),
        ways_(&memory),
        objects_(memory),
        is_visible_(&memory),
        seen_by_(&memory),
        waiting_(&memory),
        runtimes_(&memory),
        targets_(memory),
        links_(memory),
        scan_(memory, targets_, *this) {}

  // False if the search was not whole.
  bool run(const stopped_threads& stopped);

  std::size_t candidates() const noexcept {
    return static_cast<std::size_t>(std::count_if(
        entries_.begin(), entries_.end(), [](const entry& e) { return e.is_candidate; }));
  }

  template <class F>
  void for_each_candidate(F&& f) const {
    for (const entry& e : entries_) {
      if (!e.is_candidate) continue;
      fiber_number by;
      if (e.seen_by != nullptr) by = {e.seen_by->runtime, e.seen_by->id};
      f(waiting_fiber{e.where, e.id, e.runs, e.open, by});
    }
  }

 private:
  struct entry {
    stack where;
    const fiber* block = nullptr;
    std::uint64_t id = 0;
    std::uint64_t runtime = 0;
    std::uint32_t runs = 0;
    bool is_candidate = false;
    bool is_live = true;
    bool is_for_lock = false;
    bool has_handle = false;
    bool is_observers = false;
    bool knows_ways = false;
    std::size_t first_way = 0;
    std::size_t last_way = 0;
    open_way open = open_way::none;
    const entry* seen_by = nullptr;
  };

  struct runtime {
    const scheduler* sched = nullptr;
    const cancel_node* root = nullptr;
    bool goes_on = false;
    bool is_observer = false;
  };

  // The things that can become visible, by numbers without a gap: the objects, then for
  // each entry its stack and its control block.
  std::size_t stack_number(std::size_t e) const noexcept { return objects_.all().size() + 2 * e; }

  std::size_t block_number(std::size_t e) const noexcept { return stack_number(e) + 1; }

  void add_runtimes();
  void add_fibers();
  void add_ways();
  void add_targets();
  void scan_roots();
  void settle();
  void scan_visible(std::size_t number);
  void scan_used(const entry& e);
  void make_visible(std::size_t number, const entry* by);
  const entry* first_live(const entry* by) const noexcept;

  void visit(const found_word& w) override {
    if (links_.find(w.at) == target_list::none) make_visible(w.target, source_);
  }

  memory_range used_part(const entry& e) const noexcept;
  bool may_be_stuck(const fiber& f) const noexcept;
  const runtime* runtime_of(const fiber& f) const noexcept;
  const entry* holder_of(const wait_way& w) const noexcept;
  const entry* with_stack_at(const void* address) const noexcept;
  bool is_open(const wait_way& w, entry& of) const noexcept;
  bool look_for_open_way(std::size_t e) noexcept;

  own_memory& memory_;
  const std::uintptr_t caller_from_;
  const stopped_threads* stopped_ = nullptr;
  own_vector<entry> entries_;  // by the addresses of their stacks
  own_vector<wait_way> ways_;
  object_table objects_;
  own_vector<bool> is_visible_;
  own_vector<const entry*> seen_by_;  // on whose stack it was seen
  own_vector<std::size_t> waiting_;   // visible, and not scanned yet
  own_vector<runtime> runtimes_;
  target_list targets_;
  target_list links_;  // where words do not count
  memory_scan scan_;
  const entry* source_ = nullptr;  // whose stack is being read
  bool is_whole_ = true;
};

}  // namespace VIGIL_DETAIL
