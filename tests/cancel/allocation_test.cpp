// What contexts allocate. Counts every operator new of the program; not under a
// sanitizer, which has its own.
#include "support/in_runtime.hpp"

#include <atomic>
#include <cstdlib>
#include <new>

#ifndef VIGIL_TEST_UNDER_SANITIZER

namespace {

std::atomic<std::size_t> allocated{0};

}  // namespace

void* operator new(std::size_t size) {
  ++allocated;
  if (void* const p = std::malloc(size != 0 ? size : 1)) return p;
  throw std::bad_alloc();
}

void operator delete(void* p) noexcept {
  std::free(p);
}

void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}

namespace {

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::background;
using vigil::with_cancel;
using vigil::with_timeout;

// After one that warms up.
template <class F>
std::size_t allocations_of(F f) {
  f();
  const std::size_t before = allocated.load();
  f();
  return allocated.load() - before;
}

}  // namespace

TEST_SUITE("context") {
  TEST_CASE("contexts allocate as little as they can") {
    in_virtual([] {
      const auto root = background();
      CHECK(allocations_of([&] { with_cancel(root).cancel(); }) <= 1);
      CHECK(allocations_of([&] { with_timeout(root, 1h).cancel(); }) <= 2);
      CHECK(allocations_of([&] {
              auto it = with_timeout(root, 1ms);
              vigil::sleep_for(2ms);
              CHECK(it.ctx.is_done());
            }) <= 2);
      CHECK(allocations_of([&] { with_timeout(with_timeout(root, 1s).ctx, 1h).cancel(); }) <= 3);
      CHECK(allocations_of([&] {
              const auto it = with_cancel(root);
              static_cast<void>(it.ctx.done());
            }) <= 1);
      CHECK(allocations_of([&] { CHECK(vigil::after_func(root, [] {}).stop()); }) <= 1);
    });
  }

  TEST_CASE("a wait under a context allocates nothing") {
    in_virtual([] {
      const auto it = with_cancel(background());
      const auto c = vigil::make_channel<int>();
      auto giver = vigil::spawn([&] {
        for (int i = 0; i < 4; ++i) {
          vigil::sleep_for(1ms);
          c.send(i);
        }
      });
      CHECK(allocations_of([&] {
              static_cast<void>(c.recv(it.ctx));
              vigil::sleep_for(1us, it.ctx);
              static_cast<void>(c.recv(it.ctx));
            }) == 0);
      giver.join();
    });
  }
}

#endif
