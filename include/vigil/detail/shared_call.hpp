// shared_call: a callable for settings, without <functional>.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/handle.hpp>

#include <cstddef>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {

// Counted by retain() and release(), from any thread; the last one destroys it.
struct shared_box {
  explicit shared_box(void (*destroys)(shared_box*) noexcept) noexcept : destroy(destroys) {}

  std::size_t users = 1;
  void (*const destroy)(shared_box*) noexcept;
};

VIGIL_API void retain(shared_box* box) noexcept;
VIGIL_API void release(shared_box* box) noexcept;

template <class Signature>
struct call_box;

// The object of a shared_call.
template <class R, class... A>
struct call_box<R(A...)> : shared_box {
  call_box(R (*calls)(call_box&, A...), void (*destroys)(shared_box*) noexcept) noexcept
      : shared_box(destroys), call(calls) {}

  R operator()(A... arguments) { return call(*this, std::forward<A>(arguments)...); }

  R (*const call)(call_box&, A...);
};

template <class Signature>
class shared_call;

// Holds a plain function or a function object, or nothing. Copies share the object, which
// several threads may call at a time, and which dies with the last copy. An empty
// std::function is nothing.
template <class R, class... A>
class shared_call<R(A...)> {
 public:
  using box_type = call_box<R(A...)>;

  shared_call() noexcept = default;

  shared_call(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor): a setting

  // So that an overloaded function can be given.
  shared_call(R (*f)(A...))  // NOLINT(google-explicit-constructor)
      : box_(made(f)) {}

  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, shared_call> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, A...>)
  shared_call(F&& f)  // NOLINT(google-explicit-constructor)
      : box_(made(std::forward<F>(f))) {}

  explicit operator bool() const noexcept { return static_cast<bool>(box_); }

  friend bool operator==(const shared_call& f, std::nullptr_t) noexcept { return !f.box_; }

  R operator()(A... arguments) const { return (*box_.get())(std::forward<A>(arguments)...); }

  // nullptr if there is nothing.
  box_type* box() const noexcept { return box_.get(); }

 private:
  template <class F>
  struct holder final : box_type {
    template <class G>
    explicit holder(G&& g) : box_type(&call_it, &destroy_it), f(std::forward<G>(g)) {}

    static R call_it(box_type& self, A... arguments) {
      F& f = static_cast<holder&>(self).f;
      if constexpr (std::is_void_v<R>) {
        static_cast<void>(f(std::forward<A>(arguments)...));
      } else {
        return f(std::forward<A>(arguments)...);
      }
    }

    static void destroy_it(shared_box* self) noexcept { delete static_cast<holder*>(self); }

    F f;
  };

  template <class F>
  static box_type* made(F&& f) {
    if (is_empty_function(f)) return nullptr;
    return new holder<std::decay_t<F>>(std::forward<F>(f));
  }

  handle<box_type> box_;
};

}  // namespace VIGIL_DETAIL
