// The templates of use_fiber.hpp: what a token asks for, the handler that it becomes, and
// the call. fiber_outcome.hpp has its result.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/coroutine_gate.hpp>
#include <vigil/io/detail/fiber_outcome.hpp>
#include <vigil/io/detail/operation.hpp>
#include <vigil/io/detail/operation_slot.hpp>
#include <vigil/io/use_fiber.hpp>

#include <cstddef>
#include <exception>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/system_executor.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO_DETAIL {

// --- The request of a token, however it is wrapped.

// For the library only.
struct token_access {
  static call_terms terms_of(const fiber_token& t) {
    call_terms terms{.limit = t.limit_, .destroyed = t.destroyed_, .object = t.object_};
    // A token that was moved from has no context any more.
    if (!t.kept_) terms.limit.cancelled_by = nullptr;
    return terms;
  }

  // Makes the call report in `destroyed`, whatever it throws, whether the operation was
  // destroyed with its io_context; then the I/O object may be gone, too. `object` is for
  // dumps (shown_object.hpp).
  static fiber_token reporting(fiber_token t, bool& destroyed, const void* object) noexcept {
    t.destroyed_ = &destroyed;
    t.object_ = object;
    return t;
  }
};

struct no_slot {};

// Stands for the operation's own memory.
struct own_memory {};

template <class Allocator = own_memory, class Slot = no_slot>
struct request : call_terms {
  Allocator allocator;
  Slot slot;
};

template <class Allocator, class Slot>
request<Allocator, Slot> request_of(call_terms&& terms,
                                    const Allocator& allocator,
                                    const Slot& slot) {
  return {std::move(terms), allocator, slot};
}

template <class Token>
struct peel;

template <class Token>
concept fiber_based = requires { peel<Token>::shape; };

template <>
struct peel<use_fiber_t> {
  static constexpr form shape = form::plain;

  static request<> of(const use_fiber_t&) { return {}; }
};

template <>
struct peel<fiber_token> {
  static constexpr form shape = form::plain;

  static request<> of(const fiber_token& t) { return {token_access::terms_of(t), {}, {}}; }
};

// For vigil's own streams.
struct movable_token {
  movable_deadline* deadline;
  const void* object = nullptr;  // for dumps
};

template <>
struct peel<movable_token> {
  static constexpr form shape = form::plain;

  static request<> of(const movable_token& t) {
    return {{.moves = t.deadline, .object = t.object}, {}, {}};
  }
};

template <fiber_based T>
struct peel<boost::asio::as_tuple_t<T>> {
  static constexpr form shape = form::tuple;

  static auto of(const boost::asio::as_tuple_t<T>& t) {
    auto r = peel<T>::of(t.token_);
    r.redirected = nullptr;  // the caller sees only the tuple
    return r;
  }
};

template <fiber_based T>
struct peel<boost::asio::redirect_error_t<T>> {
  static constexpr bool of_tuple =
      peel<T>::shape == form::tuple || peel<T>::shape == form::redirected_tuple;
  static constexpr form shape = of_tuple ? form::redirected_tuple : form::redirected;

  static auto of(const boost::asio::redirect_error_t<T>& t) {
    auto r = peel<T>::of(t.token_);
    r.redirected = &t.ec_;
    return r;
  }
};

template <fiber_based T, class Executor>
struct peel<boost::asio::executor_binder<T, Executor>> {
  static constexpr form shape = peel<T>::shape;

  static auto of(const boost::asio::executor_binder<T, Executor>& t) {
    auto r = peel<T>::of(t.get());
    r.executor = t.get_executor();
    return r;
  }
};

template <fiber_based T, class Allocator>
struct peel<boost::asio::allocator_binder<T, Allocator>> {
  static constexpr form shape = peel<T>::shape;

  static auto of(const boost::asio::allocator_binder<T, Allocator>& t) {
    auto r = peel<T>::of(t.get());
    return request_of(std::move(r), t.get_allocator(), r.slot);
  }
};

template <fiber_based T, class Slot>
struct peel<boost::asio::cancellation_slot_binder<T, Slot>> {
  static constexpr form shape = peel<T>::shape;

  static auto of(const boost::asio::cancellation_slot_binder<T, Slot>& t) {
    auto r = peel<T>::of(t.get());
    return request_of(std::move(r), r.allocator, t.get_cancellation_slot());
  }
};

