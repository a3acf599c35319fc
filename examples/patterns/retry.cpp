// retry: tries again after a failure, with pauses that double, and jitter.
//
// Run it:     build/release/examples/patterns/retry
// It prints:  the pauses of a call that succeeds in the end, and of one that is given up.
//             It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <random>
#include <stdexcept>

using namespace std::chrono_literals;

namespace {

struct backoff {
  std::chrono::milliseconds first = 100ms;
  std::chrono::milliseconds most = 400ms;
  int tries = 5;
};

// Returns the result of f, or throws the exception of its last try. A fiber that is asked
// to stop does not try again: vigil::stopped is not a std::exception.
template <class F>
auto retry(const backoff& how, F f) {
  std::mt19937 dice(std::random_device{}());
  auto pause = how.first;
  for (int left = how.tries;; pause = std::min(2 * pause, how.most)) {
    try {
      return f();
    } catch (const std::exception&) {
      if (--left == 0) throw;
    }
    // Half to all of the pause: calls that failed together do not come back together.
    std::uniform_int_distribution<int> half_to_all(int(pause / 2ms), int(pause / 1ms));
    const int jittered = half_to_all(dice);
    std::printf("again in %d of at most %d ms\n", jittered, half_to_all.max());
    vigil::sleep_for(jittered * 1ms);
  }
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    int calls = 0;
    const auto answer = [&calls] { return ++calls < 4 ? throw std::runtime_error("busy") : 42; };
    std::printf("the answer is %d\n", retry({}, answer));
    try {
      retry({.tries = 3}, [] { throw std::runtime_error("no such host"); });
    } catch (const std::runtime_error& e) {
      std::printf("given up: %s\n", e.what());
    }
  });
}
