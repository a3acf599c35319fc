// The result of a call with use_fiber: what it returns or throws.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/error.hpp>
#include <vigil/io/detail/operation.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>

#include <boost/asio/error.hpp>
#include <boost/system/system_error.hpp>

namespace VIGIL_IO_DETAIL {

// The request that a call makes.
struct call_terms {
  wait_limit limit = {};                       // initiate() keeps its node
  movable_deadline* moves = nullptr;           // replaces the limit's time
  boost::asio::any_io_executor executor = {};  // empty means that of the I/O object
  boost::system::error_code* redirected = nullptr;
  bool* destroyed = nullptr;
  const void* object = nullptr;  // for dumps; replaces the initiation's
};

// The shape of a call's result: see finish().
enum class form { plain, tuple, redirected, redirected_tuple };

// The values without the first one.
template <std::size_t Skipped, class... Ds>
struct rest_of {
  using type = std::tuple<Ds...>;
};

template <class D, class... Ds>
struct rest_of<1, D, Ds...> {
  using type = std::tuple<Ds...>;
};

// The form in which a call returns them: bare if there are fewer than two.
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
  using first = std::tuple_element_t<0, std::tuple<Ds..., void>>;  // void: there is none
  static constexpr bool has_code = std::is_same_v<first, boost::system::error_code>;
  static constexpr bool has_exception = std::is_same_v<first, std::exception_ptr>;
  static constexpr bool whole = Form == form::tuple;
  static constexpr bool redirects =
      has_code && (Form == form::redirected || Form == form::redirected_tuple);
  static constexpr bool throws = Form == form::plain || Form == form::redirected;
  // The number of values that are not returned.
  static constexpr std::size_t skipped = whole                                                  ? 0
                                         : redirects || (throws && (has_code || has_exception)) ? 1
                                                                                                : 0;

  // Computed by traits alone. Overload resolution asks for it even with foreign
  // signatures, whose values may not even be movable; a function body that such a
  // question instantiates would be an error.
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

  // Not for an operation that was destroyed.
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

  // Called when the operation is over.
  static type finish(ended e, std::optional<values>& v, const call_terms& terms) {
    const bool failed = !v.has_value() || has_failed(*v);
    const bool aborted = v.has_value() ? was_cancelled(*v) : e.dropped;
    // A fiber that was stopped or cancelled does not continue with an error, whatever it
    // is. A lack of memory is like a deadline: an error that came by itself is the better
    // news.
    const bool by_request = e.result == ending::cancelled || e.result == ending::stopped;
    if (by_request ? failed : e.result == ending::no_memory && aborted) {
      throw_ended(e.result, terms.limit.cancelled_by);
    }
    if (e.thrown != nullptr) std::rethrow_exception(e.thrown);
    if (e.dropped) {
      const boost::system::error_code code = boost::asio::error::operation_aborted;
      if constexpr ((has_code || has_exception) && !(throws && !redirects) &&
                    (std::is_default_constructible_v<Ds> && ...)) {
        v.emplace();
        set_error(*v, code);
      } else {
        throw boost::system::system_error(
            code,
            "vigil::io::use_fiber: the operation was destroyed before it was complete, with the "
            "io_context for example");
      }
    } else if (e.result == ending::cut && aborted) {
      set_error(*v, e.cut);
    }
    if constexpr (redirects) {
      *terms.redirected = std::get<0>(*v);
    } else if constexpr (throws && has_code) {
      if (std::get<0>(*v)) throw boost::system::system_error(std::get<0>(*v));
    } else if constexpr (throws && has_exception) {
      if (std::get<0>(*v) != nullptr) std::rethrow_exception(std::get<0>(*v));
    }
    return rest(std::move(*v));
  }
};

}  // namespace VIGIL_IO_DETAIL
