#include "core/machine/overflow.hpp"

#include "support/child.hpp"
#include "test_fiber.hpp"

#include <csignal>
#include <cstdio>
#include <thread>

#include <doctest/doctest.h>

#include <sys/mman.h>

using namespace vigil::detail;
using vigil::testing_support::run_child;
using vigil::testing_support::test_fiber;

namespace {

const char* describe(const stack&, char* text, std::size_t size) noexcept {
  std::snprintf(text, size, "fiber 12 (deep)");
  return "the setting";
}

[[gnu::noinline]] int recurse(int depth) {
  volatile char room[512];
  room[0] = static_cast<char>(depth);
  if (depth == 1 << 30) return 0;
  return recurse(depth + 1) + room[0];
}

[[gnu::noinline]] void write_to(void* address) {
  *static_cast<volatile char*>(address) = 1;
}

void say_and_exit(int) {
  static_cast<void>(!::write(2, "earlier handler\n", 16));
  ::_exit(0);
}

void use_default(int signal) {
  std::signal(signal, SIG_DFL);
}

}  // namespace

TEST_SUITE("overflow") {
  TEST_CASE("child: a fiber recurses without end" * doctest::skip()) {
    use_default(SIGSEGV);
    install_overflow_report(&describe);
    std::thread([] {
      const alternate_signal_stack signals;
      thread_side thread;
      test_fiber fiber([](test_fiber&) { static_cast<void>(recurse(0)); });
      fiber.enter(thread);
    }).join();
  }

  TEST_CASE("a stack overflow is reported by name and the process dies by SIGSEGV") {
    for (const char* guard : {"", "mprotect"}) {
      const auto child =
          run_child("child: a fiber recurses without end", {{"VIGIL_STACK_GUARD", guard}});
      CAPTURE(child.output);
      CHECK(child.died_by(SIGSEGV));
      CHECK(
          child.says("vigil: stack overflow in fiber 12 (deep): its stack of 128 KiB is used up; "
                     "give it more with the setting"));
    }
  }

  TEST_CASE("child: a null pointer is written through" * doctest::skip()) {
    std::signal(SIGSEGV, &say_and_exit);
    install_overflow_report(&describe);
    write_to(nullptr);
  }

  TEST_CASE("other faults go to the handler that was there before") {
    const auto child = run_child("child: a null pointer is written through");
    CAPTURE(child.output);
    CHECK(child.succeeded());
    CHECK(child.says("earlier handler"));
    CHECK_FALSE(child.says("stack overflow"));
  }

  TEST_CASE("child: a stray pointer hits a guard" * doctest::skip()) {
    use_default(SIGSEGV);
    install_overflow_report(&describe);
    const stack s = allocate_stack(default_stack_size);
    write_to(s.bottom - 100);
  }

  TEST_CASE("a stray pointer into a guard is not an overflow") {
    const auto child = run_child("child: a stray pointer hits a guard");
    CAPTURE(child.output);
    CHECK(child.died_by(SIGSEGV));
    CHECK_FALSE(child.says("stack overflow"));
  }

  TEST_CASE("child: SIGSEGV is sent by raise" * doctest::skip()) {
    use_default(SIGSEGV);
    install_overflow_report(&describe);
    std::raise(SIGSEGV);
  }

  TEST_CASE("a signal that was sent kills as it would without vigil") {
    CHECK(run_child("child: SIGSEGV is sent by raise").died_by(SIGSEGV));
  }

  TEST_CASE("the last remove restores the earlier handlers") {
    struct sigaction before = {};
    struct sigaction during = {};
    struct sigaction after = {};
    ::sigaction(SIGBUS, nullptr, &before);
    install_overflow_report(&describe);
    install_overflow_report(&describe);
    remove_overflow_report();
    ::sigaction(SIGBUS, nullptr, &during);
    CHECK(bool{during.sa_sigaction != before.sa_sigaction});
    remove_overflow_report();
    ::sigaction(SIGBUS, nullptr, &after);
    CHECK(bool{after.sa_sigaction == before.sa_sigaction});
  }

  TEST_CASE("a thread's own signal stack is kept") {
    std::thread([] {
      static char room[1 << 17];
      stack_t before = {};
      ::sigaltstack(nullptr, &before);
      stack_t mine = {};
      mine.ss_sp = room;
      mine.ss_size = sizeof room;
      REQUIRE(::sigaltstack(&mine, nullptr) == 0);
      stack_t present = {};
      {
        const alternate_signal_stack signals;
        ::sigaltstack(nullptr, &present);
        CHECK(present.ss_sp == room);
      }
      ::sigaltstack(nullptr, &present);
      CHECK(present.ss_sp == room);
      ::sigaltstack(&before, nullptr);
    }).join();
  }

  TEST_CASE("a thread without a signal stack has one of 64 KiB for the while") {
    std::thread([] {
      stack_t before = {};
      ::sigaltstack(nullptr, &before);
      stack_t none = {};
      none.ss_flags = SS_DISABLE;
      ::sigaltstack(&none, nullptr);
      stack_t present = {};
      {
        const alternate_signal_stack signals;
        ::sigaltstack(nullptr, &present);
        CHECK((present.ss_flags & SS_DISABLE) == 0);
        CHECK(present.ss_size >= 64 * 1024);
      }
      ::sigaltstack(nullptr, &present);
      CHECK((present.ss_flags & SS_DISABLE) != 0);
      if ((before.ss_flags & SS_DISABLE) == 0) ::sigaltstack(&before, nullptr);
    }).join();
  }
}
