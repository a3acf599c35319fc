// pending<R>: an asynchronous operation of Asio that has a name. It begins at once, and
// keeps its result until that is taken: a select can wait for it beside other cases, and
// again after another case was taken.
//
//   io::pending<std::size_t> reads(
//       [&](auto token) { return asio::async_read(socket, asio::buffer(head), token); });
//   vigil::select(io::on_result(reads, [&](std::size_t n) { ... }),
//                 vigil::on_recv(orders, [&](std::optional<order> o) { ... }));
//
// R is the type that use_fiber would return: void, one type, or a std::tuple of several.
// An error comes out as boost::system::system_error where the result is taken.
//
// The destructor cancels an operation that is open, and waits for its handler, as
// use_fiber does, even if the fiber is stopped meanwhile. A successful result with values
// that is left then goes to the function given to on_lost(), or to options::on_unhandled,
// or a line on standard error reports it. So does an exception that the move of its
// values has thrown.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/io/detail/config.hpp>
#include <vigil/io/detail/pending.hpp>
#include <vigil/io/use_fiber.hpp>

#include <exception>
#include <functional>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/system/error_code.hpp>

namespace VIGIL_IO {

// pending<R>: an operation that has begun, and its result. Throws the operation's error
// from get(); `stopped`, wrong_place, `cancelled` with a context and std::bad_alloc from
// waits. Thread safety: one fiber at a time, of the run in which it began; cancel() and
// is_ready() may come from any of its fibers. Two waits at once throw wrong_place. The
// operation may complete on any thread. Lifetime: the I/O object and the buffers must
// outlive it, and it must not outlive its run while it is open. Shutdown: waits throw
// `stopped`; the destructor still cancels and waits. Cost: one allocation, beside Asio's
// own. Behaviour: Asio's experimental::promise.
template <class R>
class pending {
  using types = detail::pending_types<R>;
  using token = detail::pending_token<R>;
  using wait_limit = vigil::detail::wait_limit;

 public:
  // Calls begin(token) with a completion token, which the function hands to one
  // asynchronous operation, bare or in bind_executor; bind_cancellation_slot around it
  // would defeat cancel(), and does not compile. Throws what the function throws, after
  // the operation's end if it has begun; std::logic_error if it begins no operation or
  // two, wrong_place outside a fiber and in a handler, std::bad_alloc.
  template <class Begin>
    requires std::is_invocable_v<Begin&, detail::pending_token<R>>
  explicit pending(Begin&& begin) {
    try {
      static_cast<void>(begin(token{&core_}));
      if (!core_.of) {
        throw std::logic_error(
            "vigil::io::pending: the function that was given has begun no operation with its "
            "token");
      }
    } catch (...) {
      if (core_.of) {  // its handler may still be on its way
        detail::pending_begun(*core_.of);
        end();
      }
      throw;
    }
    core_.begins = false;
    detail::pending_begun(*core_.of);
  }

  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;

  // Ends the program, with a message, while another fiber waits for it, and while it is
  // open outside the run in which it began, in a handler of its io_context, and under
  // no_park.
  // Waits on a fiber (the operation's end): throws nothing.
  ~pending() { end(); }

  // Whether there is a result that was not taken.
  bool is_ready() const noexcept { return detail::pending_is_ready(*core_.of); }

  // Asks the operation to end (cancellation_type::terminal). It may still succeed; its
  // result is there once it has ended, the error operation_aborted as a rule.
  void cancel() noexcept { detail::pending_cancel(*core_.of); }

  // Waits until the operation is complete; the result stays. With a limit it returns
  // false, and the operation goes on, if that comes first. Throws wrong_place if another
  // fiber waits for it, and while it is open outside its run and in a handler of its
  // io_context, and std::bad_alloc.
  // Waits on a fiber (wait_for, wait_until, a context): throws stopped, wrong_place,
  // cancelled.
  void wait() { detail::pending_wait(*core_.of, {}); }

  void wait(const context& ctx) {
    detail::pending_wait(*core_.of, vigil::detail::cancelled_by(ctx));
  }

