// The library built with ThreadSanitizer calls its check for held locks, where there is
// one, each time a fiber gives up its worker. Here the run-time has none, and the
// function below stands in.
#include "support/in_runtime.hpp"

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

int calls = 0;

}  // namespace

extern "C" void __tsan_check_no_mutexes_held() {  // NOLINT(bugprone-reserved-identifier)
  ++calls;
}

TEST_SUITE("TSan's check of locks") {
  TEST_CASE("each wait and each yield calls it once, a call that need not wait does not") {
    in_virtual([] {
      const int before = calls;
      vigil::sleep_for(1ms);
      CHECK(calls == before + 1);
      vigil::this_fiber::yield();
      CHECK(calls == before + 2);
      auto c = vigil::make_channel<int>(1);
      c.send(1);
      CHECK(calls == before + 2);
    });
  }
}
