// For the templates of use_fiber: one operation that a fiber has begun and waits for, and
// the executor on which its handlers run.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/detail/config.hpp>
#include <vigil/io/detail/error.hpp>
#include <vigil/io/detail/one_operation.hpp>

#include <cstdint>
#include <exception>
#include <type_traits>
#include <utility>

#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/execution/blocking.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/outstanding_work.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/system/error_code.hpp>

namespace VIGIL_IO_DETAIL {

using vigil::detail::wait_limit;

class movable_deadline;  // movable_deadline.hpp
struct operation;        // src/io/operation.hpp; counted

// How a wait for an operation ended. The operation is over in every case; in all but
// `completed`, upon request. This is not the `outcome` of the library's waits, which
// users' programs must not see, and which has neither close() nor a lack of memory.
enum class ending : std::uint8_t { completed, cut, cancelled, stopped, no_memory };

struct ended {
  ending result = ending::completed;
  bool dropped = false;           // the handler was destroyed without a call
  boost::system::error_code cut;  // timed_out, or operation_aborted by close()
  std::exception_ptr thrown;      // thrown when its values were moved
};

// Makes an operation; called by a fiber, once for each. The caller gets the reference.
// `own` is the executor of the I/O object, `bound` the one from bind_executor; either may
// be empty. `inside` says that the operation completes inside the program, so that the
// wait is not outside work. `object` is for dumps (shown_object.hpp). Throws
// std::bad_alloc, and wrong_place if the caller is not a fiber, or runs one of the two
// executors itself.
VIGIL_API operation& begin_operation(const boost::asio::any_io_executor& own,
                                     const boost::asio::any_io_executor& bound,
                                     bool inside,
                                     const void* object);

// `executor`: the reference also keeps executor_of() as it is. Such references are for
// the handler, until that is over, and for the copies of the associated executor, except
// tracked ones.
VIGIL_API void retain(operation& o, bool executor) noexcept;
VIGIL_API void release(operation& o, bool executor) noexcept;

// For the operation's handler.
VIGIL_API one_operation& memory_of(operation& o) noexcept;
VIGIL_API boost::asio::cancellation_slot slot_of(operation& o) noexcept;
// A step of it waits for this descriptor, which dumps show; negative: for another thing.
VIGIL_API void note_descriptor(operation& o, int descriptor) noexcept;
// The handler has been called and threw `thrown`, or was destroyed without a call.
// The caller no longer touches the operation.
VIGIL_API void end(operation& o, std::exception_ptr thrown, bool dropped = false) noexcept;

// Waits until the handler has run or has been destroyed. Called once, by the operation's
// fiber. Cancels the operation when the limit or that of `moves` (nullptr: none) comes,
// or when the fiber is stopped.
// Waits: throws nothing.
VIGIL_API ended await_end(operation& o, const wait_limit& limit, movable_deadline* moves);
// For an operation that was not completed. `under` is the limit's node.
[[noreturn]] VIGIL_API void throw_ended(ending result, vigil::detail::cancel_node* under);

// Asks the operation to end, wherever its handlers run. Any thread.
VIGIL_API void cancel(operation& o, boost::asio::cancellation_type_t type) noexcept;

// Where its handlers run; empty if wherever they are called. With `posts` it never runs
// them at once, and is never empty. Returns a copy, because the operation's own goes when
// the operation is over.
VIGIL_API boost::asio::any_io_executor executor_of(operation& o, bool posts);
VIGIL_API boost::asio::execution_context& context_of(operation& o);

// While it lives, no other handler or cancellation of the operation runs, on any thread.
// A fiber must not wait inside.
class VIGIL_API operation_section {
 public:
  explicit operation_section(operation& o) noexcept;
  ~operation_section();
  operation_section(const operation_section&) = delete;
  operation_section& operator=(const operation_section&) = delete;

 private:
  operation& operation_;
};

// A reference to the operation, or to its executor as well.
template <bool Executor>
class basic_operation_ref {
 public:
  basic_operation_ref() noexcept = default;

  // Takes over the caller's reference.
  explicit basic_operation_ref(operation& o) noexcept : operation_(&o) {}

  basic_operation_ref(const basic_operation_ref& other) noexcept : operation_(other.operation_) {
    if (operation_ != nullptr) retain(*operation_, Executor);
  }

  basic_operation_ref(basic_operation_ref&& other) noexcept
      : operation_(std::exchange(other.operation_, nullptr)) {}

  basic_operation_ref& operator=(basic_operation_ref other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }

  ~basic_operation_ref() {
    if (operation_ != nullptr) release(*operation_, Executor);
  }

  // Makes another reference.
  static basic_operation_ref to(operation& o) noexcept {
    retain(o, Executor);
    return basic_operation_ref(o);
  }

  explicit operator bool() const noexcept { return operation_ != nullptr; }

  operation& operator*() const noexcept { return *operation_; }

  operation& give_away() noexcept { return *std::exchange(operation_, nullptr); }

  friend bool operator==(const basic_operation_ref&, const basic_operation_ref&) = default;

 private:
  operation* operation_ = nullptr;
};

using operation_ref = basic_operation_ref<false>;

// The associated executor of use_fiber's handlers: that of the I/O object, or the one
// from bind_executor, with the operation's section around each call. Copies work even
// when the operation is over.
//
// Asio keeps the tracked form beside a handler until a moment after it has called it.
// That form does not keep the bound executor alive, whose context may go once the fiber
// knows.
template <bool Posts, bool Keeps = true>
class operation_executor {
  using blocking = boost::asio::execution::blocking_t;
  using ref = basic_operation_ref<Keeps>;

 public:
  explicit operation_executor(operation& o) noexcept : operation_(ref::to(o)) {}

  template <class F>
  void execute(F&& f) const {
    operation& o = *operation_;
    if (const boost::asio::any_io_executor by = executor_of(o, Posts)) {
      by.execute(in_section<std::decay_t<F>>(o, f));
      return;
    }
    const operation_section inside(o);
    std::decay_t<F> own(std::forward<F>(f));
    own();
  }

  operation_executor<true, Keeps> require(blocking::never_t) const noexcept {
    return operation_executor<true, Keeps>(*operation_);
  }

  operation_executor<false, Keeps> require(blocking::possibly_t) const noexcept {
    return operation_executor<false, Keeps>(*operation_);
  }

  operation_executor<Posts, false> require(
      boost::asio::execution::outstanding_work_t::tracked_t) const noexcept {
    return operation_executor<Posts, false>(*operation_);
  }

  boost::asio::execution_context& query(boost::asio::execution::context_t) const noexcept {
    return context_of(*operation_);
  }

  blocking query(blocking) const noexcept {
    if constexpr (Posts) {
      return boost::asio::execution::blocking.never;
    } else {
      return boost::asio::execution::blocking.possibly;
    }
  }

  friend bool operator==(const operation_executor&, const operation_executor&) noexcept = default;

 private:
  template <class F>
  struct in_section {
    template <class G>
    in_section(operation& o, G& g) : kept(operation_ref::to(o)), f(std::move(g)) {}

    void operator()() {
      const operation_section inside(*kept);
      f();
    }

    operation_ref kept;
    F f;
  };

  ref operation_;
};

}  // namespace VIGIL_IO_DETAIL
