#include "core/machine/switch.hpp"

#include "test_fiber.hpp"

#include <cerrno>
#include <cfenv>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <execinfo.h>
#include <unistd.h>

using vigil::detail::thread_side;
using vigil::testing_support::test_fiber;

namespace {

// Compilers may cache the address of errno within one function.
[[gnu::noinline]] int read_errno() {
  return errno;
}

[[gnu::noinline]] void write_errno(int value) {
  errno = value;
}

// The text of the exception being handled, by rethrowing it.
std::string handled() {
  try {
    throw;
  } catch (const std::exception& e) {
    return e.what();
  }
}

}  // namespace

TEST_SUITE("switch") {
  TEST_CASE("control passes to and fro until the body ends") {
    thread_side thread;
    std::vector<int> order;
    test_fiber fiber([&](test_fiber& self) {
      order.push_back(1);
      self.leave();
      order.push_back(3);
      self.leave();
      order.push_back(5);
    });
    fiber.enter(thread);
    order.push_back(2);
    fiber.enter(thread);
    order.push_back(4);
    CHECK_FALSE(fiber.is_done());
    fiber.enter(thread);
    CHECK(fiber.is_done());
    CHECK(order == std::vector{1, 2, 3, 4, 5});
  }

  TEST_CASE("the body runs on its own stack") {
    thread_side thread;
    const void* here = nullptr;
    test_fiber fiber([&](test_fiber&) { here = __builtin_frame_address(0); });
    fiber.enter(thread);
    CHECK(here > fiber.where().bottom);
    CHECK(here < fiber.where().top);
  }

  TEST_CASE("a hundred fibers take turns and keep their locals") {
    thread_side thread;
    std::vector<std::unique_ptr<test_fiber>> fibers;
    int total = 0;
    for (int i = 0; i < 100; ++i) {
      fibers.push_back(std::make_unique<test_fiber>([&total, i](test_fiber& self) {
        int mine = i;
        for (int round = 0; round < 10; ++round) {
          mine += round;
          self.leave();
        }
        total += mine;
      }));
    }
    for (int round = 0; round < 11; ++round) {
      for (auto& fiber : fibers)
        fiber->enter(thread);
    }
    for (auto& fiber : fibers)
      CHECK(fiber->is_done());
    CHECK(total == 100 * 99 / 2 + 100 * 45);
  }

  TEST_CASE("a fiber moves to another thread between two leaves") {
    // Not std::this_thread::get_id(): compilers may cache its result.
    std::vector<pid_t> seen;
    test_fiber fiber([&](test_fiber& self) {
      for (int i = 0; i < 3; ++i) {
        seen.push_back(::gettid());
        self.leave();
      }
    });
    thread_side thread;
    fiber.enter(thread);
    fiber.enter_on_another_thread();
    fiber.enter(thread);
    fiber.enter_on_another_thread();
    CHECK(fiber.is_done());
    CHECK(seen[0] == seen[2]);
    CHECK(seen[0] != seen[1]);
  }

  TEST_CASE("a handler that leaves still handles its own exception afterwards") {
    std::string after_move;
    std::string after_return;
    test_fiber fiber([&](test_fiber& self) {
      try {
        throw std::runtime_error("fiber's");
      } catch (...) {
        self.leave();
        after_move = handled();
        self.leave();
        after_return = handled();
      }
    });
    thread_side thread;
    try {
      throw std::runtime_error("thread's");
    } catch (...) {
      fiber.enter(thread);
      CHECK(handled() == "thread's");
      fiber.enter_on_another_thread();
      CHECK(handled() == "thread's");
      fiber.enter(thread);
      CHECK(handled() == "thread's");
    }
    CHECK(std::current_exception() == nullptr);
    CHECK(after_move == "fiber's");
    CHECK(after_return == "fiber's");
  }

  TEST_CASE("two fibers in handlers do not see each other's exceptions") {
    std::string first_saw;
    std::string second_saw;
    const auto body = [](const char* mine, std::string& saw) {
      return [mine, &saw](test_fiber& self) {
        try {
          throw std::runtime_error(mine);
        } catch (...) {
          self.leave();
          saw = handled();
        }
      };
    };
    test_fiber first(body("first", first_saw));
    test_fiber second(body("second", second_saw));
    thread_side thread;
    first.enter(thread);
    second.enter(thread);
    // In the order of entering: the stack of caught exceptions is not shared.
    first.enter(thread);
    second.enter(thread);
    CHECK(first_saw == "first");
    CHECK(second_saw == "second");
    CHECK(std::current_exception() == nullptr);
  }

  TEST_CASE("nested handlers unwind in order on another thread") {
    std::vector<std::string> seen;
    test_fiber fiber([&](test_fiber& self) {
      try {
        throw std::runtime_error("outer");
      } catch (...) {
        try {
          throw std::runtime_error("inner");
        } catch (...) {
          self.leave();
          seen.push_back(handled());
        }
        self.leave();
        seen.push_back(handled());
      }
      seen.push_back(std::current_exception() ? "left over" : "none");
    });
    thread_side thread;
    fiber.enter(thread);
    fiber.enter_on_another_thread();
    fiber.enter(thread);
    CHECK(seen == std::vector<std::string>{"inner", "outer", "none"});
  }

  TEST_CASE("a destructor may leave while its exception is on the way") {
    std::vector<int> inside;
    std::string caught;

    struct leaver {
      test_fiber& self;
      std::vector<int>& inside;

      ~leaver() {
        inside.push_back(std::uncaught_exceptions());
        self.leave();
        inside.push_back(std::uncaught_exceptions());
        self.leave();
        inside.push_back(std::uncaught_exceptions());
      }
    };

    test_fiber fiber([&](test_fiber& self) {
      try {
        const leaver local{self, inside};
        throw std::runtime_error("on the way");
      } catch (const std::exception& e) {
        caught = e.what();
      }
      inside.push_back(std::uncaught_exceptions());
    });
    thread_side thread;
    fiber.enter(thread);
    CHECK(std::uncaught_exceptions() == 0);
    int elsewhere = -1;
    std::thread([&] {
      thread_side other;
      fiber.enter(other);
      elsewhere = std::uncaught_exceptions();
    }).join();
    CHECK(elsewhere == 0);
    fiber.enter(thread);
    CHECK(std::uncaught_exceptions() == 0);
    CHECK(inside == std::vector{1, 1, 1, 0});
    CHECK(caught == "on the way");
  }

  TEST_CASE("a fiber entered during unwinding starts with no exception") {
    thread_side thread;
    int inside = -1;
    int outside = -1;
    bool sees_one = true;
    {
      test_fiber fiber([&](test_fiber&) {
        inside = std::uncaught_exceptions();
        sees_one = std::current_exception() != nullptr;
        try {
          throw 1;
        } catch (int) {
        }
      });

      struct enterer {
        test_fiber& fiber;
        thread_side& thread;
        int& outside;

        ~enterer() {
          fiber.enter(thread);
          outside = std::uncaught_exceptions();
        }
      };

      try {
        const enterer local{fiber, thread, outside};
        throw std::runtime_error("thread's");
      } catch (const std::exception&) {
      }
    }
    CHECK(inside == 0);
    CHECK_FALSE(sees_one);
    CHECK(outside == 1);
  }

  TEST_CASE("the value of errno travels with the fiber") {
    std::vector<int> seen;
    test_fiber fiber([&](test_fiber& self) {
      seen.push_back(read_errno());
      write_errno(ENOENT);
      self.leave();
      seen.push_back(read_errno());
      self.leave();
      seen.push_back(read_errno());
    });
    thread_side thread;
    write_errno(EBADF);
    fiber.enter(thread);
    CHECK(read_errno() == EBADF);
    int elsewhere = 0;
    std::thread([&] {
      thread_side other;
      write_errno(EPIPE);
      fiber.enter(other);
      elsewhere = read_errno();
    }).join();
    CHECK(elsewhere == EPIPE);
    write_errno(EBADF);
    fiber.enter(thread);
    CHECK(read_errno() == EBADF);
    CHECK(seen == std::vector{0, ENOENT, ENOENT});
  }

  TEST_CASE("the rounding mode stays with its stack") {
    int inside = -1;
    test_fiber fiber([&](test_fiber& self) {
      std::fesetround(FE_UPWARD);
      self.leave();
      inside = std::fegetround();
      std::fesetround(FE_TONEAREST);
    });
    thread_side thread;
    fiber.enter(thread);
    CHECK(std::fegetround() == FE_TONEAREST);
    fiber.enter_on_another_thread();
    CHECK(inside == FE_UPWARD);
  }

  TEST_CASE("a new stack begins with the rounding mode of its maker") {
    int inside = -1;
    std::fesetround(FE_UPWARD);
    test_fiber fiber([&](test_fiber&) {
      inside = std::fegetround();
      std::fesetround(FE_DOWNWARD);
    });
    std::fesetround(FE_TONEAREST);
    fiber.enter_on_another_thread();
    CHECK(inside == FE_UPWARD);
    CHECK(std::fegetround() == FE_TONEAREST);
  }

#if defined(__x86_64__)
  TEST_CASE("sticky floating-point flags are clear after a switch on both sides") {
    unsigned inside = 1;
    constexpr unsigned sticky = 0x3f;
    const auto raise_inexact = [] {
      volatile double third = 3;
      third = 1 / third;
    };
    test_fiber fiber([&](test_fiber& self) {
      raise_inexact();
      self.leave();
      inside = __builtin_ia32_stmxcsr() & sticky;
      raise_inexact();
    });
    thread_side thread;
    raise_inexact();
    fiber.enter(thread);
    CHECK((__builtin_ia32_stmxcsr() & sticky) == 0);
    raise_inexact();
    fiber.enter(thread);
    CHECK(inside == 0);
    CHECK((__builtin_ia32_stmxcsr() & sticky) == 0);
  }
#endif

  TEST_CASE("fibers that hand over to each other keep their exceptions and errno") {
    thread_side thread;
    std::vector<std::string> seen;
    test_fiber* a = nullptr;
    test_fiber* b = nullptr;
    test_fiber first([&](test_fiber& self) {
      try {
        throw std::runtime_error("first");
      } catch (...) {
        write_errno(11);
        self.hand_over(thread, *b);  // b is new: this starts it
        seen.push_back(handled() + " " + std::to_string(read_errno()));
        self.hand_over(thread, *b);
      }
      seen.push_back(std::to_string(std::uncaught_exceptions()));
      self.end_and_hand_over(thread, *b);
    });
    test_fiber second([&](test_fiber& self) {
      try {
        throw std::runtime_error("second");
      } catch (...) {
        write_errno(22);
        self.hand_over(thread, *a);
        seen.push_back(handled() + " " + std::to_string(read_errno()));
        self.leave();  // to the thread, which entered the other fiber
        self.hand_over(thread, *a);
        seen.push_back(handled());
      }
    });
    a = &first;
    b = &second;
    write_errno(33);
    first.enter(thread);
    CHECK(read_errno() == 33);
    CHECK(std::current_exception() == nullptr);
    CHECK(seen == std::vector<std::string>{"first 11", "second 22"});
    second.enter(thread);
    CHECK(read_errno() == 33);
    CHECK(seen == std::vector<std::string>{"first 11", "second 22", "0", "second"});
    CHECK(first.is_done());
    CHECK(second.is_done());
  }

  TEST_CASE("a backtrace ends at the lowest frame of the fiber") {
    thread_side thread;
    int frames = 0;
    test_fiber fiber([&](test_fiber&) {
      void* addresses[64];
      frames = ::backtrace(addresses, 64);
    });
    fiber.enter(thread);
    CHECK(frames > 0);
    CHECK(frames < 20);
  }
}
