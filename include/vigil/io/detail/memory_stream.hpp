// The two directions of a memory_pipe, and their operations.
#pragma once

#include <vigil/detail/site.hpp>
#include <vigil/io/detail/readiness.hpp>
#include <vigil/io/memory_executor.hpp>
#include <vigil/io/use_fiber.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

namespace VIGIL_IO_DETAIL {

// One direction of a pipe.
class memory_half {
 public:
  // An operation that waits for a change. One of its two functions is called, once, by
  // the caller that takes it out under the lock.
  struct waiting {
    virtual void again() = 0;
    virtual void abort() = 0;

    const std::uint64_t number;

   protected:
    explicit waiting(std::uint64_t n) : number(n) {}

    ~waiting() = default;
  };

  memory_half(std::size_t capacity, const site& from) : made_at(from), bytes_(capacity) {}

  const vigil::detail::birth made_at;  // of the pipe

  // Transfers as much as there is, or as there is room for; fails with would_block if
  // that is nothing.
  template <bool Reads, class Buffers>
  std::size_t transfer(const Buffers& buffers, boost::system::error_code& error) {
    using buffer =
        std::conditional_t<Reads, boost::asio::mutable_buffer, boost::asio::const_buffer>;
    waiting* other = nullptr;
    std::size_t n = 0;
    {
      const std::lock_guard guard(lock_);
      error = error_of<Reads>(boost::asio::buffer_size(buffers) == 0);
      if (!error) {
        for (auto b = boost::asio::buffer_sequence_begin(buffers);
             b != boost::asio::buffer_sequence_end(buffers);
             ++b) {
          n += copy(buffer(*b));
        }
        if (n != 0) other = std::exchange(Reads ? writer_ : reader_, nullptr);
      }
    }
    if (other != nullptr) other->again();
    return n;
  }

  enum class wait_result { waits, try_again, taken };

  template <bool Reads>
  wait_result wait(waiting& w) {
    const std::lock_guard guard(lock_);
    waiting*& place = Reads ? reader_ : writer_;
    if (place != nullptr) return wait_result::taken;
    if (error_of<Reads>(false) != boost::asio::error::would_block) return wait_result::try_again;
    place = &w;
    return wait_result::waits;
  }

  // The number of an operation, which is never reused, because a cancellation may come
  // late.
  std::uint64_t next_number() {
    const std::lock_guard guard(lock_);
    return ++last_number_;
  }

  void cancel(std::uint64_t number) {
    waiting* found = nullptr;
    {
      const std::lock_guard guard(lock_);
      for (waiting** const place : {&reader_, &writer_}) {
        if (*place != nullptr && (*place)->number == number) {
          found = std::exchange(*place, nullptr);
        }
      }
    }
    if (found != nullptr) found->abort();
  }

  bool is_readable() {
    const std::lock_guard guard(lock_);
    return error_of<true>(false) != boost::asio::error::would_block;
  }

  bool is_writable() {
    const std::lock_guard guard(lock_);
    return error_of<false>(false) != boost::asio::error::would_block;
  }

  void cancel_reader() { cancel(&memory_half::reader_); }

  void cancel_writer() { cancel(&memory_half::writer_); }

  // Called by the end that writes: the other end reads the bytes that are left, then eof.
  void close_writer() { close(writer_closed_, writer_, reader_); }

  // Called by the end that reads: the other end's writes fail.
  void close_reader() { close(reader_closed_, reader_, writer_); }

 private:
  void cancel(waiting* memory_half::*place) {
    waiting* found = nullptr;
    {
      const std::lock_guard guard(lock_);
      found = std::exchange(this->*place, nullptr);
    }
    if (found != nullptr) found->abort();
  }

  void close(bool& closed, waiting*& own, waiting*& others) {
    waiting* ends = nullptr;
    waiting* looks = nullptr;
    {
      const std::lock_guard guard(lock_);
      closed = true;
      ends = std::exchange(own, nullptr);
      looks = std::exchange(others, nullptr);
    }
    if (ends != nullptr) ends->abort();
    if (looks != nullptr) looks->again();
  }

  template <bool Reads>
  boost::system::error_code error_of(bool nothing) const {
    if (Reads ? reader_closed_ : writer_closed_) return boost::asio::error::bad_descriptor;
    if (!Reads && reader_closed_) return boost::asio::error::broken_pipe;
    if (nothing || size_ != (Reads ? 0 : bytes_.size())) return {};
    if (Reads && writer_closed_) return boost::asio::error::eof;
    return boost::asio::error::would_block;
  }

  std::size_t copy(boost::asio::mutable_buffer to) {
    std::size_t all = 0;
    while (to.size() != 0 && size_ != 0) {
      const std::size_t n = std::min({to.size(), size_, bytes_.size() - first_});
      boost::asio::buffer_copy(to, boost::asio::buffer(bytes_.data() + first_, n));
      first_ = (first_ + n) % bytes_.size();
      size_ -= n;
      to += n;
      all += n;
    }
    return all;
  }

  std::size_t copy(boost::asio::const_buffer from) {
    std::size_t all = 0;
    while (from.size() != 0 && size_ != bytes_.size()) {
      const std::size_t end = (first_ + size_) % bytes_.size();
      const std::size_t room = std::min(bytes_.size() - size_, bytes_.size() - end);
      const std::size_t n = std::min(from.size(), room);
      boost::asio::buffer_copy(boost::asio::buffer(bytes_.data() + end, n), from);
      size_ += n;
      from += n;
      all += n;
    }
    return all;
  }

