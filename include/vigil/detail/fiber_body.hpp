// The function of a fiber with its arguments, and how a fiber is started with it.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/fiber_core.hpp>
#include <vigil/detail/site.hpp>

#include <cstddef>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {

// Holds the function with its arguments, and later, in the same place, the result until
// join() takes it. Built on the fiber's own stack.
template <class R, class F, class... Args>
class fiber_body {
 public:
  template <class G, class... As>
  explicit fiber_body(G&& f, As&&... args)
      : call_{std::forward<G>(f), std::tuple<Args...>(std::forward<As>(args)...)} {}

  ~fiber_body() {}  // run() and the two destroyers below end the members' lives

  static void run(void* self) {
    auto& body = *static_cast<fiber_body*>(self);
    if constexpr (std::is_void_v<R>) {
      const end_of_call guard{body};
      body.invoke();
    } else {
      // The result is built before the function is destroyed, and only then moved into
      // its place: the function may return a reference into itself.
      alignas(R) std::byte room[sizeof(R)];
      end_of_result result;
      {
        const end_of_call guard{body};
        result.made = ::new (static_cast<void*>(room)) R(body.invoke());
      }
      ::new (static_cast<void*>(&body.result_)) R(std::move(*result.made));
    }
  }

  static void destroy_call(void* self) noexcept { static_cast<fiber_body*>(self)->call_.~call(); }

  static void destroy_result(void* self) noexcept {
    if constexpr (!std::is_void_v<R>) static_cast<fiber_body*>(self)->result_.~R();
  }

  static void* result(void* self) noexcept { return &static_cast<fiber_body*>(self)->result_; }

  static constexpr body_table table = {&run, &destroy_call, &destroy_result, &result};

 private:
  struct call {
    F function;
    std::tuple<Args...> arguments;
  };

  struct end_of_call {
    fiber_body& body;

    ~end_of_call() { destroy_call(&body); }
  };

  struct end_of_result {
    R* made = nullptr;

    ~end_of_result() {
      if (made != nullptr) made->~R();
    }
  };

  struct nothing {};

  R invoke() { return std::apply(std::move(call_.function), std::move(call_.arguments)); }

  union {
    call call_;
    std::conditional_t<std::is_void_v<R>, nothing, R> result_;
  };
};

template <class F, class... Args>
using fiber_result = std::invoke_result_t<std::decay_t<F>, std::decay_t<Args>...>;

template <class F, class... Args>
concept startable = std::is_invocable_v<std::decay_t<F>, std::decay_t<Args>...>;

// The compiler's message for a call that no fiber could make. A class, since g++ looks
// into it before it looks at what follows.
template <class F, class... Args>
struct checked_call {
  static_assert(startable<F, Args...>,
                "vigil: f(args...) does not compile for go(f, args...) or spawn(f, args...): give "
                "an argument for each parameter of f, in order, and std::ref(x) for a T&; the "
                "fiber has copies of them");
  static constexpr bool is_done = true;
};

template <class... Args>
struct checked_call<fiber_options, Args...> : checked_call<Args...> {};

// Whether no overload of go() or spawn() takes them.
template <class F, class... Args>
inline constexpr bool are_mistaken =
    !startable<F, Args...> && !(std::is_same_v<std::decay_t<Args>, site> || ...);
template <class F, class... Args>
inline constexpr bool are_mistaken<fiber_options, F, Args...> = are_mistaken<F, Args...>;

// Builds the body on a new stack and starts the fiber.
// Throws: wrong_place, limit_reached, std::bad_alloc, std::invalid_argument.
template <class F, class... Args>
fiber_core* start_by(const start_call& call,
                     const fiber_options& options,
                     bool detached,
                     const site& from,
                     F&& f,
                     Args&&... args) {
  static_assert(checked_call<F, Args...>::is_done);
  using R = fiber_result<F, Args...>;
  static_assert(!std::is_reference_v<R>,
                "vigil: a fiber cannot return a reference; return a pointer or a value");
  using body = fiber_body<R, std::decay_t<F>, std::decay_t<Args>...>;
  refuse_empty(call.name, f);
  new_fiber fresh(call, options, sizeof(body), alignof(body), from);
  ::new (fresh.room()) body(std::forward<F>(f), std::forward<Args>(args)...);
  return fresh.start(body::table, detached);
}

template <class F, class... Args>
fiber_core* start(
    const fiber_options& options, bool detached, const site& from, F&& f, Args&&... args) {
  return start_by({}, options, detached, from, std::forward<F>(f), std::forward<Args>(args)...);
}

}  // namespace VIGIL_DETAIL
