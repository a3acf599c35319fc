// The types of a channel and of its halves: the operations that they allow.
#include "core/chan/chan_test.hpp"

#include <type_traits>
#include <variant>

using namespace vigil::testing_support;

namespace {

template <class H, class T>
concept can_send = requires(const H& h, T v) { h.send(std::move(v)); };

template <class H, class T>
concept can_try_send = requires(const H& h, T v) {
  h.try_send(std::move(v));
  h.send_for(std::move(v), 1s);
  h.send_until(std::move(v), vigil::clock::now());
};

template <class H, class T>
concept can_send_copy = requires(const H& h, const T& v) { h.send(v); };

template <class H>
concept can_signal = requires(const H& h) { h.send(); };

template <class H>
concept can_recv = requires(const H& h) { h.recv(); };

template <class H>
concept can_try_recv = requires(const H& h) {
  h.try_recv();
  h.recv_for(1s);
  h.recv_until(vigil::clock::now());
};

template <class H>
concept can_close = requires(const H& h) { h.close(); };

template <class H>
concept can_be_ranged_over = requires(const H& h) {
  h.begin();
  h.end();
};

template <class T>
constexpr bool has_gos_permissions() {
  using unit = std::conditional_t<std::is_void_v<T>, int, T>;
  if constexpr (!std::is_void_v<T>) {
    static_assert(can_send<channel<T>, unit> && can_try_send<channel<T>, unit>);
    static_assert(can_send<sender<T>, unit> && can_try_send<sender<T>, unit>);
    static_assert(!can_send<receiver<T>, unit> && !can_try_send<receiver<T>, unit>);
    static_assert(can_be_ranged_over<channel<T>> && can_be_ranged_over<receiver<T>>);
  } else {
    static_assert(can_signal<channel<T>> && can_signal<sender<T>> && !can_signal<receiver<T>>);
  }
  static_assert(can_recv<channel<T>> && can_try_recv<channel<T>> && can_close<channel<T>>);
  static_assert(!can_recv<sender<T>> && !can_try_recv<sender<T>> && can_close<sender<T>>);
  static_assert(!can_be_ranged_over<sender<T>>);
  static_assert(can_recv<receiver<T>> && can_try_recv<receiver<T>> && !can_close<receiver<T>>);
  // A channel converts to either half; a half converts to nothing else.
  static_assert(std::is_convertible_v<channel<T>, sender<T>>);
  static_assert(std::is_convertible_v<channel<T>, receiver<T>>);
  static_assert(!std::is_constructible_v<channel<T>, sender<T>>);
  static_assert(!std::is_constructible_v<channel<T>, receiver<T>>);
  static_assert(!std::is_constructible_v<receiver<T>, sender<T>>);
  static_assert(!std::is_constructible_v<sender<T>, receiver<T>>);
  // A channel of one type does not convert to one of another.
  static_assert(!std::is_constructible_v<sender<T>, channel<long double>>);
  return true;
}

struct nothing_in_it {};

}  // namespace

TEST_SUITE("channel") {
  // At compile time.
  // Go: chan/perm.go.
  TEST_CASE("a sending half cannot receive and a receiving half can neither send nor close") {
    CHECK(has_gos_permissions<int>());
    CHECK(has_gos_permissions<std::string>());
    CHECK(has_gos_permissions<std::unique_ptr<int>>());
    CHECK(has_gos_permissions<void>());
    // A move-only value cannot be sent by copying it.
    static_assert(!can_send_copy<channel<std::unique_ptr<int>>, std::unique_ptr<int>>);
    static_assert(can_send_copy<channel<std::string>, std::string>);
    // The result of a try cannot be mistaken for a number.
    static_assert(!std::is_convertible_v<vigil::send_result, bool>);
    static_assert(!std::is_convertible_v<vigil::recv_result<int>, bool>);
  }

  // Go: chan/zerosize.go.
  TEST_CASE("values without content are counted like any other") {
    in_virtual([] {
      for (const std::size_t n : {0u, 1u, 5u}) {
        const auto c = make_channel<nothing_in_it>(n);
        const auto v = make_channel<void>(n);
        const auto m = make_channel<std::monostate>(n);
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(c.try_send({}));
          CHECK(v.try_send());
          CHECK(m.try_send(std::monostate()));
        }
        CHECK_FALSE(c.try_send({}));
        CHECK_FALSE(v.try_send());
        CHECK(v.size() == n);
        for (std::size_t i = 0; i < n; ++i) {
          CHECK(c.recv().has_value());
          CHECK(v.recv());
          CHECK(m.recv().has_value());
        }
        CHECK_FALSE(v.try_recv());
        auto f = spawn([v] { return v.recv(); });
        settle();
        v.send();
        CHECK(f.join());
        CHECK(v.recv_for(1s).is_timeout());
        if (n == 0) CHECK(v.send_for(1s).is_timeout());
        CHECK(v.recv_until(vigil::clock::now() + 1s).is_timeout());
        v.close();
        CHECK_FALSE(v.recv());
        CHECK(v.try_recv().is_closed());
        CHECK(v.try_send().is_closed());
        CHECK_THROWS_AS(v.send(), channel_closed);
      }
      const auto huge = make_channel<void>(1'000'000'000);  // needs no memory
      CHECK(huge.try_send());
      CHECK(huge.size() == 1);
    });
  }
}
