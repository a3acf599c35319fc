// Refused calls: the text of the refusal, and that nothing is left behind.
#include "core/chan/chan_test.hpp"
#include "core/chan/copy_throws.hpp"
#include "support/child.hpp"
#include "support/text_of.hpp"

#include <cstddef>
#include <cstdio>
#include <functional>
#include <limits>
#include <new>
#include <optional>
#include <stdexcept>

using namespace vigil::testing_support;

namespace {

struct as_large_as_it_gets {
  std::byte bytes[1024];
};

// abort() flushes no buffer.
void say_so_far_so_good() {
  std::puts("so far so good");
  std::fflush(stdout);
}

// A value that must not be sent, which the compiler can tell.
struct move_throws {
  move_throws() = default;

  move_throws(move_throws&&) noexcept(false) {}
};

template <class T>
constexpr bool fit_to_be_sent =
    std::is_nothrow_move_constructible_v<T> && std::is_nothrow_destructible_v<T>;

struct not_a_case {};

template <class L, class C>
concept can_add = requires(L& list, C c) { list.add(std::move(c)); };

template <class V, class U>
concept can_be_sent_as = requires(const channel<V>& c, U u) { on_send(c, std::move(u)); };

}  // namespace

TEST_SUITE("channel: bad input") {
  TEST_CASE("a send on a closed channel is channel_closed, says so, and sends nothing") {
    in_virtual([] {
      for (const std::size_t n : {0u, 2u}) {
        const auto c = make_channel<std::string>(n);
        const sender<std::string> half = c;
        c.close();
        std::string value = "kept";
        for (const auto& send :
             {std::function<void()>([&] { c.send(std::move(value)); }),
              std::function<void()>([&] { half.send(std::move(value)); }),
              std::function<void()>([&] { half.send(value); }),
              std::function<void()>([&] { select(on_send(c, std::move(value))); }),
              std::function<void()>(
                  [&] { select(on_send(half, std::move(value)), otherwise()); })}) {
          const std::string text = text_of<channel_closed>(send);
          CHECK(holds(text, "the channel is closed"));
          CHECK(holds(text, "try_send"));
          CHECK(value == "kept");
        }
        // The forms with a result do not throw.
        CHECK(c.try_send(std::move(value)).is_closed());
        CHECK(c.send_for(std::move(value), 1s).is_closed());
        CHECK(value == "kept");
        CHECK(c.size() == 0);
        CHECK(c.recv() == std::nullopt);
      }
    });
  }

  // Go: closedchan.go: close of nil, twice.
  TEST_CASE("the second close is channel_closed and changes nothing, from either half") {
    in_virtual([] {
      const auto c = make_channel<int>(1);
      c.send(1);
      c.close();
      CHECK(holds(text_of<channel_closed>([&] { c.close(); }), "closed already"));
      CHECK(holds(text_of<channel_closed>([&] { sender<int>(c).close(); }), "one place own"));
      CHECK(c.recv() == 1);
      CHECK(c.recv() == std::nullopt);
      // Callers that do not know the class see a std::logic_error.
      CHECK_THROWS_AS(c.close(), std::logic_error);
    });
  }

  TEST_CASE("exactly one of many simultaneous closes succeeds") {
    channel<int> c;
    std::atomic<int> closed{0};
    const auto close = [&](int) {
      try {
        c.close();
        ++closed;
      } catch (const channel_closed&) {
      }
    };
    const int n = many(3000);
    race(
        n,
        [&](int) {
          c = make_channel<int>();
          closed = 0;
        },
        close,
        close,
        [&](int) { REQUIRE(closed == 1); });
  }

  // Go: closedchan.go: close of nil, twice.
  TEST_CASE("the close of a nil channel is a logic_error that says how to make one") {
    const auto check = [](auto nil) {
      const std::string text = text_of<std::logic_error>([&] { nil.close(); });
      CHECK(holds(text, "nil"));
      CHECK(holds(text, "make_channel"));
    };
    check(channel<int>());
    check(sender<int>());
    check(channel<void>());
    auto c = make_channel<int>();
    const auto moved = std::move(c);
    check(c);  // NOLINT(bugprone-use-after-move)
    moved.close();
  }

  // Go: chancap.go, makechan.go.
  TEST_CASE("a capacity that no memory could hold is refused before anything is allocated") {
    constexpr std::size_t most = std::numeric_limits<std::size_t>::max();
    for (const std::size_t n :
         {most, most / 2 + 1, static_cast<std::size_t>(-1), most / 1024 + 1}) {
      const std::string text =
          text_of<std::length_error>([&] { make_channel<as_large_as_it_gets>(n); });
      CHECK(holds(text, "capacity"));
      CHECK(holds(text, "number of values"));
    }
    CHECK_THROWS_AS(make_channel<char>(most), std::length_error);
    CHECK_THROWS_AS(make_channel<void>(most), std::length_error);
    CHECK_THROWS_AS(make_channel<int>(static_cast<std::size_t>(-1)), std::length_error);
#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer's allocator ends the program
    // Possible on some machine, but not on this one.
    CHECK_THROWS_AS(make_channel<as_large_as_it_gets>(most / 4096), std::bad_alloc);
#endif
    CHECK(make_channel<int>(1000).capacity() == 1000);
  }

  TEST_CASE("a value whose copy throws: the exception is thrown on and nothing was sent") {
    in_virtual([] {
      for (const std::size_t n : {0u, 1u}) {
        const auto c = make_channel<copy_throws>(n);
        const copy_throws value(7);
        auto f = spawn([&] { return c.recv_for(1h).status(); });
        settle();
        CHECK(text_of<std::runtime_error>([&] { c.send(value); }) == "no copy today");
        CHECK_THROWS_AS(static_cast<void>(c.try_send(value)), std::runtime_error);
        CHECK_THROWS_AS(static_cast<void>(c.send_for(value, 1s)), std::runtime_error);
        CHECK_THROWS_AS(static_cast<void>(c.send_until(value, vigil::clock::now())),
                        std::runtime_error);
        CHECK_THROWS_AS(select(on_send(c, value), on_timeout(1s)), std::runtime_error);
        CHECK(c.size() == 0);
        CHECK_FALSE(f.join_for(0s));
        c.send(copy_throws(8));  // moved
        CHECK(f.join() == channel_status::ok);
        check_nobody_waits(c);
      }
    });
  }

  namespace {

  // A static_assert of case_list::add() checks this, and says what to do.
  template <class T, class Value>
  inline constexpr bool is_refused = vigil::detail::ends_with_the_statement<decltype(vigil::on_send(
      std::declval<const channel<T>&>(), std::declval<Value>()))>;

  }  // namespace

  TEST_CASE("a case_list refuses an on_send of an rvalue, which may be gone by the select") {
    CHECK(is_refused<std::string, std::string>);
    CHECK(is_refused<std::unique_ptr<int>, std::unique_ptr<int>>);
    CHECK_FALSE(is_refused<std::string, std::string&>);
    CHECK_FALSE(is_refused<std::string, const char*>);
    CHECK_FALSE(is_refused<int, int>);
    CHECK_FALSE(is_refused<std::string, std::reference_wrapper<std::string>>);
    CHECK_FALSE(is_refused<std::unique_ptr<int>, std::reference_wrapper<std::unique_ptr<int>>>);
  }

  TEST_CASE("a value behind std::ref stays in the caller's hand until its case is taken") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(1);
      auto value = std::make_unique<int>(7);
      vigil::case_list list;
      list.add(on_send(c, std::ref(value)));
      list.add(otherwise());
      CHECK(select(list) == 0);
      CHECK(value == nullptr);
      value = std::make_unique<int>(8);
      CHECK(select(list) == 1);  // full
      CHECK(*value == 8);
      CHECK(**c.recv() == 7);
      c.close();
      CHECK_THROWS_AS(select(list), vigil::channel_closed);
      CHECK_THROWS_AS(select(on_send(c, std::ref(value))), vigil::channel_closed);
      CHECK(*value == 8);
    });
  }

  TEST_CASE("throwing moves, wrong types and non-cases are refused by the compiler") {
    // The assertion's text cannot be tested here, only its condition.
    CHECK_FALSE(fit_to_be_sent<move_throws>);
    CHECK(fit_to_be_sent<std::unique_ptr<move_throws>>);
    CHECK(fit_to_be_sent<copy_throws>);
    // An on_send of a value that does not become a T, and an argument that is not a case,
    // do not compile.
    static_assert(can_be_sent_as<std::string, const char*>);
    static_assert(!can_be_sent_as<std::string, not_a_case>);
    static_assert(!can_be_sent_as<int, std::string>);
    static_assert(!can_add<vigil::case_list, not_a_case>);
    static_assert(!can_add<vigil::case_list, int>);
    static_assert(
        !std::is_invocable_v<decltype([](auto c) -> decltype(on_recv(c)) {}), sender<int>>);
    static_assert(
        !std::is_invocable_v<decltype([](auto c) -> decltype(on_send(c, 1)) {}), receiver<int>>);
  }

  TEST_CASE("a duration that is not a number is refused, and nobody waits") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const std::chrono::duration<double> nan(std::numeric_limits<double>::quiet_NaN());
      CHECK_THROWS_AS(static_cast<void>(c.recv_for(nan)), std::invalid_argument);
      CHECK_THROWS_AS(static_cast<void>(c.send_for(1, nan)), std::invalid_argument);
      CHECK_THROWS_AS(select(on_recv(c), on_timeout(nan)), std::invalid_argument);
      check_nobody_waits(c);
    });
  }

  // --- a place where no fiber may wait

  TEST_CASE("child: receives under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      vigil::this_fiber::set_name("clumsy");
      const auto c = make_channel<int>(1);
      const vigil::this_fiber::no_park guard;
      c.send(1);  // these do not wait
      CHECK(c.recv() == 1);
      CHECK(select(on_recv(c), otherwise()) == 1);
      say_so_far_so_good();
      static_cast<void>(c.recv());
    });
  }

  TEST_CASE("child: sends under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      vigil::this_fiber::set_name("clumsy");
      const auto c = make_channel<int>();
      const vigil::this_fiber::no_park guard;
      say_so_far_so_good();
      static_cast<void>(c.send_for(1, 1s));
    });
  }

  TEST_CASE("child: selects under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      vigil::this_fiber::set_name("clumsy");
      const auto c = make_channel<int>();
      const vigil::this_fiber::no_park guard;
      CHECK(select(on_recv(c), on_timeout(0s)) == 1);
      say_so_far_so_good();
      select(on_recv(c), on_timeout(1s));
    });
  }

  TEST_CASE("child: waits on nil under no_park" * doctest::skip()) {
    vigil::testing::run_virtual([] {
      vigil::this_fiber::set_name("clumsy");
      const vigil::this_fiber::no_park guard;
      say_so_far_so_good();
      static_cast<void>(channel<int>().recv());
    });
  }

  TEST_CASE("a wait under no_park ends the program by name, a call that need not wait passes") {
    for (const char* const what : {"receives", "sends", "selects", "waits on nil"}) {
      const auto name = std::string("child: ") + what + " under no_park";
      const child_result r = run_child(name.c_str());
      CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
      CHECK(r.says("so far so good"));
      CHECK(r.says("clumsy"));
      CHECK(r.says("this_fiber::no_park"));
    }
  }

  TEST_CASE("child: waits on a channel after a fork" * doctest::skip()) {
    vigil::options o;
    o.workers = 1;
    vigil::run(o, [] {
      if (const pid_t child = ::fork(); child == 0) {
        static_cast<void>(make_channel<int>().recv_for(1ms));
        std::puts("waited");
        ::_exit(0);
      } else {
        int status = 0;
        ::waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) std::puts("the child died");
      }
    });
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER
  TEST_CASE("a wait in the child of a fork ends it loudly") {
    const child_result r = run_child("child: waits on a channel after a fork");
    CHECK(r.says("fork"));
    CHECK(r.says("the child died"));
    CHECK_FALSE(r.says("waited"));
  }
#endif
}
