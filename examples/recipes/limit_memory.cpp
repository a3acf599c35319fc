// Limits the memory that all requests use together, whatever one of them needs.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdint>
#include <cstdio>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    constexpr std::int64_t megabytes = 100;
    vigil::semaphore memory(megabytes);
    const auto start = vigil::clock::now();
    vigil::group requests;
    for (const std::int64_t needs : {60, 30, 50, 200}) {
      requests.go([&, needs](const vigil::context& ctx) {
        if (needs > megabytes) {  // it would wait for ever, and all behind it
          std::printf("%d MB: too large\n", int(needs));
          return;
        }
        const vigil::scoped_permit own(memory, needs, ctx);
        vigil::sleep_for(needs * 1ms, ctx);
        const auto passed = vigil::clock::now() - start;
        std::printf("%d MB: done after %d ms\n", int(needs), int(passed / 1ms));
      });
      vigil::sleep_for(1ms);
    }
    requests.wait();
  });
}

//! [recipe]
