// memory_pipe: two connected streams within the program, for tests.
//
//   auto [client, server] = io::memory_pipe();
//   io::deadline_stream<io::memory_stream> c(std::move(client));
//
// What is written to one is read from the other; each direction keeps up to
// `capacity` bytes, and a write beyond that waits. A wait of a fiber for one of its
// operations, be it its own, that of a deadline_stream over it, or a composed one such
// as asio::async_read, is not outside work: on virtual time the clock moves on, and
// fibers that wait for each other are a deadlock.
//
// Handlers that are no fiber's, the steps of composed operations among them, run as by
// asio::post: where their associated executor says, otherwise on fibers of the runtime
// (memory_executor.hpp), in an order that the seed replays.
//
// Thread safety: the two ends may be used at the same time by different fibers or
// threads; one end as a socket: one read and one write at a time.
#pragma once

#include <vigil/io/memory_executor.hpp>
#include <vigil/io/use_fiber.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

// One direction.
class memory_half {
 public:
  // Waits until something has changed for its side. Whoever takes it out under the
  // lock calls one of the two, once.
  struct waiting {
    virtual void again() = 0;
    virtual void abort() = 0;

    const std::uint64_t number;

   protected:
    explicit waiting(std::uint64_t n) : number(n) {}
    ~waiting() = default;
  };

  explicit memory_half(std::size_t capacity) : bytes_(capacity) {}

  template <class Buffers>
  std::size_t read(const Buffers& to, boost::system::error_code& error) {
    waiting* writer = nullptr;
    std::size_t n = 0;
    {
      const std::lock_guard guard(lock_);
      error = read_error(boost::asio::buffer_size(to) == 0);
      if (!error) {
        for (auto b = boost::asio::buffer_sequence_begin(to);
             b != boost::asio::buffer_sequence_end(to); ++b) {
          n += take(boost::asio::mutable_buffer(*b));
        }
        if (n != 0) writer = std::exchange(writer_, nullptr);
      }
    }
    if (writer != nullptr) writer->again();
    return n;
  }

  template <class Buffers>
  std::size_t write(const Buffers& from, boost::system::error_code& error) {
    waiting* reader = nullptr;
    std::size_t n = 0;
    {
      const std::lock_guard guard(lock_);
      error = write_error(boost::asio::buffer_size(from) == 0);
      if (!error) {
        for (auto b = boost::asio::buffer_sequence_begin(from);
             b != boost::asio::buffer_sequence_end(from); ++b) {
          n += put(boost::asio::const_buffer(*b));
        }
        if (n != 0) reader = std::exchange(reader_, nullptr);
      }
    }
    if (reader != nullptr) reader->again();
    return n;
  }

  enum class wait_result { waits, try_again, taken };

  wait_result wait_to_read(waiting& w) {
    const std::lock_guard guard(lock_);
    return wait(reader_, w, read_error(false));
  }

  wait_result wait_to_write(waiting& w) {
    const std::lock_guard guard(lock_);
    return wait(writer_, w, write_error(false));
  }

  // For one operation, ever: who asks to end it may come when it is over.
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

  // By the end that writes: the other reads what is left, then eof.
  void close_writer() { close(writer_closed_, writer_, reader_); }
  // By the end that reads: the other's writes fail.
  void close_reader() { close(reader_closed_, reader_, writer_); }

