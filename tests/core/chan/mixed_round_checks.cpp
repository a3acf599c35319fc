// The end of a mixed round: the laws for timers, channels and values.
#include "core/chan/mixed_round.hpp"

#include <set>
#include <utility>
#include <vector>

namespace vigil::testing_support {

void mixed_round::check_timers() {
  for (vigil::timer& t : timers_)
    if (t.stop()) ++ended_;
  expect(armed_ == ended_, "MR3: an arming of a timer ended twice or never");
  ticker_.stop();
  std::set<time_point> seen;
  for (const auto& a : actors_) {
    for (const time_point t : a->ticks) {
      expect(seen.insert(t).second, "MR3: a tick came twice");
      expect((t - start_) % tick == std::chrono::nanoseconds(0), "MR3: a tick is off the grid");
    }
  }
}

void mixed_round::check_channels() {
  actor& rest = *actors_.front();
  std::size_t closed = 0;
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    while (auto r = channels_[c].try_recv())
      accept(rest, c, *std::move(r));
    parcel value(c, 0, 1);
    if (channels_[c].try_recv().is_closed()) {
      ++closed;
      expect(channels_[c].try_send(std::move(value)).is_closed(), "MR4: closed, but not for sends");
      expect(value.is_here(), "MR4: a closed channel took a value");
      continue;
    }
    for (std::size_t i = 0; i < channels_[c].capacity(); ++i, value = parcel(c, 0, 1)) {
      expect(static_cast<bool>(channels_[c].try_send(std::move(value))),
             "MR4: somebody waits to send, or the buffer is too small");
    }
    expect(!channels_[c].try_send(std::move(value)) && value.is_here(),
           "MR4: somebody waits to receive, or the buffer is too large");
    expect(channels_[c].size() == channels_[c].capacity(), "MR4: the size is wrong");
  }
  expect(closed == closes_.load(), "MR4: a channel was closed twice or is not closed");
}

void mixed_round::check_values() {
  // arrived[channel][sender][number - 1]
  std::vector<std::vector<std::vector<int>>> arrived(channels_.size());
  for (std::size_t c = 0; c < channels_.size(); ++c) {
    for (const auto& a : actors_)
      arrived[c].emplace_back(a->sent[c], 0);
  }
  for (const auto& a : actors_) {
    std::vector<std::vector<std::uint32_t>> last(channels_.size(),
                                                 std::vector<std::uint32_t>(actors_.size(), 0));
    for (const parcel& p : a->got) {
      std::vector<int>& numbers = arrived[p.channel][p.from];
      if (p.number > numbers.size()) {
        expect(false, "MR1: a value arrived that was not sent");
        continue;
      }
      ++numbers[p.number - 1];
      std::uint32_t& before = last[p.channel][p.from];
      expect(p.number > before, "MR2: a later value of a sender was received first");
      before = p.number;
    }
  }
  for (const auto& by_sender : arrived) {
    for (const auto& numbers : by_sender) {
      for (const int times : numbers) {
        expect(times != 0, "MR1: a value was lost");
        expect(times <= 1, "MR1: a value arrived twice");
      }
    }
  }
}

}  // namespace vigil::testing_support
