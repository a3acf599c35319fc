// The templates of pending.hpp: the token that begins the operation, its result, and the
// case of on_result().
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/coroutine_gate.hpp>
#include <vigil/io/detail/operation.hpp>
#include <vigil/io/detail/use_fiber.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/asio/async_result.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO {

template <class R>
class pending;

namespace detail {

VIGIL_API extern const vigil::detail::case_table pending_case_table;

// --- Called by a fiber of the operation's run.
// The initiating function has returned.
VIGIL_API void pending_begun(operation& o) noexcept;
VIGIL_API bool pending_is_ready(operation& o) noexcept;
VIGIL_API void pending_cancel(operation& o) noexcept;
// Returns whether the operation is complete.
// Waits on a fiber (wait_for, wait_until): throws stopped, cancelled, wrong_place,
// std::bad_alloc.
VIGIL_API bool pending_wait(operation& o, const wait_limit& limit);
// The result is the caller's from now on. Throws std::logic_error if it was taken.
VIGIL_API void pending_take(operation& o);
// Cancels the operation and waits for its end. Returns whether its result was not taken;
// `over` says how it ended. Ends the program outside the operation's run, or while
// another fiber waits.
VIGIL_API bool pending_end(operation& o, ended& over) noexcept;
VIGIL_API ended pending_ended(operation& o) noexcept;
// Says that a result was lost, to on_unhandled or on standard error. `thrown` says why,
// if the move of its values threw.
VIGIL_API void pending_lost(std::exception_ptr thrown) noexcept;

// The error and the values that an operation has completed with.
template <class... Ts>
class pending_values {
 public:
  using values = std::tuple<Ts...>;

  template <class... Us>
    requires(sizeof...(Us) == sizeof...(Ts))
  explicit pending_values(Us&&... us) : values_(std::forward<Us>(us)...) {}

  template <class... Us>
    requires(sizeof...(Us) == sizeof...(Ts))
  explicit pending_values(const boost::system::error_code& e, Us&&... us)
      : error(e), values_(std::forward<Us>(us)...) {}

  template <class... Us>
    requires(sizeof...(Us) == sizeof...(Ts))
  explicit pending_values(std::exception_ptr e, Us&&... us)
      : exception(std::move(e)), values_(std::forward<Us>(us)...) {}

  bool is_successful() const noexcept { return !error.failed() && exception == nullptr; }

  values& all() noexcept { return values_; }

  boost::system::error_code error;
  std::exception_ptr exception;

 private:
  values values_;
};

template <class R>
struct pending_types {
  using values = pending_values<R>;

  template <class F>
  static constexpr bool takes_values = vigil::detail::takes<F, R>;
  template <class F>
  static constexpr bool takes_error = vigil::detail::takes<F, boost::system::error_code, R>;
  static constexpr bool has_values = true;
};

template <>
struct pending_types<void> {
  using values = pending_values<>;

  template <class F>
  static constexpr bool takes_values = vigil::detail::takes<F>;
  template <class F>
  static constexpr bool takes_error = vigil::detail::takes<F, boost::system::error_code>;
  static constexpr bool has_values = false;
};

template <class... Ts>
struct pending_types<std::tuple<Ts...>> {
  using values = pending_values<Ts...>;

  template <class F>
  static constexpr bool takes_values = vigil::detail::takes<F, Ts...>;
  template <class F>
  static constexpr bool takes_error = vigil::detail::takes<F, boost::system::error_code, Ts...>;
  static constexpr bool has_values = sizeof...(Ts) != 0;
};

// The part of a pending<R> into which the operation is begun.
template <class R>
struct pending_core {
  using values = typename pending_types<R>::values;

  operation_ref of;
  std::optional<values> result;
  bool begins = true;  // until the initiating function has returned

  // The result, which the caller has taken. Throws the exception with which it could not
  // be moved, and system_error if the operation was destroyed and its values cannot be
  // made up.
  values& take() {
    ended e = pending_ended(*of);
    if (e.thrown != nullptr) std::rethrow_exception(e.thrown);
    if (!result.has_value()) make_up();
    return *result;
  }

 private:
  void make_up() {
    const boost::system::error_code code = boost::asio::error::operation_aborted;
    make_up(code, static_cast<typename values::values*>(nullptr));
    if (result.has_value()) return;
    throw boost::system::system_error(
        code,
        "vigil::io::pending: the operation was destroyed before it was complete, with the "
        "io_context for example");
  }

