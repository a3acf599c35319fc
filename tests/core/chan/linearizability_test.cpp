// Short histories of one channel, with fibers and plain threads together, and the checker
// itself on histories written by hand.
#include "core/chan/linearizability.hpp"

#include "core/chan/random_form.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using kind = channel_call::kind;
using ending = channel_call::ending;

namespace {

// Four actors that call at the same time, six to eight times each.
class short_history {
 public:
  explicit short_history(std::uint64_t seed)
      : dice_(seed), capacity_(dice_.below(4)), channel_(vigil::make_channel<int>(capacity_)) {}

  // Runs as the main fiber.
  void run() {
    const auto threads_act = vigil::runtime::current().make_work_guard();
    constexpr std::size_t actors = 4;
    std::vector<channel_call> made[actors];
    auto done = vigil::make_channel<void>(actors);
    std::vector<std::thread> plain;
    for (std::size_t i = 0; i < actors; ++i) {
      const auto act = [this, &made, &done, i, seed = dice_.next()] {
        seeded dice(seed);
        start_.recv();  // together, or one would be over before another has begun
        for (std::uint32_t n = 6 + dice.below(3); n > 0; --n)
          made[i].push_back(call(dice));
        done.send();
      };
      if (i < 2) {
        vigil::go(act);
      } else {
        plain.emplace_back(act);
      }
    }
    vigil::this_fiber::yield();
    start_.close();
    for (std::size_t i = 0; i < actors;) {
      if (done.recv_for(1ms)) {
        ++i;
      } else if (std::exchange(may_be_stuck_, false)) {
        calls_.push_back(close());  // nobody calls after this
      }
    }
    for (std::thread& t : plain)
      t.join();
    for (const auto& of_one : made)
      calls_.insert(calls_.end(), of_one.begin(), of_one.end());
  }

  const std::vector<channel_call>& calls() const { return calls_; }

  bool is_linearizable() const { return linearization(capacity_, calls_).exists(); }

  std::string text() const {
    std::vector<channel_call> sorted = calls_;
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.begun < b.begun;
    });
    std::string all = "capacity " + std::to_string(capacity_) + "\n";
    for (const channel_call& c : sorted)
      all += to_string(c) + "\n";
    return all;
  }

 private:
  static ending of(const vigil::send_result& r) {
    return r ? ending::done : r.is_closed() ? ending::closed : ending::not_ready;
  }

  static ending of(const vigil::recv_result<int>& r) {
    return r ? ending::done : r.is_closed() ? ending::closed : ending::not_ready;
  }

  channel_call call(seeded& dice) {
    const std::uint32_t roll = dice.below(40);
    if (roll == 0) return close();
    return roll % 2 == 0 ? send(dice) : recv(dice);
  }

  channel_call close() {
    channel_call c{kind::close, ending::done, false, 0, ++clock_, 0};
    try {
      channel_.close();
    } catch (const vigil::channel_closed&) {
      c.how = ending::closed;
    }
    c.ended = ++clock_;
    return c;
  }

  channel_call send(seeded& dice) {
    channel_call c{kind::send, ending::done, true, static_cast<std::uint8_t>(++last_value_), 0, 0};
    int value = c.value;
    const std::uint32_t form = dice.below(8);
    const auto moment = std::chrono::microseconds(1 + dice.below(30));
    c.waits = form > 2;
    c.begun = ++clock_;
    try {
      switch (form) {
        case 0:
        case 1:
          c.how = of(channel_.try_send(std::move(value)));
          break;
        case 2:
          vigil::select(vigil::on_send(channel_, std::move(value)),
                        vigil::otherwise([&] { c.how = ending::not_ready; }));
          break;
        case 3:
          channel_.send(std::move(value));
          break;
        case 4:
          vigil::select(vigil::on_send(channel_, std::move(value)),
                        vigil::on_timeout(moment, [&] { c.how = ending::not_ready; }));
          break;
        default:
          c.how = of(channel_.send_for(std::move(value), moment));
      }
    } catch (const vigil::channel_closed&) {
      c.how = ending::closed;
    }
    c.ended = ++clock_;
    return c;
  }

  channel_call recv(seeded& dice) {
    channel_call c{kind::recv, ending::not_ready, true, 0, 0, 0};
    const auto keep = [&c](std::optional<int> value) {
      c.how = value ? ending::done : ending::closed;
      if (value) c.value = static_cast<std::uint8_t>(*value);
    };
    const auto note = [&c](const vigil::recv_result<int>& r) {
      c.how = of(r);
      if (r) c.value = static_cast<std::uint8_t>(*r);
    };
    const std::uint32_t form = dice.below(8);
    const auto moment = std::chrono::microseconds(1 + dice.below(30));
    c.waits = form > 2;
    c.begun = ++clock_;
    switch (form) {
      case 0:
      case 1:
        note(channel_.try_recv());
        break;
      case 2:
        vigil::select(vigil::on_recv(channel_, keep), vigil::otherwise());
        break;
      case 3:
        keep(channel_.recv());
        break;
      case 4:
        vigil::select(vigil::on_recv(channel_, keep), vigil::on_timeout(moment));
        break;
      default:
        note(channel_.recv_for(moment));
    }
    c.ended = ++clock_;
    return c;
  }

  seeded dice_;
  const std::size_t capacity_;
  const vigil::channel<int> channel_;
  const vigil::channel<void> start_ = vigil::make_channel<void>();
  std::atomic<std::uint64_t> clock_{0};
  std::atomic<int> last_value_{0};
  bool may_be_stuck_ = true;
  std::vector<channel_call> calls_;
};

