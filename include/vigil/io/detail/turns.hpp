// The calls of one direction of a stream, one after the other.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/sync.hpp>

#include <mutex>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

class turns {
 public:
  class call;
  class try_call;

  turns() = default;
  turns(const turns&) = delete;
  turns& operator=(const turns&) = delete;

  // For who waits whatever comes, as close() does: between two calls, also if more wait.
  mutex& between_calls() noexcept { return one_; }

 private:
  // Gives back what it has acquired.
  struct place {
    explicit place(semaphore& s) : queue(s) { queue.acquire(); }
    place(const place&) = delete;
    place& operator=(const place&) = delete;
    ~place() { queue.release(); }
    semaphore& queue;
  };

  semaphore queue_{1};  // of the calls, each until it is stopped
  mutex one_;           // the first of them, or who waits whatever comes
};

// The turn of one call, as long as it lives. To make it throws `stopped` if it must
// wait for it; nothing has been begun then.
class turns::call {
 public:
  explicit call(turns& t) : place_(t.queue_), turn_(t.one_) {}

 private:
  place place_;
  std::lock_guard<mutex> turn_;
};

// The same, if it is to be had without a wait.
class turns::try_call {
 public:
  explicit try_call(turns& t)
      : of_(t), has_place_(t.queue_.try_acquire()), has_turn_(has_place_ && t.one_.try_lock()) {}
  try_call(const try_call&) = delete;
  try_call& operator=(const try_call&) = delete;
  ~try_call() {
    if (has_turn_) of_.one_.unlock();
    if (has_place_) of_.queue_.release();
  }

  explicit operator bool() const noexcept { return has_turn_; }

 private:
  turns& of_;
  const bool has_place_;
  const bool has_turn_;
};

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io
