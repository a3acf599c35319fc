// What use_fiber's templates call: one operation that a fiber has begun and waits
// for, and the executor on which its handlers run.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/detail/config.hpp>
#include <vigil/timeout_list.hpp>

#include <cstdint>
#include <exception>
#include <memory>
#include <type_traits>
#include <utility>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/require.hpp>
#include <boost/system/error_code.hpp>

namespace vigil::io {
inline namespace VIGIL_ABI {
namespace detail {

using vigil::detail::wait_limit;

// How a wait for an operation went on. The operation has come to its end in every
// case; who reads `timed_out`, `cancelled` or `stopped` has asked it to.
enum class ending : std::uint8_t { completed, timed_out, cancelled, stopped, closed, no_memory };

// Whether an operation that was asked to end says so: operation_aborted, an Asio
// channel's channel_cancelled, whatever equals errc::operation_canceled; an exception
// whose code is one of these.
VIGIL_API bool means_cancelled(const boost::system::error_code& code) noexcept;
VIGIL_API bool means_cancelled(const std::exception_ptr& error) noexcept;

// Whose time is over. The code of each equals boost::asio::error::timed_out; its message
// says which one it is, where that of the system is "Connection timed out".
enum class time_of : std::uint8_t { within, until, read, write, idle };

VIGIL_API boost::system::error_code timed_out_by(time_of which) noexcept;

class movable_deadline;

// Counted; made by a fiber for each operation, and kept by the handler and
// whoever may still use it.
class VIGIL_API operation {
 public:
  // Throws wrong_place if the caller is no fiber.
  static operation& begin();

  void keep() noexcept;
  void let_go() noexcept;

  // As those, and executor() stays what it is: its handler, until that is over, and
  // every copy of the associated executor but the tracked ones.
  void keep_executor() noexcept;
  void let_go_executor() noexcept;

  // --- before it is begun, by the fiber
  // That of the I/O object, and what bind_executor gave; either may be empty.
  // Throws std::bad_alloc, and wrong_place if the caller itself runs one of the two.
  void run_by(boost::asio::any_io_executor own, boost::asio::any_io_executor bound);
  // Who completes it is in the program as well: the wait is no outside work.
  void is_inside() noexcept { outside_ = false; }

  boost::asio::cancellation_slot slot() noexcept { return signal_.slot(); }

  // --- its handler; each is the last touch of who calls
  void complete() noexcept;
  void fail(std::exception_ptr error) noexcept;
  void drop() noexcept;  // the handler has been destroyed without a call

  // --- the fiber
  // Until its handler has run or has been destroyed. Cancels the operation when
  // the limit comes, or `moves` does (nullptr: none), or the fiber is stopped.
  ending wait(const wait_limit& limit, movable_deadline* moves);
  [[noreturn]] static void throw_ended(ending how, const wait_limit& limit);

  bool dropped() const noexcept { return dropped_; }
  const std::exception_ptr& error() const noexcept { return error_; }

  // --- anybody who keeps it
  // Its fiber looks at its limit again.
  void look_again() noexcept;
  // Asks the operation to end, wherever its handlers run; once it has been begun.
  void cancel(boost::asio::cancellation_type_t type) noexcept;

  // Handlers and cancellation one after the other, whichever threads they are on.
  // A fiber that is inside must not wait.
  class VIGIL_API section {
   public:
    explicit section(operation& o) noexcept;
    ~section();
    section(const section&) = delete;
    section& operator=(const section&) = delete;

   private:
    operation& operation_;
  };

  // Where its handlers run: any; or, if it is not, through executor().
  bool runs_anywhere() const noexcept { return anywhere_; }
  // A copy: when the operation is over its own one goes.
  boost::asio::any_io_executor executor();
  boost::asio::execution_context& context();
  boost::asio::any_io_executor posting_executor();

 protected:
  operation() noexcept = default;
  ~operation() = default;

  boost::asio::cancellation_signal signal_;
  std::exception_ptr error_;
  bool anywhere_ = true;
  bool outside_ = true;
  bool dropped_ = false;

 private:
  ending wait_begun(const wait_limit& limit, movable_deadline* moves);
};

// A deadline that may be moved while an operation waits for it.
class VIGIL_API movable_deadline {
 public:
  // `name`: of its own time, not an idle list's.
  explicit movable_deadline(time_of name);
  ~movable_deadline();
  movable_deadline(const movable_deadline&) = delete;
  movable_deadline& operator=(const movable_deadline&) = delete;

  // Any thread. Nanoseconds of the clock; the largest: none.
  void set(std::int64_t deadline) noexcept;
  std::int64_t value() const noexcept;
  // Any thread: whoever waits, and will wait, gives up. For good.
  void close() noexcept;
  // Any thread: whoever waits gives up, once, as if the deadline had come; but not if
  // the entry is in a list again, since then something has come meanwhile.
  void end_wait(const timeout_list::entry& expired) noexcept;

  // Now or later than it, on the clock of who calls.
  bool is_over() const noexcept;
  bool is_closed() const noexcept;
  // What a call fails with before it begins: bad_descriptor, timed_out or nothing.
  boost::system::error_code error() const noexcept;
  // Of the last wait, which was too long.
  boost::system::error_code wait_error() const noexcept;

  // --- by operation::wait(); one at a time
  std::int64_t wait_to(operation& o) noexcept;
  void waited() noexcept;

 private:
  struct part;

  const std::unique_ptr<part> part_;
  const time_of name_;
};

// Of a wait that has come to this limit, or to `moves`.
inline boost::system::error_code timed_out_at(const wait_limit& limit,
                                              const movable_deadline* moves) noexcept {
  if (moves != nullptr) return moves->wait_error();
  return timed_out_by(limit.is_relative() ? time_of::within : time_of::until);
}

// A reference, of the operation or of its executor as well.
template <void (operation::*Keep)() noexcept, void (operation::*LetGo)() noexcept>
class basic_operation_ref {
 public:
  basic_operation_ref() noexcept = default;

  // Takes over the caller's reference.
  explicit basic_operation_ref(operation& o) noexcept : operation_(&o) {}

  basic_operation_ref(const basic_operation_ref& other) noexcept : operation_(other.operation_) {
    if (operation_ != nullptr) (operation_->*Keep)();
  }

  basic_operation_ref(basic_operation_ref&& other) noexcept
      : operation_(std::exchange(other.operation_, nullptr)) {}

  basic_operation_ref& operator=(basic_operation_ref other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }

  ~basic_operation_ref() {
    if (operation_ != nullptr) (operation_->*LetGo)();
  }

  // Another reference.
  static basic_operation_ref to(operation& o) noexcept {
    (o.*Keep)();
    return basic_operation_ref(o);
  }

  operation* get() const noexcept { return operation_; }
  operation* operator->() const noexcept { return operation_; }
  operation* release() noexcept { return std::exchange(operation_, nullptr); }

 private:
  operation* operation_ = nullptr;
};

using operation_ref = basic_operation_ref<&operation::keep, &operation::let_go>;
using executor_ref = basic_operation_ref<&operation::keep_executor, &operation::let_go_executor>;

// The associated executor of use_fiber's handlers: that of the I/O object, or what
// bind_executor gave, with the operation's section around each call. Copies are as
// good as one of that, also when the operation is over.
//
// The tracked form is what Asio has beside a handler until it has called it, and a
// moment longer: it does not keep what was bound, whose context may go once the
// fiber knows.
template <bool Posts, bool Keeps = true>
class operation_executor {
  using blocking = boost::asio::execution::blocking_t;
  using ref = std::conditional_t<Keeps, executor_ref, operation_ref>;

 public:
  explicit operation_executor(operation& o) noexcept : operation_(ref::to(o)) {}

  template <class F>
  void execute(F&& f) const {
    if constexpr (Posts) {
      operation_->posting_executor().execute(in_section<std::decay_t<F>>(*operation_.get(), f));
    } else if (operation_->runs_anywhere()) {
      const operation::section inside(*operation_.get());
      std::decay_t<F> own(std::forward<F>(f));
      own();
    } else {
      operation_->executor().execute(in_section<std::decay_t<F>>(*operation_.get(), f));
    }
  }

  operation_executor<true, Keeps> require(blocking::never_t) const noexcept {
    return operation_executor<true, Keeps>(*operation_.get());
  }
  operation_executor<false, Keeps> require(blocking::possibly_t) const noexcept {
    return operation_executor<false, Keeps>(*operation_.get());
  }
  operation_executor<Posts, false> require(
      boost::asio::execution::outstanding_work_t::tracked_t) const noexcept {
    return operation_executor<Posts, false>(*operation_.get());
  }
  boost::asio::execution_context& query(boost::asio::execution::context_t) const noexcept {
    return operation_->context();
  }
  blocking query(blocking) const noexcept {
    if constexpr (Posts) {
      return boost::asio::execution::blocking.never;
    } else {
      return boost::asio::execution::blocking.possibly;
    }
  }

  friend bool operator==(const operation_executor& a, const operation_executor& b) noexcept {
    return a.operation_.get() == b.operation_.get();
  }
  friend bool operator!=(const operation_executor& a, const operation_executor& b) noexcept {
    return a.operation_.get() != b.operation_.get();
  }

 private:
  template <class F>
  struct in_section {
    template <class G>
    in_section(operation& o, G& g) : kept(operation_ref::to(o)), f(std::move(g)) {}
    void operator()() {
      const operation::section inside(*kept.get());
      f();
    }
    operation_ref kept;
    F f;
  };

  ref operation_;
};

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io
