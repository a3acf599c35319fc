// Virtual time when memory runs out.
#include "support/in_runtime.hpp"

#ifndef VIGIL_TEST_UNDER_SANITIZER

#include "support/counted_new.hpp"

#include <vigil/post.hpp>

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;

}  // namespace

TEST_SUITE("virtual time") {
  TEST_CASE("whichever allocation fails, only the call that needed it fails, and the rest runs") {
    std::size_t before = 0;
    for (std::size_t n = 1; before == 0; ++n) {
      in_virtual([&] {
        int started = 0;
        int ran = 0;
        const auto goes_on = [&ran] {
          try {
            vigil::sleep_for(1ms);
          } catch (const std::bad_alloc&) {
          }
          vigil::this_fiber::yield();
          ++ran;
        };
        at_allocation(n, [] { throw std::bad_alloc(); });
        try {
          for (int i = 0; i < 100; ++i) {
            vigil::after_func(1ms, goes_on);
            ++started;
            vigil::go(goes_on);
            ++started;
          }
          vigil::sleep_for(1s);
        } catch (const std::bad_alloc&) {
        }
        vigil::testing::settle();
        before = before_call;  // zero if that allocation has failed
        before_call = 0;
        vigil::sleep_for(1s);
        CHECK(ran == started);
        called = nullptr;
      });
    }
  }
}

#endif
