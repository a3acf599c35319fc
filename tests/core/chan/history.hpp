// The record of a program: its calls and their results, in the order of its one worker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace vigil::testing_support {

using instant = std::int64_t;  // nanoseconds
using value_id = std::uint64_t;
inline constexpr instant never = std::numeric_limits<instant>::max();
inline constexpr int nil = -1;

struct wish {  // one case of a select
  enum class kind : std::uint8_t { recv, send, timer, timeout, otherwise };
  kind what = kind::recv;
  int object = nil;      // a channel or a timer
  value_id value = 0;    // to send
  instant deadline = 0;  // the deadline of a timeout
};

struct result {
  enum class kind : std::uint8_t { done, closed, threw_closed };
  kind how = kind::done;
  int index = nil;     // the case taken; unknown if it threw
  value_id value = 0;  // received; for a timer: its instant
};

struct record {
  enum class kind : std::uint8_t {
    begin,     // a select begins, with its wishes
    end,       // it ends, with its result
    channel,   // `object` made with capacity `a`
    timer,     // `object` made, due at `a`, every `b` (0: once)
    close,     // ok: it was open
    stop,      // ok: it was pending
    reset,     // to `a`, every `b`; ok as for stop
    deadline,  // `a` is the current deadline
    missed,    // `a` ticks have been dropped so far
    size,      // `a` values are in the buffer
  };
  kind what = kind::begin;
  int fiber = 0;
  instant now = 0;
  int object = nil;
  instant a = 0;
  instant b = 0;
  bool ok = false;        // begin: the select is ordered
  std::size_t first = 0;  // index of its wishes
  std::size_t count = 0;
  result got;
};

struct history {
  std::vector<record> records;
  std::vector<wish> wishes;
};

inline std::string to_string(const history& h, const record& r) {
  static constexpr const char* names[] = {
      "begin", "end", "channel", "timer", "close", "stop", "reset", "deadline", "missed", "size"};
  static constexpr const char* wishes[] = {"recv", "send", "timer", "timeout", "otherwise"};
  static constexpr const char* results[] = {"done", "closed", "threw closed"};
  const auto num = [](auto n) { return std::to_string(n); };
  std::string text =
      num(r.now) + " fiber " + num(r.fiber) + ": " + names[static_cast<std::size_t>(r.what)];
  if (r.what == record::kind::end) {
    return text + " " + results[static_cast<std::size_t>(r.got.how)] + ", case " +
           num(r.got.index) + ", value " + num(r.got.value);
  }
  if (r.what != record::kind::begin) {
    return text + " " + num(r.object) + " (" + num(r.a) + ", " + num(r.b) + ") " +
           (r.ok ? "true" : "false");
  }
  if (r.ok) text += " ordered";
  for (std::size_t i = r.first; i < r.first + r.count; ++i) {
    const wish& w = h.wishes[i];
    text += std::string(" [") + wishes[static_cast<std::size_t>(w.what)] + " " + num(w.object);
    if (w.what == wish::kind::send) text += " value " + num(w.value);
    if (w.what == wish::kind::timeout) text += " at " + num(w.deadline);
    text += "]";
  }
  return text;
}

}  // namespace vigil::testing_support
