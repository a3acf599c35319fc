// runtime_part: what a layer above keeps for each runtime: its tasks, its timers on other
// clocks.
#pragma once

#include "core/base/atomic.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>

namespace VIGIL_DETAIL {

class dump_writer;
struct shown_tasks;  // task/shown_tasks.hpp

class runtime_part {
 public:
  enum class kind : std::uint8_t { tasks, clocks };

  virtual ~runtime_part() = default;

  // Ends every open stoppable wait. Called once run_state::stopping() is true (RE3).
  virtual void stop_all() noexcept = 0;

  // Whether it has tasks that have not ended.
  virtual bool has_tasks() noexcept { return false; }

  // Lists what waits, for a dump. May be called by a signal's handler.
  virtual void write(dump_writer& out) noexcept = 0;

  // Copies what dumps show of some tasks. False if that would have to wait, and may not.
  virtual bool copy(shown_tasks& out) noexcept {
    static_cast<void>(out);
    return true;
  }

 protected:
  runtime_part() = default;
  runtime_part(const runtime_part&) = delete;
  runtime_part& operator=(const runtime_part&) = delete;
};

// The parts of one runtime: at most one of each kind, made at the first use. They end
// with the runtime.
class runtime_parts {
 public:
  runtime_parts() noexcept = default;
  runtime_parts(const runtime_parts&) = delete;
  runtime_parts& operator=(const runtime_parts&) = delete;

  ~runtime_parts() {
    for_each([](runtime_part& p) { delete &p; });
  }

  // nullptr if it has not been made.
  runtime_part* find(runtime_part::kind k) const noexcept {
    return all_[static_cast<std::size_t>(k)].load();
  }

  // Calls make() for a std::unique_ptr<Part> if there is none. If two threads do so at
  // once, one of the two parts is thrown away.
  template <class Part, class Make>
  Part& find_or_make(runtime_part::kind k, Make make) {
    runtime_part* seen = find(k);
    if (seen == nullptr) {
      std::unique_ptr<Part> made = make();
      if (all_[static_cast<std::size_t>(k)].compare_exchange_strong(seen, made.get()))
        return *made.release();
    }
    return static_cast<Part&>(*seen);
  }

  template <class F>
  void for_each(F f) const noexcept {
    for (const atomic<runtime_part*>& p : all_) {
      if (runtime_part* const made = p.load()) f(*made);
    }
  }

 private:
  friend struct debug_layout;
  static constexpr std::size_t kinds = 2;

  atomic<runtime_part*> all_[kinds]{};
};

}  // namespace VIGIL_DETAIL