  template <vigil::detail::duration_argument D>
  [[nodiscard]] bool wait_for(const D& timeout) {
    return detail::pending_wait(*core_.of, vigil::detail::within(timeout));
  }

  template <vigil::detail::duration_argument D>
  [[nodiscard]] bool wait_for(const D& timeout, const context& ctx) {
    return detail::pending_wait(*core_.of, vigil::detail::within(timeout, ctx));
  }

  template <vigil::detail::time_point_like Time>
  [[nodiscard]] bool wait_until(const Time& t) {
    return detail::pending_wait(*core_.of, vigil::detail::until(t));
  }

  template <vigil::detail::time_point_like Time>
  [[nodiscard]] bool wait_until(const Time& t, const context& ctx) {
    return detail::pending_wait(*core_.of, vigil::detail::until(t, ctx));
  }

  // Waits for the result, and takes it. Throws its error as system_error, or sets
  // `error`; std::logic_error if it was taken before.
  // Waits on a fiber (a context): throws stopped, wrong_place, cancelled.
  R get() { return get_within({}, nullptr); }

  R get(const context& ctx) { return get_within(vigil::detail::cancelled_by(ctx), nullptr); }

  R get(boost::system::error_code& error) { return get_within({}, &error); }

  // f(values...) gets a successful result that is left at the end. It is called by the
  // destructor, and must not throw.
  template <class F>
    requires(types::has_values && types::template takes_values<F>)
  void on_lost(F f) {
    lost_ = std::move(f);
  }

 private:
  friend struct detail::pending_access;

  template <class T>
  struct lost_function {
    using type = std::function<void(T)>;
  };

  template <class... Ts>
  struct lost_function<std::tuple<Ts...>> {
    using type = std::function<void(Ts...)>;
  };

  // Ends the operation. Its result is lost, unless it was taken.
  void end() noexcept {
    detail::ended over;
    if (!detail::pending_end(*core_.of, over)) return;
    if (over.thrown != nullptr) {
      detail::pending_lost(std::move(over.thrown));
      return;
    }
    if (!types::has_values || !core_.result.has_value()) return;
    if (!core_.result->is_successful()) return;
    if (!lost_) {
      detail::pending_lost(nullptr);
      return;
    }
    std::apply([&](auto&... values) { lost_(std::move(values)...); }, core_.result->all());
  }

  R get_within(const wait_limit& limit, boost::system::error_code* error) {
    detail::pending_wait(*core_.of, limit);
    detail::pending_take(*core_.of);
    auto& v = core_.take();
    if (error == nullptr || v.exception != nullptr) detail::throw_error_of(v);
    if (error != nullptr) *error = v.error;
    return returned(v.all(), static_cast<R*>(nullptr));
  }

  template <class T>
  static T returned(std::tuple<T>& all, T*) {
    return std::get<0>(std::move(all));
  }

  template <class... Ts>
  static std::tuple<Ts...> returned(std::tuple<Ts...>& all, std::tuple<Ts...>*) {
    return std::move(all);
  }

  static void returned(std::tuple<>&, void*) noexcept {}

  typename lost_function<std::conditional_t<std::is_void_v<R>, std::tuple<>, R>>::type lost_;
  detail::pending_core<R> core_;
};

// Taken when p's operation is complete. f takes the operation's values, or its error_code
// and them, or nothing; unless it takes the error_code, an error comes out of select() as
// boost::system::system_error. If another case is taken, the operation goes on and its
// result is kept. Once the result was taken, the case is never ready.
//
// select() throws wrong_place if p is waited for already, by another fiber or another
// case, and if it would have to wait outside p's run, or in a handler of its io_context.
// Throws what moving f throws. Thread safety: that of pending. Lifetime: p must outlive
// the select, and a case_list with the case. Shutdown: taken if the operation is
// complete; otherwise `stopped`. Cost: no allocation.
template <class R, class F = vigil::detail::nothing>
[[nodiscard]] auto on_result(pending<R>& p, F f = {}) {
  return detail::result_case<R, F>(detail::pending_access::core_of(p), std::move(f));
}

}  // namespace VIGIL_IO
