// use_fiber: a completion token that makes any asynchronous operation of Asio one
// call of a fiber, which waits there until the operation is complete.
//
//   std::size_t n = socket.async_read_some(buffer, io::use_fiber);
//   std::size_t n = socket.async_read_some(buffer, io::use_fiber.within(5s));
//
// The signature decides what is returned and thrown. Of void(error_code, Ts...) and
// void(exception_ptr, Ts...) an error is thrown, as boost::system::system_error or
// as what it is, and Ts are returned: nothing, the one value, or a tuple. Other
// signatures return all they have. Values may be move-only. Around it work, in any
// order, as_tuple, redirect_error, bind_executor, bind_allocator and
// bind_cancellation_slot.
//
// How a wait may end otherwise:
//
//   until(t), within(d)  the operation is cancelled; the error is then
//                        boost::asio::error::timed_out, and its message says which
//                        time is over. Zero or less, or in the past: at once, but
//                        what is complete already counts
//   under(ctx)           when ctx is done: throws vigil::cancelled
//   the fiber is stopped throws vigil::stopped
//   the operation is destroyed (its io_context is): error operation_aborted
//
// In the first three cases the operation is cancelled (cancellation_type::terminal), and
// the call returns only when its handler has run, so that nothing touches the caller's
// buffer afterwards. If the operation succeeded all the same, its result is returned. If
// it failed by itself, the call reports that error after a deadline, but `cancelled` or
// `stopped` in the other two cases. These codes count as cancelled: operation_aborted,
// channel_cancelled of Asio's channels, and any that equals errc::operation_canceled. An
// operation that ignores cancellation (resolving a name) keeps its caller until it
// completes; so does one on an io_context that is not run, or is stopped, unless it is
// the runtime's (io/context.hpp). Of several until and within the last counts.
//
// Waiting is outside work: no deadlock is reported and virtual time stands still.
// Handlers run where the I/O object's executor or bind_executor says, on the
// worker's own stack or a thread of the caller's; they mark the fiber ready.
// Throws wrong_place outside a fiber, so also in a handler, and in one that the fiber
// itself runs if the I/O object's executor, or the bound one, is that very io_context's
// (and no strand in it); and std::bad_alloc. Of other waits in handlers that a fiber
// runs nobody knows: run() and poll() in a fiber belong under this_fiber::no_park.
//
// Thread safety: Asio's. One fiber may read while another writes; no two may do the
// same, nor one close or destroy what the other uses.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/context.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/io/detail/operation.hpp>

#include <concepts>
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