  template <class... Ts>
  void make_up(const boost::system::error_code& code, std::tuple<Ts...>*) {
    if constexpr ((std::is_default_constructible_v<Ts> && ...)) result.emplace(code, Ts()...);
  }
};

template <class Values>
void throw_error_of(const Values& v) {
  if (v.exception != nullptr) std::rethrow_exception(v.exception);
  if (v.error) throw boost::system::system_error(v.error);
}

// The completion token that the initiating function gets.
template <class R>
struct pending_token {
  pending_core<R>* core;
};

// Begins the operation, and does not wait.
template <class R, class Signature>
struct pending_start;

template <class R, class Result, class... As, bool Noexcept>
struct pending_start<R, Result(As...) noexcept(Noexcept)> {
  using outcome = outcome_of<form::plain, std::decay_t<As>...>;
  static_assert(std::is_same_v<typename outcome::type, R>,
                "pending<R>: R is what the operation brings without its error_code: void, one "
                "type, or a std::tuple of several");

  template <class Initiation, class... Args>
  static void begin(pending_core<R>& core,
                    const boost::asio::any_io_executor& bound,
                    Initiation&& initiation,
                    Args&&... args) {
    if (!core.begins || core.of) {
      throw std::logic_error(
          "vigil::io::pending: the function that was given must begin one operation, before it "
          "returns");
    }
    constexpr bool inside = requires { typename std::decay_t<Initiation>::inside_program; };
    core.of = operation_ref(
        begin_operation(own_executor_of(initiation), bound, inside, object_of(initiation)));
    start(std::forward<Initiation>(initiation),
          fiber_handler<own_memory, typename pending_core<R>::values>(
              core.of, core.result, own_memory()),
          std::forward<Args>(args)...);
  }

 private:
  // Not inlined: see fiber_result::start().
  template <class Initiation, class Handler, class... Args>
  [[gnu::noinline]] static void start(Initiation&& initiation, Handler&& handler, Args&&... args) {
    initiate_operation(
        std::forward<Initiation>(initiation), std::move(handler), std::forward<Args>(args)...);
  }
};

template <class R, class Result, class... As, bool Noexcept>
struct pending_start<R, Result(As...) & noexcept(Noexcept)> : pending_start<R, Result(As...)> {};

template <class R, class Result, class... As, bool Noexcept>
struct pending_start<R, Result(As...) && noexcept(Noexcept)> : pending_start<R, Result(As...)> {};

// For the library only.
struct pending_access {
  template <class R>
  static pending_core<R>& core_of(pending<R>& p) noexcept {
    return p.core_;
  }
};

// The case of on_result(). `amount` says whether the select has the operation.
template <class R, class F>
class result_case : public vigil::detail::select_case {
  using types = pending_types<R>;
  static constexpr bool takes_error = types::template takes_error<F>;
  static constexpr bool takes_values = types::template takes_values<F>;
  static_assert(takes_error || takes_values || vigil::detail::takes<F>,
                "on_result(pending, f): f takes the operation's values, or its error_code and "
                "them, or nothing");

 public:
  result_case(pending_core<R>& of, F f)
      : select_case(pending_case_table, &*of.of, 0), of_(&of), f_(std::move(f)) {}

  void prepare() noexcept { amount = 0; }

  void taken() {
    auto& v = of_->take();
    if (!takes_error || v.exception != nullptr) throw_error_of(v);
    std::apply(
        [&](auto&... values) {
          if constexpr (takes_error) {
            static_cast<void>(f_(v.error, std::move(values)...));
          } else if constexpr (takes_values) {
            static_cast<void>(f_(std::move(values)...));
          } else {
            static_cast<void>(f_());
          }
        },
        v.all());
  }

 private:
  pending_core<R>* of_;
  [[no_unique_address]] F f_;
};

}  // namespace detail
}  // namespace VIGIL_IO

namespace boost::asio {

template <class R, class Signature>
struct async_result<vigil::io::detail::pending_token<R>, Signature> {
  using return_type = void;

  template <class Initiation, class Token, class... Args>
  static void initiate(Initiation&& initiation, Token&& token, Args&&... args) {
    vigil::io::detail::pending_start<R, Signature>::begin(
        *token.core, {}, std::forward<Initiation>(initiation), std::forward<Args>(args)...);
  }
};

template <class R, class Executor, class Signature>
class async_result<executor_binder<vigil::io::detail::pending_token<R>, Executor>, Signature> {
 public:
  using return_type = void;

  template <class Initiation, class Token, class... Args>
  static void initiate(Initiation&& initiation, Token&& token, Args&&... args) {
    vigil::io::detail::pending_start<R, Signature>::begin(*token.get().core,
                                                          token.get_executor(),
                                                          std::forward<Initiation>(initiation),
                                                          std::forward<Args>(args)...);
  }
};

// A slot around the token would take the place of the operation's own, and so defeat
// cancel() and the destructor.
template <class R, class Slot, class Signature>
class async_result<cancellation_slot_binder<vigil::io::detail::pending_token<R>, Slot>, Signature> {
  static_assert(sizeof(R*) == 0,
                "vigil::io::pending: no bind_cancellation_slot around its token; cancel() asks "
                "the operation to end");
};

}  // namespace boost::asio