// --- The handler.

// Puts the values into the fiber's frame.
template <class Allocator, class Values>
class fiber_handler {
 public:
  using executor_type = operation_executor<false>;
  using immediate_executor_type = executor_type;
  using allocator_type = std::conditional_t<std::is_same_v<Allocator, own_memory>,
                                            one_operation_allocator<void>,
                                            Allocator>;
  using cancellation_slot_type = operation_slot;

  fiber_handler(operation_ref o, std::optional<Values>& values, const Allocator& allocator)
      : operation_(std::move(o)), values_(&values), allocator_(allocator) {
    retain(*operation_, true);  // until it is over
  }

  fiber_handler(fiber_handler&&) noexcept = default;
  fiber_handler& operator=(fiber_handler&&) = delete;

  ~fiber_handler() {
    if (operation_) end(operation_.give_away(), nullptr, true);
  }

  template <class... Args>
  void operator()(Args&&... args) {
    std::exception_ptr thrown;
    try {
      values_->emplace(std::forward<Args>(args)...);
    } catch (...) {
      thrown = std::current_exception();
    }
    end(operation_.give_away(), std::move(thrown));
  }

  executor_type get_executor() const noexcept { return executor_type(*operation_); }

  immediate_executor_type get_immediate_executor() const noexcept { return get_executor(); }

  allocator_type get_allocator() const noexcept {
    if constexpr (std::is_same_v<Allocator, own_memory>) {
      return allocator_type(memory_of(*operation_));
    } else {
      return allocator_;
    }
  }

  cancellation_slot_type get_cancellation_slot() const noexcept {
    return cancellation_slot_type(*operation_);
  }

 private:
  operation_ref operation_;
  std::optional<Values>* values_;
  [[no_unique_address]] Allocator allocator_;
};

// Installed in the slot of bind_cancellation_slot.
struct cancel_operation {
  void operator()(boost::asio::cancellation_type_t type) { cancel(*of, type); }

  operation_ref of;
};

// --- The call.

// The executor of the I/O object; empty if it has none of its own.
template <class Initiation>
boost::asio::any_io_executor own_executor_of(const Initiation& begin) {
  using executor = boost::asio::associated_executor_t<Initiation>;
  if constexpr (!std::is_same_v<executor, boost::asio::system_executor> &&
                std::is_constructible_v<boost::asio::any_io_executor, executor>) {
    return boost::asio::get_associated_executor(begin);
  } else {
    return {};
  }
}

// The object of the operation, for dumps; nullptr for Asio's (operation_slot.hpp).
template <class Initiation>
const void* object_of(const Initiation& begin) noexcept {
  if constexpr (requires {
                  typename Initiation::inside_program;
                  begin.made_at();
                }) {
    return begin.made_at();
  } else {
    return nullptr;
  }
}

template <class Token, class Signature>
class fiber_result;

template <class Token, class R, class... As, bool Noexcept>
class fiber_result<Token, R(As...) noexcept(Noexcept)> {
  using outcome = outcome_of<peel<Token>::shape, std::decay_t<As>...>;

  // Not inlined, because Asio may take the address of a thread-local here, and the fiber
  // may be on another thread afterwards.
  template <class Initiation, class Handler, class... Args>
  [[gnu::noinline]] static void start(Initiation&& begin, Handler&& handler, Args&&... args) {
    initiate_operation(
        std::forward<Initiation>(begin), std::move(handler), std::forward<Args>(args)...);
  }

 public:
  using return_type = typename outcome::type;

  template <class Initiation, class RawToken, class... Args>
  static return_type initiate(Initiation&& begin, RawToken&& token, Args&&... args) {
    auto asked = peel<Token>::of(token);
    // Kept, because the caller's token may be assigned to while the fiber waits.
    const vigil::detail::kept_limit kept(asked.limit);
    constexpr bool inside = requires { typename std::decay_t<Initiation>::inside_program; };
    const void* const object = asked.object != nullptr ? asked.object : object_of(begin);
    const operation_ref o(begin_operation(own_executor_of(begin), asked.executor, inside, object));
    if (asked.executor) asked.executor = nullptr;  // the operation's goes first: OP5
    if constexpr (!std::is_same_v<decltype(asked.slot), no_slot>) {
      if (asked.slot.is_connected()) asked.slot.assign(cancel_operation{o});
    }
    std::optional<typename outcome::values> values;
    std::exception_ptr refused;
    try {
      start(std::forward<Initiation>(begin),
            fiber_handler<decltype(asked.allocator), typename outcome::values>(
                o, values, asked.allocator),
            std::forward<Args>(args)...);
    } catch (...) {
      refused = std::current_exception();
    }
    if (refused != nullptr) {  // its handler may still be on its way
      static_cast<void>(await_end(*o, {.cancelled_by = asked.limit.cancelled_by}, nullptr));
      std::rethrow_exception(refused);
    }
    ended e = await_end(*o, asked.limit, asked.moves);
    if (asked.destroyed != nullptr) *asked.destroyed = e.dropped;
    return outcome::finish(std::move(e), values, asked);
  }
};

