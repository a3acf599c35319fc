// Includes, names and helpers that the tests of channels and select share.
#pragma once

#include "core/chan/channel_core.hpp"
#include "support/in_runtime.hpp"

#include <vigil/channel.hpp>
#include <vigil/select.hpp>
#include <vigil/time.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using vigil::channel;
using vigil::channel_closed;
using vigil::channel_status;
using vigil::go;
using vigil::make_channel;
using vigil::on_recv;
using vigil::on_send;
using vigil::on_timeout;
using vigil::otherwise;
using vigil::receiver;
using vigil::select;
using vigil::select_ordered;
using vigil::sender;
using vigil::sleep_for;
using vigil::spawn;
using vigil::testing::settle;

// As rounds(), and ten times as many under VIGIL_LONG.
inline int many(int full) {
  static const bool is_long = std::getenv("VIGIL_LONG") != nullptr;
  return is_long ? full * 10 : rounds(full);
}

inline channel<int> with_value(int v, std::size_t capacity = 1) {
  auto c = make_channel<int>(capacity);
  c.send(v);
  return c;
}

inline channel<int> closed_channel() {
  auto c = make_channel<int>();
  c.close();
  return c;
}

// Returns whether f(), on a fiber of its own in virtual time, still waits when nothing
// else can happen at this instant. The fiber is then stopped.
template <class F>
bool waits(F f) {
  bool returned = false;
  auto other = spawn([&] {
    f();
    returned = true;
  });
  testing::settle();
  if (other.join_for(std::chrono::nanoseconds(0))) {
    other.join();  // throws what f threw
    return !returned;
  }
  other.request_stop();
  CHECK_THROWS_AS(other.join(), cancelled);
  CHECK_FALSE(returned);
  return true;
}

// Overwrites the stack below the caller, so that code which finds a waiter there that
// should be gone follows a bad pointer.
[[gnu::noinline]] inline void wipe_stack_below() {
  unsigned char dirt[8192];
  std::memset(dirt, 0xab, sizeof dirt);
  asm volatile("" : : "r"(dirt) : "memory");
}

// Checks that nobody waits on the channel: neither a waiter that could be served nor one
// whose wait has ended. Earlier waits must have been on the calling fiber or thread. The
// channel must be empty and open; it is so afterwards as well.
template <class Ch>
[[gnu::noinline]] void check_nobody_waits(const Ch& ch) {
  wipe_stack_below();
  {
    auto& core = *ch.core();
    const detail::lock_guard guard(core.lock);
    CHECK_FALSE(core.has_receivers());
  }
  // Looks into the queue of the senders, and finds it empty.
  CHECK(ch.try_recv().status() == channel_status::not_ready);
}

// n rounds of two plain threads: before(i) alone, then first(i) and, as soon as the other
// thread sees the round begin, second(i), then after(i) alone. On a machine so busy that
// the two seldom run at once it ends after two seconds.
template <class Before, class First, class Second, class After>
void race(int n, Before before, First first, Second second, After after) {
  constexpr int over = -1;
  std::atomic<int> began{0};
  std::atomic<int> ended{0};
  std::thread other([&] {
    for (int i = 1;; ++i) {
      int now = 0;
      for (int spins = 0; (now = began.load(std::memory_order_acquire)) < i && now != over;
           ++spins) {
        if (spins > 2000) std::this_thread::yield();
      }
      if (now == over) return;
      second(i);
      ended.store(i, std::memory_order_release);
    }
  });
  const auto start = std::chrono::steady_clock::now();
  for (int i = 1; i <= n; ++i) {
    before(i);
    began.store(i, std::memory_order_release);
    first(i);
    while (ended.load(std::memory_order_acquire) < i)
      std::this_thread::yield();
    after(i);
    if (i % 16 == 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(2)) break;
  }
  began.store(over, std::memory_order_release);
  other.join();
}

// One in 10^9 fair draws would fail: six sigma, as in Go's own test.
inline void check_share(int got, int total, int of) {
  const double p = 1.0 / of;
  const double sigma = std::sqrt(total * p * (1 - p));
  CHECK(got > total * p - 6 * sigma);
  CHECK(got < total * p + 6 * sigma);
}

// Pearson's statistic of counts that should be equal.
inline double chi_square(const std::vector<int>& counts) {
  double total = 0;
  for (const int c : counts)
    total += c;
  const double expected = total / static_cast<double>(counts.size());
  double sum = 0;
  for (const int c : counts)
    sum += (c - expected) * (c - expected) / expected;
  return sum;
}

}  // namespace vigil::testing_support
