// The two directions of a deadline_stream, and the options of the stream below.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/idle_list.hpp>
#include <vigil/sync.hpp>

#include <mutex>
#include <type_traits>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace boost::asio::ip {
class tcp;
}

namespace boost::asio::generic {
class stream_protocol;
}

namespace vigil::io::inline VIGIL_ABI::detail {

// The calls of one direction of a stream, one after the other.
class turns {
 public:
  class call;
  class try_call;

  turns() = default;
  turns(const turns&) = delete;
  turns& operator=(const turns&) = delete;

  // For uninterruptible waiters such as close(): a turn between two calls, even if more
  // wait.
  mutex& between_calls() noexcept { return one_; }

 private:
  // Gives back the permit that it has acquired.
  struct place {
    explicit place(semaphore& s) : queue(s) { queue.acquire(); }

    place(const place&) = delete;
    place& operator=(const place&) = delete;

    ~place() { queue.release(); }

    semaphore& queue;
  };

  semaphore queue_{1};  // of the calls; a stop ends the wait in it
  mutex one_;           // held by the first call, or by an uninterruptible waiter
};

// The turn of one call, while it lives. The constructor throws `stopped` if it would have
// to wait; nothing has begun then.
class turns::call {
 public:
  explicit call(turns& t) : place_(t.queue_), turn_(t.one_) {}

 private:
  place place_;
  std::lock_guard<mutex> turn_;
};

// The same, if the turn can be had without a wait.
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

struct stream_side {
  explicit stream_side(time_of name) : deadline(name) {}

  turns calls;
  movable_deadline deadline;
  unsigned at_once = 0;      // in a row; guarded by calls
  bool was_emptied = false;  // guarded by calls: the last read left nothing
};

struct stream_sides {
  stream_side read{time_of::read};
  stream_side write{time_of::write};
  std::mutex setup;          // never held across a wait
  bool no_delay = true;      // guarded by setup
  bool has_options = false;  // guarded by setup; false after a change of them
  idle_list* joined = nullptr;
  idle_entry idle{read.deadline, write.deadline};  // is destroyed first
};

template <class Stream>
concept may_be_tcp =
    std::is_same_v<typename Stream::protocol_type, boost::asio::ip::tcp> ||
    std::is_same_v<typename Stream::protocol_type, boost::asio::generic::stream_protocol>;

}  // namespace vigil::io::inline VIGIL_ABI::detail
