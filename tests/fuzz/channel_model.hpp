// Go's channels and selects as a sequential program. On one worker the calls of all
// fibers have an order, that in which they begin, and between two of them a wait can only
// end by its deadline or its context. So the model knows how each call ends, but for the
// draw among cases that are ready, and for a deadline and a context of the same instant.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/context.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

namespace fuzz {

using value_id = std::uint32_t;

struct model_wait;

struct model_channel {
  struct entry {
    model_wait* wait;
    std::size_t index;  // of the case
  };

  std::size_t capacity = 0;
  bool is_closed = false;
  std::deque<value_id> buffer;
  std::deque<entry> senders;
  std::deque<entry> receivers;
};

// A case. A nil channel is nullptr.
struct model_wish {
  enum class kind : std::uint8_t { recv, send, done, timeout, otherwise };
  kind what = kind::recv;
  model_channel* channel = nullptr;
  value_id value = 0;       // to send
  vigil::context ctx = {};  // of done
};

struct model_result {
  enum class kind : std::uint8_t { took, closed, threw_closed, cancelled, stopped };
  kind how = kind::took;
  std::size_t index = 0;
  value_id value = 0;  // that was received

  bool operator==(const model_result&) const = default;
};

// A call. It lies on the caller's stack. At most one of its cases sends on a channel, so
// that it is known which value is taken.
struct model_wait {
  std::vector<model_wish> wishes;
  vigil::context limit;        // of the whole call; nil: none
  nanos deadline = INT64_MAX;  // of the first timeout, if one of the wishes is one
  std::size_t timeout = 0;     // which of them
  bool is_ordered = false;     // takes the first that is ready
  const bool* stops = nullptr;

  bool is_queued = false;
  bool is_done = false;  // by another call, or by time
  std::vector<model_result> may_be;
};

class channel_model {
 public:
  void begin(model_wait& w) {
    sync();
    for (std::size_t i = 0; i < w.wishes.size(); ++i) {
      if (!is_ready(w.wishes[i])) continue;
      w.may_be.push_back({kind_of(w.wishes[i]), i, 0});
      if (w.is_ordered) break;
    }
    if (!w.may_be.empty()) return;
    if (const std::size_t i = find(w, model_wish::kind::otherwise); i != w.wishes.size()) {
      w.may_be.push_back({model_result::kind::took, i, 0});
      return;
    }
    if (w.deadline <= now()) {
      w.may_be.push_back({model_result::kind::took, w.timeout, 0});
      return;
    }
    if (*w.stops) w.may_be.push_back({model_result::kind::stopped, 0, 0});
    if (w.limit && w.limit.is_done()) w.may_be.push_back({model_result::kind::cancelled, 0, 0});
    if (!w.may_be.empty()) return;
    enqueue(w);
  }

  // Compares how the call has ended.
  void end(model_wait& w, const model_result& got) {
    sync();
    expect(!w.is_queued, "a call ends without a reason");
    for (const model_result& r : w.may_be) {
      // An exception does not say of which case it is.
      if (r.how != got.how || (!is_exception(r) && r.index != got.index)) continue;
      const bool is_open = has_value(w, r) && !w.is_done;
      if (is_open) return expect(commit(w.wishes[r.index]) == got.value, "the value received");
      if (r.value == got.value) return;
    }
    expect(false, "a call ends in a way that it cannot");
  }

  // Returns false if it is closed already.
  bool close(model_channel& c) {
    sync();
    if (c.is_closed) return false;
    c.is_closed = true;
    while (!c.receivers.empty())
      finish_closed(*c.receivers.front().wait, c);
    while (!c.senders.empty())
      finish_closed(*c.senders.front().wait, c);
    return true;
  }

  // Ends what deadlines, contexts and stops have ended since the last call. Called before
  // each call that changes anything, and after a cancel and a stop.
  void sync() {
    const std::vector<model_wait*> all = queued_;
    for (model_wait* const w : all) {
      std::vector<model_result> ends;
      for (std::size_t i = 0; i < w->wishes.size(); ++i) {
        const model_wish& wish = w->wishes[i];
        if (wish.what == model_wish::kind::done && wish.ctx.is_done())
          ends.push_back({model_result::kind::closed, i, 0});
      }
      if (w->deadline <= now()) ends.push_back({model_result::kind::took, w->timeout, 0});
      if (w->limit && w->limit.is_done()) ends.push_back({model_result::kind::cancelled, 0, 0});
      if (*w->stops) ends.push_back({model_result::kind::stopped, 0, 0});
      if (!ends.empty()) finish(*w, std::move(ends));
    }
  }

