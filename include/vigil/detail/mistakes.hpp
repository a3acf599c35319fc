// The texts of the compiler's first message about frequent mistakes: a number for a
// duration, a function whose parameters get no arguments, an lvalue of a type that cannot
// be copied.
//
// A free function may be a candidate for calls that mean the user's own. So its mistakes
// have an overload that is worse than any other, and is refused. A member takes the
// mistake, and a static_assert in it speaks.
#pragma once

#include <vigil/detail/config.hpp>

#include <type_traits>

// Functions that are there only to be refused, with a message, where nothing else would
// take the arguments. clang shows the text; g++ 12 shows the deleted function's
// parameters and default arguments, so their names say the same. A static_assert would
// tell a concept that the call compiles.
#ifdef __clang__
#define VIGIL_REFUSED(text) __attribute__((unavailable(text)))
#else
#define VIGIL_REFUSED(text) = delete
#endif

#define VIGIL_WANTS_DURATION                                              \
  "vigil: a length of time has a unit: write a duration, such as 5ms or " \
  "std::chrono::milliseconds(5), not 5"
#define VIGIL_WANTS_PLAIN_FUNCTION                                                    \
  "vigil: f is called without arguments: write [] { ... }, with what f needs in its " \
  "captures"

namespace VIGIL_DETAIL {

// The first of several parameters, the others being `...`. Made by a conversion, so that
// any other overload is better.
struct write_a_duration_such_as_5ms {
  template <class N>
    requires std::is_arithmetic_v<N>
  write_a_duration_such_as_5ms(N);  // NOLINT(google-explicit-constructor)
};

struct f_is_called_without_arguments;
struct send_of_std_move;
struct try_send_of_std_move;
struct send_for_of_std_move;
struct send_until_of_std_move;
struct on_send_of_std_move;

// For members. A class, since g++ looks into it before it looks at what follows.
template <class F>
struct checked_function {
  static_assert(std::is_invocable_v<F>, VIGIL_WANTS_PLAIN_FUNCTION);
  static constexpr bool is_done = true;
};

}  // namespace VIGIL_DETAIL
