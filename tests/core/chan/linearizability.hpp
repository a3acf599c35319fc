// Searches for an order in which the calls on one channel could have been made one after
// the other: the algorithm of Wing and Gong, with Lowe's memory of visited states.
//
// Between two calls the channel is a queue of at most `capacity` values, open or closed:
//
//   send        pushes; waits, or is not ready, while it is full
//   recv        pops; waits, or is not ready, while it is empty; closed once it
//               is empty and closed
//   close       once
//
// A send that waits and is served by a receive takes effect right after it. Without a
// buffer a send and a recv take effect together; two calls that do not wait never meet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace vigil::testing_support {

struct channel_call {
  enum class kind : std::uint8_t { send, recv, close };
  enum class ending : std::uint8_t { done, closed, not_ready };
  kind what = kind::send;
  ending how = ending::done;
  bool waits = false;       // or could have waited, for a while
  std::uint8_t value = 0;   // sent or received, from 1
  std::uint64_t begun = 0;  // on a clock that counts events
  std::uint64_t ended = 0;
};

inline std::string to_string(const channel_call& c) {
  static constexpr const char* kinds[] = {"send", "recv", "close"};
  static constexpr const char* endings[] = {"done", "closed", "not ready"};
  return std::to_string(c.begun) + " - " + std::to_string(c.ended) + "  " +
         kinds[static_cast<std::size_t>(c.what)] + " " + std::to_string(c.value) + ": " +
         endings[static_cast<std::size_t>(c.how)] + (c.waits ? "" : " (does not wait)");
}

class linearization {
 public:
  // At most 40 calls, capacity at most 3.
  linearization(std::size_t capacity, const std::vector<channel_call>& calls)
      : capacity_(capacity), calls_(calls) {}

  bool exists() { return from({}); }

 private:
  struct state {
    std::uint64_t made = 0;   // a bit for each call
    std::uint32_t queue = 0;  // a byte for each value, the front lowest
    std::size_t size = 0;
    bool closed = false;
  };

  bool from(const state& s) {
    if (s.made == (std::uint64_t{1} << calls_.size()) - 1) return true;
    // The calls made tell whether it is closed.
    if (!seen_.insert(s.made << 24 | s.queue).second) return false;
    std::uint64_t first_end = UINT64_MAX;
    for (std::size_t i = 0; i < calls_.size(); ++i)
      if (!is_made(s, i) && calls_[i].ended < first_end) first_end = calls_[i].ended;
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      if (!is_made(s, i) && calls_[i].begun <= first_end && next(s, i, first_end)) return true;
    }
    return false;
  }

  static bool is_made(const state& s, std::size_t i) { return (s.made >> i & 1) != 0; }

  bool next(state s, std::size_t i, std::uint64_t first_end) {
    using kind = channel_call::kind;
    using ending = channel_call::ending;
    const channel_call& c = calls_[i];
    s.made |= std::uint64_t{1} << i;
    if (c.what == kind::close) {
      if (s.closed != (c.how == ending::closed)) return false;
      s.closed = true;
      return from(s);
    }
    const bool full = s.size == capacity_;
    const bool empty = s.size == 0;
    if (c.how == ending::closed) return s.closed && (c.what == kind::send || empty) && from(s);
    if (c.how == ending::not_ready)
      return !s.closed && (c.what == kind::send ? full : empty) && from(s);
    if (c.what == kind::send) {
      if (s.closed) return false;
      if (capacity_ == 0) return meet(s, c, first_end);
      if (full) return false;
      s.queue |= std::uint32_t{c.value} << (8 * s.size++);
      return from(s);
    }
    if (empty || (s.queue & 0xff) != c.value) return false;
    s.queue >>= 8;
    --s.size;
    return from(s);
  }

  // The send has been counted; tries each recv that could be its other half.
  bool meet(const state& s, const channel_call& send, std::uint64_t first_end) {
    for (std::size_t i = 0; i < calls_.size(); ++i) {
      const channel_call& c = calls_[i];
      if (is_made(s, i) || c.begun > first_end || c.what != channel_call::kind::recv) continue;
      if (c.how != channel_call::ending::done || c.value != send.value) continue;
      if (!c.waits && !send.waits) continue;
      state both = s;
      both.made |= std::uint64_t{1} << i;
      if (from(both)) return true;
    }
    return false;
  }

  const std::size_t capacity_;
  const std::vector<channel_call>& calls_;
  std::unordered_set<std::uint64_t> seen_;
};

}  // namespace vigil::testing_support
