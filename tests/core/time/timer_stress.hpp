// Helpers that the real-time tests of timers with a channel share.
#pragma once

#include "core/time/time_test.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace vigil::testing_support {

// VIGIL_LONG=1: fifty times as many.
inline int many(int full) {
  static const bool is_long = std::getenv("VIGIL_LONG") != nullptr;
  return is_long ? full * 50 : rounds(full);
}

// Starts n fibers with body(i) and waits for them.
template <class F>
void in_fibers(int n, F body) {
  std::vector<fiber<>> fibers;
  for (int i = 0; i < n; ++i)
    fibers.push_back(spawn([&body, i] { body(i); }));
  for (auto& f : fibers)
    f.join();
}

// A plain thread beside the calling fiber's runtime. A fiber that waits for its end
// parks, and the workers go on.
class plain_thread {
 public:
  template <class F>
  explicit plain_thread(F body)
      : thread_([this, body = std::move(body)]() mutable {
          body();
          done_.send();
        }) {}

  plain_thread(const plain_thread&) = delete;
  plain_thread& operator=(const plain_thread&) = delete;

  void join() {
    done_.recv();
    thread_.join();
  }

 private:
  work_guard is_no_deadlock_ = runtime::current().make_work_guard();
  channel<void> done_ = make_channel<void>(1);
  std::thread thread_;
};

// The values that several receivers got.
class log_of_values {
 public:
  void add(instant value) {
    const std::lock_guard guard(lock_);
    values_.push_back(value);
  }

  std::vector<instant> sorted() {
    const std::lock_guard guard(lock_);
    std::sort(values_.begin(), values_.end());
    return values_;
  }

 private:
  std::mutex lock_;  // held for a few instructions, never across a park
  std::vector<instant> values_;
};

inline bool all_differ(const std::vector<instant>& sorted) {
  return std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
}

// Receives until `end` is closed.
inline void receive_all(const timer_receiver& from, const channel<void>& end, log_of_values& log) {
  bool on = true;
  while (on) {
    select(on_recv(from,
                   [&](std::optional<instant> v) {
                     REQUIRE(v.has_value());
                     REQUIRE(clock::now() >= *v);
                     log.add(*v);
                   }),
           on_recv(end, [&] { on = false; }));
  }
}

}  // namespace vigil::testing_support