  std::mutex lock_;
  std::vector<char> bytes_;  // a ring buffer
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  bool reader_closed_ = false;
  bool writer_closed_ = false;
  waiting* reader_ = nullptr;
  waiting* writer_ = nullptr;
  std::uint64_t last_number_ = 0;
};

// True for a fiber's own handler: it only marks the fiber ready, so it may run inside the
// call that begins or completes the operation. Any other handler may begin the next
// operation there, and so on.
template <class Handler>
inline constexpr bool only_marks = false;

template <class Allocator, class Values>
inline constexpr bool only_marks<fiber_handler<Allocator, Values>> = true;

template <class Handler, class... Values>
void call_in_program(Handler handler, Values... values) {
  if constexpr (std::is_same_v<Handler, ready_handler>) {
    std::move(handler)(values...);  // only marks as well, and has no executor
  } else {
    const auto executor = boost::asio::get_associated_executor(handler, memory_executor());
    auto call = [h = std::move(handler), ... v = std::move(values)]() mutable {
      std::move(h)(std::move(v)...);
    };
    if constexpr (only_marks<Handler>) {
      boost::asio::dispatch(executor, std::move(call));
    } else {
      boost::asio::post(executor, std::move(call));
    }
  }
}

// Makes a cancellation of the handler end the operation with this number.
template <class Handler, class Target>
void cancel_by_slot(const Handler& handler,
                    const std::shared_ptr<Target>& target,
                    std::uint64_t number) {
  auto slot = boost::asio::get_associated_cancellation_slot(handler);
  if (!slot.is_connected()) return;
  slot.assign([target, number](boost::asio::cancellation_type_t type) {
    if (type != boost::asio::cancellation_type::none) target->cancel(number);
  });
}

template <bool Reads, class Handler, class Buffers>
class memory_operation final : public memory_half::waiting {
 public:
  memory_operation(std::shared_ptr<memory_half> half, Handler&& handler, const Buffers& buffers)
      : waiting(half->next_number()),
        half_(std::move(half)),
        handler_(std::move(handler)),
        buffers_(buffers) {}

  // May throw std::bad_alloc; the caller then still owns it. again() follows.
  void prepare() { cancel_by_slot(handler_, half_, number); }

  void again() override {
    for (;;) {
      boost::system::error_code error;
      const std::size_t n = half_->transfer<Reads>(buffers_, error);
      if (error != boost::asio::error::would_block) {
        finish(error, n);
        return;
      }
      // Kept, because once the operation waits, another thread may end it.
      const std::shared_ptr<memory_half> half = half_;
      const auto result = half->wait<Reads>(*this);
      if (result == memory_half::wait_result::waits) return;
      if (result == memory_half::wait_result::taken) {
        finish(boost::asio::error::already_started, 0);
        return;
      }
    }
  }

  void abort() override { finish(boost::asio::error::operation_aborted, 0); }

 private:
  void finish(const boost::system::error_code& error, std::size_t n) {
    Handler handler = std::move(handler_);
    delete this;
    call_in_program(std::move(handler), error, n);
  }

  std::shared_ptr<memory_half> half_;
  Handler handler_;
  Buffers buffers_;
};

template <bool Reads>
struct initiate_memory_operation {
  // Tells use_fiber that the operation completes inside the program.
  using inside_program = void;

  const vigil::detail::birth* made_at() const noexcept { return &half->made_at; }

  template <class Handler, class Buffers>
  void operator()(Handler&& handler, const Buffers& buffers) const {
    using made = memory_operation<Reads, std::decay_t<Handler>, Buffers>;
    auto operation = std::make_unique<made>(
        half, std::decay_t<Handler>(std::forward<Handler>(handler)), buffers);
    operation->prepare();
    operation.release()->again();
  }

  std::shared_ptr<memory_half> half;
};

// Waits until the half is readable, or writable, and transfers nothing.
template <bool Reads, class Handler>
class memory_wait final : public memory_half::waiting {
 public:
  memory_wait(std::shared_ptr<memory_half> half, Handler&& handler)
      : waiting(half->next_number()), half_(std::move(half)), handler_(std::move(handler)) {}

  // May throw std::bad_alloc; the caller then still owns it. again() follows.
  void prepare() { cancel_by_slot(handler_, half_, number); }

  void again() override {
    // Kept, because once the operation waits, another thread may end it.
    const std::shared_ptr<memory_half> half = half_;
    const auto result = half->wait<Reads>(*this);
    if (result == memory_half::wait_result::try_again) finish({});
    if (result == memory_half::wait_result::taken) finish(boost::asio::error::already_started);
  }

  void abort() override { finish(boost::asio::error::operation_aborted); }

 private:
  void finish(const boost::system::error_code& error) {
    Handler handler = std::move(handler_);
    delete this;
    call_in_program(std::move(handler), error);
  }

  std::shared_ptr<memory_half> half_;
  Handler handler_;
};

struct initiate_memory_wait {
  // As for initiate_memory_operation.
  using inside_program = void;

  const vigil::detail::birth* made_at() const noexcept { return &half->made_at; }

  template <class Handler>
  void operator()(Handler&& handler) const {
    if (reads) {
      begin<true>(std::forward<Handler>(handler));
    } else {
      begin<false>(std::forward<Handler>(handler));
    }
  }

  std::shared_ptr<memory_half> half;
  bool reads;

 private:
  template <bool Reads, class Handler>
  void begin(Handler&& handler) const {
    using made = memory_wait<Reads, std::decay_t<Handler>>;
    auto operation =
        std::make_unique<made>(half, std::decay_t<Handler>(std::forward<Handler>(handler)));
    operation->prepare();
    operation.release()->again();
  }
};

}  // namespace VIGIL_IO_DETAIL
