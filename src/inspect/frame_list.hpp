// frame_list: the frames of one stack, the innermost first, as addresses in the code.
//
// Reading them takes no lock and allocates nothing; async-signal-safe as frame_rules.hpp
// is.
#pragma once

#include "core/machine/stack.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "inspect/frame_step.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

namespace VIGIL_DETAIL {

enum class frames_result : std::uint8_t {
  whole,          // all frames
  more_above,     // the outer ones are missing: too many, or too far up
  unknown_code,   // the outer ones are missing: there are no rules for the last one's code
  lost,           // the outer ones are missing: the way to them needs an unknown register
  not_begun,      // the fiber has not run yet
  moved_on,       // it runs, or has run, since it was looked at
  other_stack,    // it runs on a stack that is not its own, a generator's say
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
void read_frames(frame innermost,
                 const stack_copy& from,
                 known_rules& known,
                 frame_list& out) noexcept;

// A fiber's stack is copied before it is read, so much of it at most.
inline constexpr std::size_t stack_copied_at_most = std::size_t{256} << 10;

// The memory that reading the frames of one dump takes.
struct frames_room {
  std::byte copy[stack_copied_at_most];
  known_rules known;
  // A thread was sent the signal where /proc does not tell that it stands in no call.
  bool may_have_ended_calls = false;
};

// A room on the heap. Its copy is cleared at its end: the pointers in it would be taken
// for living ones (stuck_fibers.hpp).
class own_frames_room {
 public:
  own_frames_room() : room_(new frames_room) {}

  ~own_frames_room() {
    std::memset(room_->copy, 0, sizeof room_->copy);
    asm volatile("" : : "r"(room_->copy) : "memory");
  }

  own_frames_room(const own_frames_room&) = delete;
  own_frames_room& operator=(const own_frames_room&) = delete;

  frames_room& get() const noexcept { return *room_; }

 private:
  const std::unique_ptr<frames_room> room_;
};

// Copies bytes as they are, each read once, while others may write them.
void copy_racing(const std::byte* from, std::byte* to, std::size_t n) noexcept;

// The frames of a fiber that does not run, of the moment of the snapshot, or none.
// Caller: holds a slab_hold.
void read_parked_frames(const stack& where,
                        const fiber_view& s,
                        frames_room& room,
                        frame_list& out) noexcept;

}  // namespace VIGIL_DETAIL
