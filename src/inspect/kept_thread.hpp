// kept_thread: a thread that sleeps from install() on until a text about the fibers is
// asked for, and then starts the thread that makes it. So the asker allocates and frees
// nothing: a thread that is stuck may hold a lock of malloc for ever.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <string>
#include <type_traits>

namespace VIGIL_DETAIL {

struct asked_text;

// Starts the thread unless it is there. Throws std::system_error if it cannot be started.
void keep_thread();

// A text that another thread makes. Without keep_thread() before, the first one starts
// the kept thread, and allocates.
class text_of_thread {
 public:
  // Waits until `make`, which must own or outlive all that it touches, has returned the
  // text, and no longer than `patience`; nor longer than names_patience for its begin.
  template <class F>
  text_of_thread(nanos patience, const F& make) noexcept {
    static_assert(std::is_trivially_copyable_v<F> && sizeof(F) <= room);
    ask(patience, &make, sizeof make, [](const void* f) -> std::string {
      return (*static_cast<const F*>(f))();
    });
  }

  ~text_of_thread();
  text_of_thread(const text_of_thread&) = delete;
  text_of_thread& operator=(const text_of_thread&) = delete;

  // nullptr: it is not there in time, or cannot be made.
  const std::string* get() const noexcept;

  // The thread has not even begun: malloc does not answer.
  bool is_malloc_stuck() const noexcept { return is_malloc_stuck_; }

  // Throws what `make` has thrown, and std::system_error if no thread can be had.
  void throw_error() const;

  static constexpr std::size_t room = 2048;
  using call = std::string(const void* f);

 private:
  void ask(nanos patience, const void* f, std::size_t bytes, call* how) noexcept;

  asked_text* text_ = nullptr;
  bool is_done_ = false;
  bool is_malloc_stuck_ = false;
  int error_ = 0;
};

}  // namespace VIGIL_DETAIL
