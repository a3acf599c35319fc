// The demands on a completion token: every signature, every wrapper.
#include "io/io_test.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <type_traits>

#include <boost/asio/compose.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>

using namespace vigil::io_testing;

namespace {

// An operation of the given signature that completes later, on the io_context, or at
// once, in the initiating function.
enum class when { later, at_once };

template <class Signature, class Token, class... Values>
auto complete(asio::io_context& context, when how, Token&& token, Values... values) {
  return asio::async_initiate<Token, Signature>(
      [&context, how](auto handler, auto... vs) {
        if (how == when::at_once) {
          std::move(handler)(std::move(vs)...);
        } else {
          asio::post(context, [h = std::move(handler), ... v = std::move(vs)]() mutable {
            std::move(h)(std::move(v)...);
          });
        }
      },
      token,
      std::move(values)...);
}

using boxed = std::unique_ptr<int>;

std::exception_ptr a_runtime_error() {
  return std::make_exception_ptr(std::runtime_error("as given"));
}

struct counts {
  std::atomic<int> taken{0};
  std::atomic<int> given{0};
};

template <class T>
struct counting {
  using value_type = T;

  explicit counting(counts& c) noexcept : seen(&c) {}

  template <class U>
  counting(const counting<U>& other) noexcept : seen(other.seen) {}

  T* allocate(std::size_t n) {
    seen->taken.fetch_add(1);
    return static_cast<T*>(::operator new(n * sizeof(T)));
  }

  void deallocate(T* p, std::size_t) noexcept {
    seen->given.fetch_add(1);
    ::operator delete(p);
  }

  template <class U>
  friend bool operator==(const counting& a, const counting<U>& b) noexcept {
    return a.seen == b.seen;
  }

  counts* seen;
};

const error_code ok{};
const error_code refused = asio::error::connection_refused;

}  // namespace

TEST_SUITE("use_fiber: signatures") {
  // Asio: only void(ec) and void(ec, T).
  TEST_CASE("nothing, one value and several come back as nothing, the value and a tuple") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      for (const when how : {when::later, when::at_once}) {
        static_assert(std::is_void_v<decltype(complete<void()>(c, how, use_fiber))>);
        complete<void()>(c, how, use_fiber);
        CHECK(complete<void(int)>(c, how, use_fiber, 7) == 7);
        CHECK(complete<void(int, std::string)>(c, how, use_fiber, 7, std::string("x")) ==
              std::tuple(7, std::string("x")));
        CHECK(complete<void(const std::string&)>(c, how, use_fiber, std::string("y")) == "y");
      }
    });
  }

  // Asio: only void(ec) and void(ec, T).
  TEST_CASE("an error_code is thrown, or the values come without it") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      for (const when how : {when::later, when::at_once}) {
        complete<void(error_code)>(c, how, use_fiber, ok);
        CHECK(complete<void(error_code, int)>(c, how, use_fiber, ok, 7) == 7);
        CHECK(complete<void(error_code, int, char)>(c, how, use_fiber, ok, 7, 'x') ==
              std::tuple(7, 'x'));
        CHECK(error_of([&] { complete<void(error_code)>(c, how, use_fiber, refused); }) == refused);
        CHECK(error_of([&] { complete<void(error_code, int)>(c, how, use_fiber, refused, 7); }) ==
              refused);
      }
    });
  }

  // Asio: only void(ec) and void(ec, T).
  TEST_CASE("an exception_ptr is rethrown with its own type") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      for (const when how : {when::later, when::at_once}) {
        complete<void(std::exception_ptr)>(c, how, use_fiber, std::exception_ptr());
        CHECK(complete<void(std::exception_ptr, int)>(c, how, use_fiber, std::exception_ptr(), 7) ==
              7);
        CHECK_THROWS_WITH_AS(
            (complete<void(std::exception_ptr, int)>(c, how, use_fiber, a_runtime_error(), 7)),
            "as given",
            std::runtime_error);
      }
    });
  }

  // Asio: only void(ec) and void(ec, T).
  TEST_CASE("values that can only be moved arrive") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      for (const when how : {when::later, when::at_once}) {
        CHECK(*complete<void(boxed)>(c, how, use_fiber, std::make_unique<int>(7)) == 7);
        CHECK(*complete<void(error_code, boxed)>(c, how, use_fiber, ok, std::make_unique<int>(8)) ==
              8);
        auto [code, box] = complete<void(error_code, boxed)>(
            c, how, asio::as_tuple(use_fiber), ok, std::make_unique<int>(9));
        CHECK(!code);
        CHECK(*box == 9);
      }
    });
  }

  // Asio: only void(ec) and void(ec, T).
  TEST_CASE("a signature may be noexcept or have a reference qualifier, in every wrapper") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      const auto completes = [&]<class Signature>(std::type_identity<Signature>) {
        for (const when how : {when::later, when::at_once}) {
          CHECK(complete<Signature>(c, how, use_fiber, ok, 7) == 7);
          CHECK(complete<Signature>(c, how, use_fiber.within(1h), ok, 7) == 7);
          CHECK(complete<Signature>(c, how, asio::as_tuple(use_fiber), refused, 7) ==
                std::tuple(refused, 7));
          error_code code;
          CHECK(complete<Signature>(c, how, asio::redirect_error(use_fiber, code), refused, 7) ==
                7);
          CHECK(code == refused);
          CHECK(complete<Signature>(
                    c, how, asio::bind_executor(c.get_executor(), use_fiber), ok, 7) == 7);
          CHECK(complete<Signature>(
                    c, how, asio::bind_allocator(std::allocator<int>(), use_fiber), ok, 7) == 7);
          asio::cancellation_signal signal;
          CHECK(complete<Signature>(
                    c, how, asio::bind_cancellation_slot(signal.slot(), use_fiber), ok, 7) == 7);
        }
      };
      completes(std::type_identity<void(error_code, int)&>());
      completes(std::type_identity<void(error_code, int) &&>());
      completes(std::type_identity<void(error_code, int) noexcept>());
      // clang-format off
      completes(std::type_identity<void(error_code, int)& noexcept>());
      completes(std::type_identity<void(error_code, int)&& noexcept>());
      // clang-format on
    });
  }

  TEST_CASE("a value whose move throws: the fiber gets the exception") {
    struct unmovable_today {
      unmovable_today() = default;

      unmovable_today(unmovable_today&& other) : moves(other.moves + 1) {
        if (moves == 4) throw std::runtime_error("does not move");
      }

      int moves = 0;
    };

    in_runtime({.workers = {1}}, [] {
      const auto begin = [] {
        asio::async_initiate<const vigil::io::use_fiber_t, void(unmovable_today)>(
            [](auto handler) {
              unmovable_today v;
              v.moves = 3;
              std::move(handler)(std::move(v));
            },
            use_fiber);
      };
      CHECK_THROWS_WITH(begin(), "does not move");
    });
  }

  TEST_CASE("an exception of the initiating function is thrown on") {
    in_runtime({.workers = {1}}, [] {
      const auto begin = [] {
        asio::async_initiate<const vigil::io::use_fiber_t, void()>(
            [](auto) { throw std::runtime_error("cannot begin"); }, use_fiber);
      };
      CHECK_THROWS_WITH(begin(), "cannot begin");
    });
  }

  // Asio: an immediate completion suspends.
  TEST_CASE("an operation that completes at once does not park") {
    in_runtime({.workers = {1}}, [] {
      auto& c = vigil::io::io_context();
      const auto before = vigil::stats().switches;
      for (int i = 0; i < 100; ++i)
        complete<void(int)>(c, when::at_once, use_fiber, 7);
      CHECK(vigil::stats().switches == before);
    });
  }
}

