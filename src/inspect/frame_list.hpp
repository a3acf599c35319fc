// frame_list: the frames of one stack, the innermost first, as addresses in the code.
//
// Reading them takes no lock and allocates nothing; async-signal-safe as frame_rules.hpp
// is.
#pragma once

#include "inspect/frame_step.hpp"
#include "machine/stack.hpp"
#include "sched/report/fiber_snapshot.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace vigil::inline VIGIL_ABI::detail {

enum class frames_result : std::uint8_t {
  whole,          // all frames
  more_above,     // the outer ones are missing: too many, or too far up
  unknown_code,   // the outer ones are missing: there are no rules for the last one's code
  not_begun,      // the fiber has not run yet
  moved_on,       // it runs, or has run, since it was looked at
  no_answer,      // the thread that runs it has not answered the signal in time
  not_asked,      // it runs, and is not asked
  not_wanted,     // the caller wants none
  has_ended,      // only its handle keeps it
  not_supported,  // on this machine, or in this build
};

const char* to_string(frames_result r) noexcept;

struct frame_list {
  static constexpr unsigned most = 128;

  bool operator==(const frame_list& other) const noexcept;

  frames_result result = frames_result::not_supported;
  unsigned count = 0;
  // Inside the function; of a call, right before the place where it returns to.
  std::uintptr_t places[most];
};

// Goes up from `innermost`.
void read_frames(frame innermost, const stack_copy& from, frame_list& out) noexcept;

// A fiber's stack is copied before it is read, so much of it at most.
inline constexpr std::size_t stack_copied_at_most = std::size_t{256} << 10;

using copy_room = std::byte[stack_copied_at_most];

// A room on the heap. It is cleared at its end: the pointers in it would be taken for
// living ones (stuck_fibers.hpp).
class own_copy_room {
 public:
  own_copy_room() : room_(new room) {}

  ~own_copy_room() {
    std::memset(room_->bytes, 0, sizeof room_->bytes);
    asm volatile("" : : "r"(room_->bytes) : "memory");
  }

  own_copy_room(const own_copy_room&) = delete;
  own_copy_room& operator=(const own_copy_room&) = delete;

  copy_room& bytes() const noexcept { return room_->bytes; }

 private:
  struct room {
    copy_room bytes;
  };

  const std::unique_ptr<room> room_;
};

// Copies bytes as they are, each read once, while others may write them.
void copy_racing(const std::byte* from, std::byte* to, std::size_t n) noexcept;

// The frames of a fiber that does not run, of the moment of the snapshot, or none. `room`
// is for the copy. Caller: holds a slab_hold.
void read_parked_frames(const stack& where,
                        const fiber_snapshot& s,
                        copy_room& room,
                        frame_list& out) noexcept;

}  // namespace vigil::inline VIGIL_ABI::detail