  [[nodiscard]] bool nothing_waits() const { return queued_.empty(); }

 private:
  static std::size_t find(const model_wait& w, model_wish::kind what) {
    std::size_t i = 0;
    while (i != w.wishes.size() && w.wishes[i].what != what)
      ++i;
    return i;
  }

  static bool is_ready(const model_wish& w) {
    if (w.what == model_wish::kind::done) return w.ctx.is_done();
    if (w.channel == nullptr) return false;
    const model_channel& c = *w.channel;
    if (w.what == model_wish::kind::recv)
      return c.is_closed || !c.buffer.empty() || !c.senders.empty();
    if (w.what == model_wish::kind::send)
      return c.is_closed || c.buffer.size() < c.capacity || !c.receivers.empty();
    return false;
  }

  // How the case ends that is ready now.
  static model_result::kind kind_of(const model_wish& w) {
    if (w.what == model_wish::kind::done) return model_result::kind::closed;
    const model_channel& c = *w.channel;
    if (w.what == model_wish::kind::send)
      return c.is_closed ? model_result::kind::threw_closed : model_result::kind::took;
    const bool has_values = !c.buffer.empty() || !c.senders.empty();
    return has_values ? model_result::kind::took : model_result::kind::closed;
  }

  static bool is_exception(const model_result& r) {
    return r.how != model_result::kind::took && r.how != model_result::kind::closed;
  }

  // Whether the result is that of a send or a receive.
  static bool has_value(const model_wait& w, const model_result& r) {
    if (r.how != model_result::kind::took) return false;
    const model_wish::kind what = w.wishes[r.index].what;
    return what == model_wish::kind::send || what == model_wish::kind::recv;
  }

  // Does what the library has done in a call that did not wait. Returns what is received.
  value_id commit(const model_wish& w) {
    model_channel& c = *w.channel;
    if (w.what == model_wish::kind::send) {
      if (c.receivers.empty()) {
        c.buffer.push_back(w.value);
      } else {
        take_first(c.receivers, w.value);
      }
      return 0;
    }
    if (!c.senders.empty()) {
      const model_channel::entry first = c.senders.front();
      c.buffer.push_back(first.wait->wishes[first.index].value);
      take_first(c.senders, 0);
    }
    const value_id got = c.buffer.front();
    c.buffer.pop_front();
    return got;
  }

  void take_first(std::deque<model_channel::entry>& queue, value_id received) {
    const model_channel::entry first = queue.front();
    const model_wish& taken = first.wait->wishes[first.index];
    // By whichever of its cases that wish for the same.
    std::vector<model_result> ends;
    for (std::size_t i = 0; i < first.wait->wishes.size(); ++i) {
      const model_wish& wish = first.wait->wishes[i];
      if (wish.what == taken.what && wish.channel == taken.channel)
        ends.push_back({model_result::kind::took, i, received});
    }
    finish(*first.wait, std::move(ends));
  }

  void enqueue(model_wait& w) {
    w.is_queued = true;
    queued_.push_back(&w);
    for (std::size_t i = 0; i < w.wishes.size(); ++i) {
      const model_wish& wish = w.wishes[i];
      if (wish.channel == nullptr) continue;
      auto& queue =
          wish.what == model_wish::kind::send ? wish.channel->senders : wish.channel->receivers;
      queue.push_back({&w, i});
    }
  }

  void finish(model_wait& w, std::vector<model_result> how) {
    w.is_queued = false;
    w.is_done = true;
    w.may_be = std::move(how);
    std::erase(queued_, &w);
    const auto is_mine = [&w](const model_channel::entry& e) { return e.wait == &w; };
    for (const model_wish& wish : w.wishes) {
      if (wish.channel == nullptr) continue;
      std::erase_if(wish.channel->senders, is_mine);
      std::erase_if(wish.channel->receivers, is_mine);
    }
  }

  // By whichever of its cases on that channel.
  void finish_closed(model_wait& w, const model_channel& c) {
    std::vector<model_result> how;
    for (std::size_t i = 0; i < w.wishes.size(); ++i) {
      if (w.wishes[i].channel != &c) continue;
      const bool sends = w.wishes[i].what == model_wish::kind::send;
      how.push_back({sends ? model_result::kind::threw_closed : model_result::kind::closed, i, 0});
    }
    finish(w, std::move(how));
  }

  std::vector<model_wait*> queued_;
};

}  // namespace fuzz
