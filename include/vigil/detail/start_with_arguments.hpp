// go and spawn with arguments. The end of fiber.hpp includes it.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/fiber_body.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/fiber.hpp>

#include <utility>

namespace VIGIL_PUBLIC {

// One overload for each number of arguments, because the caller's place is the default
// value of a parameter, and no parameter may follow a pack. The lists come in
// parentheses, because they contain commas.
#define VIGIL_LIST(...) __VA_ARGS__
#define VIGIL_WITH_ARGUMENTS(CLASSES, NAMES, PARAMETERS, ARGUMENTS)                     \
  template <class F, VIGIL_LIST CLASSES>                                                \
    requires detail::startable<F, VIGIL_LIST NAMES>                                     \
  void go(F&& f, VIGIL_LIST PARAMETERS, const site& from = site::current()) {           \
    detail::start({}, true, from, std::forward<F>(f), VIGIL_LIST ARGUMENTS);            \
  }                                                                                     \
  template <class F, VIGIL_LIST CLASSES>                                                \
    requires detail::startable<F, VIGIL_LIST NAMES>                                     \
  void go(const fiber_options& options,                                                 \
          F&& f,                                                                        \
          VIGIL_LIST PARAMETERS,                                                        \
          const site& from = site::current()) {                                         \
    detail::start(options, true, from, std::forward<F>(f), VIGIL_LIST ARGUMENTS);       \
  }                                                                                     \
  template <class F, VIGIL_LIST CLASSES>                                                \
    requires detail::startable<F, VIGIL_LIST NAMES>                                     \
  auto spawn(F&& f, VIGIL_LIST PARAMETERS, const site& from = site::current()) {        \
    return fiber<detail::fiber_result<F, VIGIL_LIST NAMES>>(                            \
        detail::start({}, false, from, std::forward<F>(f), VIGIL_LIST ARGUMENTS));      \
  }                                                                                     \
  template <class F, VIGIL_LIST CLASSES>                                                \
    requires detail::startable<F, VIGIL_LIST NAMES>                                     \
  auto spawn(const fiber_options& options,                                              \
             F&& f,                                                                     \
             VIGIL_LIST PARAMETERS,                                                     \
             const site& from = site::current()) {                                      \
    return fiber<detail::fiber_result<F, VIGIL_LIST NAMES>>(                            \
        detail::start(options, false, from, std::forward<F>(f), VIGIL_LIST ARGUMENTS)); \
  }

// clang-format takes A&& for an expression here.
// clang-format off
VIGIL_WITH_ARGUMENTS((class A), (A), (A&& a), (std::forward<A>(a)))
VIGIL_WITH_ARGUMENTS((class A, class B),
                     (A, B),
                     (A&& a, B&& b),
                     (std::forward<A>(a), std::forward<B>(b)))
VIGIL_WITH_ARGUMENTS((class A, class B, class C),
                     (A, B, C),
                     (A&& a, B&& b, C&& c),
                     (std::forward<A>(a), std::forward<B>(b), std::forward<C>(c)))
VIGIL_WITH_ARGUMENTS((class A, class B, class C, class D),
                     (A, B, C, D),
                     (A&& a, B&& b, C&& c, D&& d),
                     (std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                      std::forward<D>(d)))
VIGIL_WITH_ARGUMENTS((class A, class B, class C, class D, class E),
                     (A, B, C, D, E),
                     (A&& a, B&& b, C&& c, D&& d, E&& e),
                     (std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                      std::forward<D>(d), std::forward<E>(e)))
VIGIL_WITH_ARGUMENTS((class A, class B, class C, class D, class E, class G),
                     (A, B, C, D, E, G),
                     (A&& a, B&& b, C&& c, D&& d, E&& e, G&& g),
                     (std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                      std::forward<D>(d), std::forward<E>(e), std::forward<G>(g)))
VIGIL_WITH_ARGUMENTS((class A, class B, class C, class D, class E, class G, class H),
                     (A, B, C, D, E, G, H),
                     (A&& a, B&& b, C&& c, D&& d, E&& e, G&& g, H&& h),
                     (std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                      std::forward<D>(d), std::forward<E>(e), std::forward<G>(g),
                      std::forward<H>(h)))
VIGIL_WITH_ARGUMENTS((class A, class B, class C, class D, class E, class G, class H, class I),
                     (A, B, C, D, E, G, H, I),
                     (A&& a, B&& b, C&& c, D&& d, E&& e, G&& g, H&& h, I&& i),
                     (std::forward<A>(a), std::forward<B>(b), std::forward<C>(c),
                      std::forward<D>(d), std::forward<E>(e), std::forward<G>(g),
                      std::forward<H>(h), std::forward<I>(i)))
// clang-format on
#undef VIGIL_WITH_ARGUMENTS
#undef VIGIL_LIST

template <class F, class... Args>
  requires(sizeof...(Args) > 8) && detail::startable<F, Args...>
void go(F&& f, Args&&... args) {
  detail::start({}, true, site::current(), std::forward<F>(f), std::forward<Args>(args)...);
}

template <class F, class... Args>
  requires(sizeof...(Args) > 8) && detail::startable<F, Args...>
void go(const fiber_options& options, F&& f, Args&&... args) {
  detail::start(options, true, site::current(), std::forward<F>(f), std::forward<Args>(args)...);
}

template <class F, class... Args>
  requires(sizeof...(Args) > 8) && detail::startable<F, Args...>
auto spawn(F&& f, Args&&... args) {
  return fiber<detail::fiber_result<F, Args...>>(
      detail::start({}, false, site::current(), std::forward<F>(f), std::forward<Args>(args)...));
}

template <class F, class... Args>
  requires(sizeof...(Args) > 8) && detail::startable<F, Args...>
auto spawn(const fiber_options& options, F&& f, Args&&... args) {
  return fiber<detail::fiber_result<F, Args...>>(detail::start(
      options, false, site::current(), std::forward<F>(f), std::forward<Args>(args)...));
}

// Calls that cannot be meant: the compiler says why.
template <class F, class A, class... More>
  requires detail::are_mistaken<F, A, More...>
void go(const F&, const A&, const More&...) {
  static_assert(detail::checked_call<F, A, More...>::is_done);
}

template <class F, class A, class... More>
  requires detail::are_mistaken<F, A, More...>
auto spawn(const F&, const A&, const More&...) {
  static_assert(detail::checked_call<F, A, More...>::is_done);
}

template <class F, class A, class... More>
  requires detail::are_mistaken<F, A, More...>
void go(const fiber_options&, const F&, const A&, const More&...) {
  static_assert(detail::checked_call<F, A, More...>::is_done);
}

template <class F, class A, class... More>
  requires detail::are_mistaken<F, A, More...>
auto spawn(const fiber_options&, const F&, const A&, const More&...) {
  static_assert(detail::checked_call<F, A, More...>::is_done);
}

}  // namespace VIGIL_PUBLIC