TEST_SUITE("use_fiber: wrappers") {
  TEST_CASE("as_tuple and redirect_error throw nothing") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      error_code code;
      for (const when how : {when::later, when::at_once}) {
        CHECK(complete<void(error_code, int)>(c, how, asio::as_tuple(use_fiber), refused, 7) ==
              std::tuple(refused, 7));
        CHECK(complete<void(int)>(c, how, asio::as_tuple(use_fiber), 7) == std::tuple(7));
        CHECK(complete<void(error_code, int)>(
                  c, how, asio::redirect_error(use_fiber, code), refused, 7) == 7);
        CHECK(code == refused);
        CHECK(complete<void(error_code, int)>(
                  c, how, asio::redirect_error(asio::as_tuple(use_fiber), code), ok, 8) ==
              std::tuple(8));
        CHECK(!code);
        code = refused;
        CHECK(complete<void(error_code, int)>(
                  c, how, asio::as_tuple(asio::redirect_error(use_fiber, code)), ok, 8) ==
              std::tuple(ok, 8));
        CHECK(code == refused);  // as with Asio's own: the tuple has it
      }
    });
  }

  // Asio: no associated executor, allocator, slot.
  TEST_CASE("handlers run where bind_executor says, even between the steps of an operation") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      asio::thread_pool pool(1);
      std::thread::id of_pool;
      asio::post(pool, [&] { of_pool = std::this_thread::get_id(); });
      std::vector<std::thread::id> seen;
      const auto token = asio::bind_executor(pool.get_executor(), use_fiber);
      asio::async_compose<decltype(token), void()>(
          [&seen, &c, step = 0](auto& self) mutable {
            if (step++ != 0) seen.push_back(std::this_thread::get_id());
            if (step == 4) {
              self.complete();
            } else {
              asio::post(c, std::move(self));
            }
          },
          token,
          c);
      REQUIRE(seen.size() == 3);
      for (const auto id : seen)
        CHECK(id == of_pool);
      auto strand = asio::make_strand(pool);
      CHECK(complete<void(error_code, int)>(
                c, when::later, asio::bind_executor(strand, asio::as_tuple(use_fiber)), ok, 7) ==
            std::tuple(ok, 7));
      pool.join();
    });
  }

  TEST_CASE("an io_context that is bound runs the steps, wherever they come from") {
    asio::io_context other;
    auto work = asio::make_work_guard(other);
    std::thread runner([&] { other.run(); });
    asio::thread_pool pool(1);
    in_runtime({.workers = {1, 2}}, [&] {
      const auto token = asio::bind_executor(other.get_executor(), use_fiber);
      std::thread::id seen;
      asio::async_compose<decltype(token), void()>(
          [&, step = 0](auto& self) mutable {
            if (step++ == 0) {
              asio::post(pool, std::move(self));
              return;
            }
            seen = std::this_thread::get_id();
            self.complete();
          },
          token);
      CHECK(seen == runner.get_id());
    });
    work.reset();
    runner.join();
    pool.join();
  }

  TEST_CASE("a bound executor has work until the operation is over, and is then released") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::cancellation_signal signal;
      {
        asio::io_context bound;
        socket_pair s(vigil::io::io_context());
        vigil::latch begun(1);
        auto reader = vigil::spawn([&] {
          char byte = 0;
          const auto read = [&](auto token) {
            asio::async_initiate<decltype(token), void(error_code, std::size_t)>(
                [&](auto handler) {
                  s.near.async_read_some(asio::buffer(&byte, 1), std::move(handler));
                  begun.count_down();
                },
                token);
          };
          read(asio::bind_executor(asio::make_strand(bound),
                                   asio::bind_cancellation_slot(signal.slot(), use_fiber)));
        });
        begun.wait();
        bound.poll();
        CHECK_FALSE(bound.stopped());
        bound.restart();
        asio::write(s.far, asio::buffer("x", 1));
        const run_by_threads runner(bound, 1);
        reader.join();
      }
      signal.emit(asio::cancellation_type::all);  // the operation is over, and the strand gone
    });
  }

  TEST_CASE("a cancellation while the operation is just being begun is not lost") {
    in_runtime({.workers = {1, 2}}, [] {
      asio::steady_timer t(vigil::io::io_context(), 1h);
      asio::cancellation_signal signal;
      const auto token = asio::bind_cancellation_slot(signal.slot(), use_fiber.within(1h));
      CHECK(error_of([&] {
              asio::async_initiate<decltype(token), void(error_code)>(
                  [&](auto handler) {
                    signal.emit(asio::cancellation_type::terminal);
                    t.async_wait(std::move(handler));
                  },
                  token);
            }) == asio::error::operation_aborted);
    });
  }

  // Asio: no associated executor, allocator, slot.
  TEST_CASE("the operation's memory comes from the bound allocator") {
    in_runtime({.workers = {1, 2}}, [] {
      socket_pair s(vigil::io::io_context());
      counts seen;
      char byte = 0;
      CHECK(error_of([&] {
              s.near.async_read_some(
                  asio::buffer(&byte, 1),
                  asio::bind_allocator(counting<void>(seen), use_fiber.within(1ms)));
            }) == asio::error::timed_out);
      CHECK(seen.taken.load() > 0);
      CHECK(seen.taken.load() == seen.given.load());
    });
  }

  // Asio: no associated executor, allocator, slot.
  TEST_CASE("a bound slot cancels, and a deadline cancels beside it") {
    in_runtime({.workers = {1}}, [] {
      socket_pair s(vigil::io::io_context());
      char byte = 0;
      asio::cancellation_signal signal;
      // On one worker: runs once the read waits.
      auto canceller = vigil::spawn([&] { signal.emit(asio::cancellation_type::total); });
      CHECK(error_of([&] {
              s.near.async_read_some(asio::buffer(&byte, 1),
                                     asio::bind_cancellation_slot(signal.slot(), use_fiber));
            }) == asio::error::operation_aborted);
      CHECK(error_of([&] {
              s.near.async_read_some(
                  asio::buffer(&byte, 1),
                  asio::bind_cancellation_slot(signal.slot(), use_fiber.within(1ms)));
            }) == asio::error::timed_out);
      canceller.join();
      signal.emit(asio::cancellation_type::all);  // the operation is over: no handler is there
    });
  }

  // Asio: no associated executor, allocator, slot.
  TEST_CASE("wrappers of several kinds, in any order") {
    in_runtime({.workers = {1, 2}}, [] {
      auto& c = vigil::io::io_context();
      socket_pair s(c);
      char byte = 0;
      asio::cancellation_signal signal;
      auto strand = asio::make_strand(c);
      error_code code;
      auto [e, n] = s.near.async_read_some(
          asio::buffer(&byte, 1),
          asio::as_tuple(asio::bind_executor(
              strand, asio::bind_cancellation_slot(signal.slot(), use_fiber.within(1ms)))));
      CHECK(e == asio::error::timed_out);
      CHECK(n == 0);
      CHECK(s.near.async_read_some(
                asio::buffer(&byte, 1),
                asio::bind_executor(strand, asio::redirect_error(use_fiber.within(1ms), code))) ==
            0);
      CHECK(code == asio::error::timed_out);
      asio::async_write(
          s.far,
          asio::buffer("x", 1),
          asio::bind_allocator(std::allocator<int>(), use_fiber.until(vigil::clock::now() + 1h)));
      CHECK(asio::async_read(s.near, asio::buffer(&byte, 1), use_fiber) == 1);
      CHECK(byte == 'x');
    });
  }
}