// How the handler is called makes no difference.
template <class Token, class R, class... As, bool Noexcept>
class fiber_result<Token, R(As...) & noexcept(Noexcept)> : public fiber_result<Token, R(As...)> {};

template <class Token, class R, class... As, bool Noexcept>
class fiber_result<Token, R(As...) && noexcept(Noexcept)> : public fiber_result<Token, R(As...)> {};

// --- The handler as a token.

template <class Executor>
inline constexpr bool is_operation_executor = false;

template <bool Posts, bool Keeps>
inline constexpr bool is_operation_executor<operation_executor<Posts, Keeps>> = true;

// The handler, or one around it: append's, async_compose's or the program's own.
template <class T>
concept based_on_fiber_handler = is_operation_executor<boost::asio::associated_executor_t<T>>;

// A composed operation passes its handler on to the operations inside it, of which one
// may be co_spawn. The rest is as in Asio's own async_result.
template <class Handler>
class passed_on_handler {
 public:
  using completion_handler_type = Handler;
  using return_type = void;

  explicit passed_on_handler(Handler&) noexcept {}

  void get() const noexcept {}

  template <class Initiation, class RawHandler, class... Args>
  static void initiate(Initiation&& begin, RawHandler&& handler, Args&&... args) {
    initiate_operation(std::forward<Initiation>(begin),
                       std::forward<RawHandler>(handler),
                       std::forward<Args>(args)...);
  }
};

}  // namespace VIGIL_IO_DETAIL

namespace boost::asio {

template <vigil::io::detail::based_on_fiber_handler T, class Signature>
class async_result<T, Signature> : public vigil::io::detail::passed_on_handler<T> {
  using vigil::io::detail::passed_on_handler<T>::passed_on_handler;
};

template <class Signature>
class async_result<vigil::io::use_fiber_t, Signature>
    : public vigil::io::detail::fiber_result<vigil::io::use_fiber_t, Signature> {};

template <class Signature>
class async_result<vigil::io::fiber_token, Signature>
    : public vigil::io::detail::fiber_result<vigil::io::fiber_token, Signature> {};

template <class Signature>
class async_result<vigil::io::detail::movable_token, Signature>
    : public vigil::io::detail::fiber_result<vigil::io::detail::movable_token, Signature> {};

// Unwraps Asio's own wrappers: the deadline must reach the operation whatever slot and
// executor are bound, and `timed_out` must reach the error that they hide.

template <vigil::io::detail::fiber_based T, class Signature>
struct async_result<as_tuple_t<T>, Signature>
    : vigil::io::detail::fiber_result<as_tuple_t<T>, Signature> {};

template <vigil::io::detail::fiber_based T, class Signature>
struct async_result<redirect_error_t<T>, Signature>
    : vigil::io::detail::fiber_result<redirect_error_t<T>, Signature> {};

template <vigil::io::detail::fiber_based T, class Executor, class Signature>
class async_result<executor_binder<T, Executor>, Signature>
    : public vigil::io::detail::fiber_result<executor_binder<T, Executor>, Signature> {};

template <vigil::io::detail::fiber_based T, class Allocator, class Signature>
class async_result<allocator_binder<T, Allocator>, Signature>
    : public vigil::io::detail::fiber_result<allocator_binder<T, Allocator>, Signature> {};

template <vigil::io::detail::fiber_based T, class Slot, class Signature>
class async_result<cancellation_slot_binder<T, Slot>, Signature>
    : public vigil::io::detail::fiber_result<cancellation_slot_binder<T, Slot>, Signature> {};

}  // namespace boost::asio