channel_call sent(int value, std::uint64_t from, std::uint64_t to) {
  return {kind::send, ending::done, true, static_cast<std::uint8_t>(value), from, to};
}

channel_call received(int value, std::uint64_t from, std::uint64_t to) {
  return {kind::recv, ending::done, true, static_cast<std::uint8_t>(value), from, to};
}

channel_call ended(kind what, ending how, std::uint64_t from, std::uint64_t to) {
  return {what, how, true, 9, from, to};
}

bool allows(std::size_t capacity, const std::vector<channel_call>& calls) {
  return linearization(capacity, calls).exists();
}

}  // namespace

TEST_SUITE("histories of one channel") {
  TEST_CASE("are linearizable: fibers and threads, every form, close") {
    std::uint64_t overlapping = 0;
    std::uint64_t all = 0;
    for (const unsigned workers : {2U, 8U}) {
      in_runtime({.workers = {workers}}, [&] {
        draw_until(operations(80'000, 1'000'000) / 2, [&](std::uint64_t seed) {
          short_history h(seed);
          h.run();
          NOTE(h.text());
          REQUIRE(h.is_linearizable());
          for (const channel_call& c : h.calls())
            overlapping += c.ended - c.begun > 1 ? 1 : 0;
          all += h.calls().size();
          return h.calls().size();
        });
      });
    }
    MESSAGE(overlapping << " of " << all << " calls overlapped others");
    CHECK(overlapping > 0);
  }

  TEST_CASE("without an order are refused: values that overtake, get lost or come twice") {
    CHECK(allows(2, {sent(1, 1, 2), sent(2, 3, 4), received(1, 5, 6), received(2, 7, 8)}));
    CHECK_FALSE(allows(2, {sent(1, 1, 2), sent(2, 3, 4), received(2, 5, 6), received(1, 7, 8)}));
    CHECK(allows(2, {sent(1, 1, 3), sent(2, 2, 4), received(2, 5, 6), received(1, 7, 8)}));
    CHECK_FALSE(allows(2, {sent(1, 1, 2), received(1, 3, 4), received(1, 5, 6)}));
    CHECK_FALSE(allows(1, {received(1, 1, 2), sent(1, 3, 4)}));
    CHECK_FALSE(allows(1, {sent(1, 1, 2), ended(kind::recv, ending::not_ready, 3, 4)}));
    CHECK_FALSE(allows(1, {sent(1, 1, 2), sent(2, 3, 4)}));
    CHECK_FALSE(allows(2, {sent(1, 1, 2), ended(kind::send, ending::not_ready, 3, 4)}));
    CHECK(allows(1, {sent(1, 1, 2), ended(kind::send, ending::not_ready, 3, 4)}));
    // The waiting send gets in when the other actor has received.
    CHECK(allows(1, {sent(1, 1, 2), sent(2, 3, 6), received(1, 4, 5), received(2, 7, 8)}));
  }

  TEST_CASE("without an order are refused: closing") {
    const auto closed = [](std::uint64_t from, std::uint64_t to) {
      return ended(kind::close, ending::done, from, to);
    };
    CHECK(allows(
        1,
        {sent(1, 1, 2), closed(3, 4), received(1, 5, 6), ended(kind::recv, ending::closed, 7, 8)}));
    CHECK_FALSE(allows(1, {sent(1, 1, 2), closed(3, 4), ended(kind::recv, ending::closed, 5, 6)}));
    CHECK_FALSE(allows(1, {closed(1, 2), sent(1, 3, 4)}));
    CHECK_FALSE(allows(1, {closed(1, 2), closed(3, 4)}));
    CHECK_FALSE(allows(1, {closed(1, 2), ended(kind::recv, ending::not_ready, 3, 4)}));
    CHECK_FALSE(allows(1, {ended(kind::send, ending::closed, 1, 2), closed(3, 4)}));
    CHECK(allows(1, {ended(kind::send, ending::closed, 1, 4), closed(2, 3)}));
    CHECK_FALSE(allows(1, {ended(kind::close, ending::closed, 1, 2)}));
  }

  TEST_CASE("without a buffer are refused where two calls did not meet") {
    CHECK(allows(0, {sent(1, 1, 3), received(1, 2, 4)}));
    CHECK_FALSE(allows(0, {sent(1, 1, 2), received(1, 3, 4)}));
    CHECK_FALSE(allows(0, {sent(1, 1, 3), received(2, 2, 4)}));
    CHECK_FALSE(allows(0, {sent(1, 1, 5)}));
    channel_call try_send = sent(1, 1, 3);
    channel_call try_recv = received(1, 2, 4);
    try_send.waits = false;
    CHECK(allows(0, {try_send, try_recv}));
    try_recv.waits = false;
    CHECK_FALSE(allows(0, {try_send, try_recv}));
  }
}
