// A signal that arrives between the system call that installs its handler and the next
// step of the library: this program's own sigaction, which the library calls instead of
// the C library's, raises it there.
#include "support/in_runtime.hpp"

#ifndef VIGIL_TEST_UNDER_SANITIZER  // sanitizers have a sigaction of their own

#include <atomic>
#include <chrono>
#include <csignal>

#include <dlfcn.h>

using namespace std::chrono_literals;

namespace {

std::atomic<int> raised_at_once{0};

}  // namespace

extern "C" int sigaction(int signal,
                         const struct sigaction* action,
                         struct sigaction* earlier) noexcept {
  using function = int (*)(int, const struct sigaction*, struct sigaction*);
  static const auto original = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "sigaction"));
  const int result = original(signal, action, earlier);
  int expected = signal;
  if (action != nullptr && raised_at_once.compare_exchange_strong(expected, 0)) ::raise(signal);
  return result;
}

TEST_CASE("a signal of stop_on that comes as soon as it is caught stops the run") {
  vigil::options o;
  o.workers = 2;
  o.stop_on = {SIGUSR1};
  o.grace = 0s;
  raised_at_once.store(SIGUSR1);
  bool was_stopped = false;
  vigil::run(o, [&] {
    try {
      vigil::sleep_for(1h);
    } catch (const vigil::stopped&) {
      was_stopped = true;
      throw;
    }
  });
  CHECK(was_stopped);
  CHECK(raised_at_once.load() == 0);
}

#endif