namespace vigil::io {
inline namespace VIGIL_ABI {

namespace detail {

struct destroyed_report;

}  // namespace detail

// use_fiber with a deadline or a context, or both.
class fiber_token {
 public:
  fiber_token() noexcept = default;

  // The operation. time_point::max(): no deadline.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  template <vigil::detail::time_point_like Time>
  [[nodiscard]] fiber_token until(const Time& t) const {
    fiber_token next = *this;
    next.limit_ = vigil::detail::until(t);
    return next;
  }

  // From the moment at which the operation is begun.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  template <vigil::detail::duration_like D>
  [[nodiscard]] fiber_token within(const D& d) const {
    fiber_token next = *this;
    next.limit_ = vigil::detail::within(d);
    return next;
  }

  // Throws std::invalid_argument for a nil context.
  // Waits on a fiber: throws stopped, wrong_place, boost::system::system_error.
  [[nodiscard]] fiber_token under(vigil::context ctx) const {
    static_cast<void>(ctx.is_done());
    fiber_token next = *this;
    next.under_ = std::move(ctx);
    return next;
  }

  // Without the context's part.
  const detail::wait_limit& limit() const noexcept { return limit_; }
  const vigil::context& under() const noexcept { return under_; }

 private:
  friend struct detail::destroyed_report;

  detail::wait_limit limit_;
  vigil::context under_;
  bool* destroyed_ = nullptr;
};

class use_fiber_t {
 public:
  template <vigil::detail::time_point_like Time>
  [[nodiscard]] fiber_token until(const Time& t) const {
    return fiber_token().until(t);
  }

  template <vigil::detail::duration_like D>
  [[nodiscard]] fiber_token within(const D& d) const {
    return fiber_token().within(d);
  }

  [[nodiscard]] fiber_token under(vigil::context ctx) const {
    return fiber_token().under(std::move(ctx));
  }
};

inline constexpr use_fiber_t use_fiber{};

namespace detail {

// Whether the operation was destroyed, with its io_context, whatever the call throws:
// then the I/O object may be gone, too.
struct destroyed_report {
  static fiber_token asked(fiber_token token, bool& to) {
    token.destroyed_ = &to;
    return token;
  }

  template <class Token>
  static void give([[maybe_unused]] const Token& token, [[maybe_unused]] const operation& o) {
    if constexpr (std::is_same_v<Token, fiber_token>) {
      if (token.destroyed_ != nullptr) *token.destroyed_ = o.dropped();
    }
  }
};

// --- what a token asks for, whatever it is wrapped in

struct no_slot {};

template <class Allocator = std::allocator<void>, class Slot = no_slot>
struct request {
  wait_limit limit;
  movable_deadline* moves = nullptr;  // in its place
  vigil::context under;
  boost::asio::any_io_executor executor;  // empty: that of the I/O object
  Allocator allocator;
  Slot slot;
  boost::system::error_code* redirected = nullptr;
};

// What the caller gets: see finish().
enum class form { plain, tuple, redirected, redirected_tuple };

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
  static request<> of(const fiber_token& t) {
    return {t.limit(), nullptr, t.under(), {}, {}, {}, nullptr};
  }
};

// For streams of ours.
struct movable_token {
  movable_deadline* which;
};

template <>
struct peel<movable_token> {
  static constexpr form shape = form::plain;
  static request<> of(const movable_token& t) {
    return {{}, t.which, {}, {}, {}, {}, nullptr};
  }
};

template <fiber_based T>
struct peel<boost::asio::as_tuple_t<T>> {
  static constexpr form shape = form::tuple;
  static auto of(const boost::asio::as_tuple_t<T>& t) {
    auto r = peel<T>::of(t.token_);
    r.redirected = nullptr;  // sees the tuple only
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
    return request<Allocator, decltype(r.slot)>{r.limit,
                                                r.moves,
                                                std::move(r.under),
                                                std::move(r.executor),
                                                t.get_allocator(),
                                                r.slot,
                                                r.redirected};
  }
};

template <fiber_based T, class Slot>
struct peel<boost::asio::cancellation_slot_binder<T, Slot>> {
  static constexpr form shape = peel<T>::shape;
  static auto of(const boost::asio::cancellation_slot_binder<T, Slot>& t) {
    auto r = peel<T>::of(t.get());
    return request<decltype(r.allocator), Slot>{r.limit,
                                                r.moves,
                                                std::move(r.under),
                                                std::move(r.executor),
                                                r.allocator,
                                                t.get_cancellation_slot(),
                                                r.redirected};
  }
};

// --- the handler

// Puts the values into the fiber's frame.
template <class Allocator, class Values>
class fiber_handler {
 public:
  using executor_type = operation_executor<false>;
  using immediate_executor_type = executor_type;
  using allocator_type = Allocator;
  using cancellation_slot_type = boost::asio::cancellation_slot;

  fiber_handler(operation_ref o, std::optional<Values>& values, const Allocator& allocator)
      : operation_(std::move(o)), values_(&values), allocator_(allocator) {
    operation_->keep_executor();  // until it is over
  }
  fiber_handler(fiber_handler&&) noexcept = default;
  fiber_handler& operator=(fiber_handler&&) = delete;
  ~fiber_handler() {
    if (operation_.get() != nullptr) operation_.release()->drop();
  }

  template <class... Args>
  void operator()(Args&&... args) {
    operation& o = *operation_.release();
    try {
      values_->emplace(std::forward<Args>(args)...);
    } catch (...) {
      o.fail(std::current_exception());
      return;
    }
    o.complete();
  }

  executor_type get_executor() const noexcept { return executor_type(*operation_.get()); }
  immediate_executor_type get_immediate_executor() const noexcept { return get_executor(); }
  allocator_type get_allocator() const noexcept { return allocator_; }
  cancellation_slot_type get_cancellation_slot() const noexcept { return operation_->slot(); }

 private:
  operation_ref operation_;
  std::optional<Values>* values_;
  [[no_unique_address]] Allocator allocator_;
};

// In the slot of bind_cancellation_slot.
struct cancel_operation {
  void operator()(boost::asio::cancellation_type_t type) { of->cancel(type); }
  operation_ref of;
};

// --- the result

template <class... Ts>
struct first_of {
  using type = void;
};

template <class T, class... Ts>
struct first_of<T, Ts...> {
  using type = T;
};

// Values without the first one.
template <std::size_t Skipped, class... Ds>
struct rest_of {
  using type = std::tuple<Ds...>;
};

template <class D, class... Ds>
struct rest_of<1, D, Ds...> {
  using type = std::tuple<Ds...>;
};

// How a call returns them: bare where there are fewer than two.
template <bool Bare, class Rest>
struct returned {
  using type = Rest;
};

template <>
struct returned<true, std::tuple<>> {
  using type = void;
};

template <class D>
struct returned<true, std::tuple<D>> {
  using type = D;
};

template <form Form, class... Ds>
struct outcome_of {
  using values = std::tuple<Ds...>;
  using first = typename first_of<Ds...>::type;
  static constexpr bool has_code = std::is_same_v<first, boost::system::error_code>;
  static constexpr bool has_exception = std::is_same_v<first, std::exception_ptr>;
  static constexpr bool whole = Form == form::tuple;
  static constexpr bool redirects =
      has_code && (Form == form::redirected || Form == form::redirected_tuple);
  static constexpr bool throws = Form == form::plain || Form == form::redirected;
  // Of the values, how many are not returned.
  static constexpr std::size_t skipped =
      whole ? 0 : redirects || (throws && (has_code || has_exception)) ? 1 : 0;

  // By traits alone: overload resolution asks for it with signatures that are none of
  // ours, whose values could not even be moved, and the body of a function that such a
  // question needs makes it an error.
  using type = typename returned<throws, typename rest_of<skipped, Ds...>::type>::type;

  template <std::size_t... I>
  static type rest(values&& v, std::index_sequence<I...>) {
    if constexpr (throws && sizeof...(I) == 1) {
      return (std::get<I + skipped>(std::move(v)), ...);
    } else if constexpr (!std::is_void_v<type>) {
      return type(std::get<I + skipped>(std::move(v))...);
    }
  }

  static type rest(values&& v) {
    return rest(std::move(v), std::make_index_sequence<sizeof...(Ds) - skipped>());
  }

  // Not of an operation that was destroyed.
  static bool has_failed([[maybe_unused]] const values& v) noexcept {
    if constexpr (has_code) {
      return std::get<0>(v).failed();
    } else if constexpr (has_exception) {
      return std::get<0>(v) != nullptr;
    } else {
      return false;
    }
  }

  static bool was_cancelled([[maybe_unused]] const values& v) noexcept {
    if constexpr (has_code || has_exception) {
      return means_cancelled(std::get<0>(v));
    } else {
      return false;
    }
  }

  static void set_error([[maybe_unused]] values& v,
                        [[maybe_unused]] const boost::system::error_code& code) {
    if constexpr (has_code) {
      std::get<0>(v) = code;
    } else if constexpr (has_exception) {
      std::get<0>(v) = std::make_exception_ptr(boost::system::system_error(code));
    }
  }

  // The operation is over.
  static type finish(operation& o,
                     ending how,
                     std::optional<values>& v,
                     [[maybe_unused]] const wait_limit& limit,
                     [[maybe_unused]] const movable_deadline* moves,
                     [[maybe_unused]] boost::system::error_code* redirected) {
    // Who was stopped or cancelled does not go on with an error, whichever it is. No
    // memory is as a deadline: an error that came by itself is the better news.
    const bool by_request = how == ending::cancelled || how == ending::stopped;
    if (by_request && (!v.has_value() || has_failed(*v))) operation::throw_ended(how, limit);
    if (how == ending::no_memory && (o.dropped() || (v.has_value() && was_cancelled(*v)))) {
      operation::throw_ended(how, limit);
    }
    if (o.error() != nullptr) std::rethrow_exception(o.error());
    if (o.dropped()) {
      const boost::system::error_code aborted = boost::asio::error::operation_aborted;
      if constexpr ((has_code || has_exception) && !(throws && !redirects) &&
                    (std::is_default_constructible_v<Ds> && ...)) {
        v.emplace();
        set_error(*v, aborted);
      } else {
        throw boost::system::system_error(
            aborted,
            "vigil::io::use_fiber: the operation was destroyed before it was complete, with the "
            "io_context for example");
      }
    } else if (how == ending::timed_out && was_cancelled(*v)) {
      set_error(*v, timed_out_at(limit, moves));
    } else if (how == ending::closed && was_cancelled(*v)) {
      set_error(*v, boost::asio::error::operation_aborted);
    }
    if constexpr (redirects) {
      *redirected = std::get<0>(*v);
    } else if constexpr (throws && has_code) {
      if (std::get<0>(*v)) throw boost::system::system_error(std::get<0>(*v));
    } else if constexpr (throws && has_exception) {
      if (std::get<0>(*v) != nullptr) std::rethrow_exception(std::get<0>(*v));
    }
    return rest(std::move(*v));
  }
};

// --- the call

template <class Token, class Signature>
class fiber_result;

template <class Token, class R, class... As>
class fiber_result<Token, R(As...)> {
  using outcome = outcome_of<peel<Token>::shape, std::decay_t<As>...>;

  // Not inlined: Asio may take the address of a thread-local here, and the fiber
  // may be on another thread afterwards.
  template <class Initiation, class Handler, class... Args>
  [[gnu::noinline]] static void start(Initiation&& begin, Handler&& handler, Args&&... args) {
    std::forward<Initiation>(begin)(std::move(handler), std::forward<Args>(args)...);
  }

 public:
  using return_type = typename outcome::type;

  template <class Initiation, class RawToken, class... Args>
  static return_type initiate(Initiation&& begin, RawToken&& token, Args&&... args) {
    auto asked = peel<Token>::of(token);
    using allocator = decltype(asked.allocator);
    const operation_ref o(operation::begin());
    using executor = boost::asio::associated_executor_t<std::decay_t<Initiation>>;
    boost::asio::any_io_executor own;
    if constexpr (!std::is_same_v<executor, boost::asio::system_executor> &&
                  std::is_constructible_v<boost::asio::any_io_executor, executor>) {
      own = boost::asio::get_associated_executor(begin);
    }
    o->run_by(std::move(own), std::move(asked.executor));
    if constexpr (requires { typename std::decay_t<Initiation>::inside_program; }) o->is_inside();
    if constexpr (!std::is_same_v<decltype(asked.slot), no_slot>) {
      if (asked.slot.is_connected()) asked.slot.assign(cancel_operation{o});
    }
    if (asked.under) asked.limit.under = vigil::detail::stop_of(asked.under);
    std::optional<typename outcome::values> values;
    std::exception_ptr refused;
    try {
      start(std::forward<Initiation>(begin),
            fiber_handler<allocator, typename outcome::values>(o, values, asked.allocator),
            std::forward<Args>(args)...);
    } catch (...) {
      refused = std::current_exception();
    }
    const bool begun = refused == nullptr;
    const wait_limit no_time{.under = asked.limit.under};
    const ending how = o->wait(begun ? asked.limit : no_time, begun ? asked.moves : nullptr);
    if (!begun) std::rethrow_exception(refused);
    destroyed_report::give(token, *o.get());
    return outcome::finish(*o.get(), how, values, asked.limit, asked.moves, asked.redirected);
  }
};

// How the handler is called makes no difference.
template <class Token, class R, class... As>
class fiber_result<Token, R(As...) &> : public fiber_result<Token, R(As...)> {};

template <class Token, class R, class... As>
class fiber_result<Token, R(As...) &&> : public fiber_result<Token, R(As...)> {};

template <class Token, class R, class... As>
class fiber_result<Token, R(As...) noexcept> : public fiber_result<Token, R(As...)> {};

template <class Token, class R, class... As>
class fiber_result<Token, R(As...) & noexcept> : public fiber_result<Token, R(As...)> {};

template <class Token, class R, class... As>
class fiber_result<Token, R(As...) && noexcept> : public fiber_result<Token, R(As...)> {};

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil::io

namespace boost::asio {

template <class Signature>
class async_result<vigil::io::use_fiber_t, Signature>
    : public vigil::io::detail::fiber_result<vigil::io::use_fiber_t, Signature> {};

template <class Signature>
class async_result<vigil::io::fiber_token, Signature>
    : public vigil::io::detail::fiber_result<vigil::io::fiber_token, Signature> {};

template <class Signature>
class async_result<vigil::io::detail::movable_token, Signature>
    : public vigil::io::detail::fiber_result<vigil::io::detail::movable_token, Signature> {};

// Asio's own wrappers, unwrapped: the deadline must reach the operation whatever
// slot and executor are bound, and `timed_out` the error that they hide.

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