 private:
  static wait_result wait(waiting*& place, waiting& w, const boost::system::error_code& now) {
    if (place != nullptr) return wait_result::taken;
    if (now != boost::asio::error::would_block) return wait_result::try_again;
    place = &w;
    return wait_result::waits;
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

  boost::system::error_code read_error(bool nothing) const {
    if (reader_closed_) return boost::asio::error::bad_descriptor;
    if (nothing || size_ != 0) return {};
    if (writer_closed_) return boost::asio::error::eof;
    return boost::asio::error::would_block;
  }

  boost::system::error_code write_error(bool nothing) const {
    if (writer_closed_) return boost::asio::error::bad_descriptor;
    if (reader_closed_) return boost::asio::error::broken_pipe;
    if (nothing || size_ != bytes_.size()) return {};
    return boost::asio::error::would_block;
  }

  std::size_t take(boost::asio::mutable_buffer to) {
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

  std::size_t put(boost::asio::const_buffer from) {
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
  std::vector<char> bytes_;  // a ring
  std::size_t first_ = 0;
  std::size_t size_ = 0;
  bool reader_closed_ = false;
  bool writer_closed_ = false;
  waiting* reader_ = nullptr;
  waiting* writer_ = nullptr;
  std::uint64_t last_number_ = 0;
};

// A fiber's own handler only marks it ready, so it may run inside the call that
// completes it, or begins it; any other may begin the next operation, and so on.
template <class Handler>
inline constexpr bool only_marks = false;

template <class Allocator, class Values>
inline constexpr bool only_marks<fiber_handler<Allocator, Values>> = true;

template <bool Reads, class Handler, class Buffers>
class memory_operation final : public memory_half::waiting {
 public:
  memory_operation(std::shared_ptr<memory_half> half, Handler&& handler, const Buffers& buffers)
      : waiting(half->next_number()),
        half_(std::move(half)),
        handler_(std::move(handler)),
        buffers_(buffers) {}

  // Throws std::bad_alloc; then the caller still has it. Afterwards again().
  void prepare() {
    auto slot = boost::asio::get_associated_cancellation_slot(handler_);
    if (slot.is_connected()) {
      slot.assign([half = half_, n = number](boost::asio::cancellation_type_t type) {
        if (type != boost::asio::cancellation_type::none) half->cancel(n);
      });
    }
  }

  void again() override {
    for (;;) {
      boost::system::error_code error;
      std::size_t n = 0;
      if constexpr (Reads) {
        n = half_->read(buffers_, error);
      } else {
        n = half_->write(buffers_, error);
      }
      if (error != boost::asio::error::would_block) {
        finish(error, n);
        return;
      }
      // Kept, for once it waits somebody else may end it.
      const std::shared_ptr<memory_half> half = half_;
      const auto how = Reads ? half->wait_to_read(*this) : half->wait_to_write(*this);
      if (how == memory_half::wait_result::waits) return;
      if (how == memory_half::wait_result::taken) {
        finish(boost::asio::error::already_started, 0);
        return;
      }
    }
  }

  void abort() override { finish(boost::asio::error::operation_aborted, 0); }

 private:
  void finish(const boost::system::error_code& error, std::size_t n) {
    const auto executor = boost::asio::get_associated_executor(handler_, memory_executor());
    Handler handler = std::move(handler_);
    delete this;
    auto call = [h = std::move(handler), error, n]() mutable { std::move(h)(error, n); };
    if constexpr (only_marks<Handler>) {
      boost::asio::dispatch(executor, std::move(call));
    } else {
      boost::asio::post(executor, std::move(call));
    }
  }

  std::shared_ptr<memory_half> half_;
  Handler handler_;
  Buffers buffers_;
};

template <bool Reads>
struct initiate_memory_operation {
  // For use_fiber: whoever completes it is in the program, too.
  using inside_program = void;

  template <class Handler, class Buffers>
  void operator()(Handler&& handler, const Buffers& buffers) const {
    using made = memory_operation<Reads, std::decay_t<Handler>, Buffers>;
    auto operation = std::make_unique<made>(half, std::forward<Handler>(handler), buffers);
    operation->prepare();
    operation.release()->again();
  }

  std::shared_ptr<memory_half> half;
};

}  // namespace detail

// One end. Moved from, it is closed.
class memory_stream {
 public:
  using executor_type = memory_executor;

  memory_stream(std::shared_ptr<detail::memory_half> in, std::shared_ptr<detail::memory_half> out)
      : in_(std::move(in)), out_(std::move(out)) {}
  memory_stream(memory_stream&&) noexcept = default;
  memory_stream& operator=(memory_stream&&) = delete;
  ~memory_stream() { close(); }

  executor_type get_executor() const noexcept { return {}; }

  // Its operations that wait end with operation_aborted, later ones with
  // bad_descriptor; the other end reads what is left, then eof, and its writes end
  // with broken_pipe. Nothing fails: the error is for code that is written for sockets.
  void close() {
    if (in_ == nullptr) return;
    in_->close_reader();
    out_->close_writer();
  }
  void close(boost::system::error_code& error) {
    error.clear();
    close();
  }

  // Half of it: the other end reads what is left, then eof; reading goes on.
  void close_write(boost::system::error_code& error) {
    error.clear();
    if (out_ != nullptr) out_->close_writer();
  }

  template <class Buffers, class Token>
  auto async_read_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        detail::initiate_memory_operation<true>{in_}, token, buffers);
  }

  template <class Buffers, class Token>
  auto async_write_some(const Buffers& buffers, Token&& token) {
    return boost::asio::async_initiate<Token, void(boost::system::error_code, std::size_t)>(
        detail::initiate_memory_operation<false>{out_}, token, buffers);
  }

 private:
  std::shared_ptr<detail::memory_half> in_;
  std::shared_ptr<detail::memory_half> out_;
};

// `capacity`: bytes that each direction keeps, at least 1. Throws std::bad_alloc.
inline std::pair<memory_stream, memory_stream> memory_pipe(std::size_t capacity = 64 * 1024) {
  auto there = std::make_shared<detail::memory_half>(std::max<std::size_t>(capacity, 1));
  auto back = std::make_shared<detail::memory_half>(std::max<std::size_t>(capacity, 1));
  return {memory_stream(back, there), memory_stream(there, back)};
}

}  // namespace VIGIL_ABI
}  // namespace vigil::io
