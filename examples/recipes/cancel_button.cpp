// Lets a button end a download, and tells that from a download that takes too long.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

void download(vigil::clock::duration takes, const vigil::context& button) {
  const auto [ctx, cancel] = vigil::with_timeout(button, 1min);
  try {
    vigil::sleep_for(takes, ctx);
    std::puts("downloaded");
  } catch (const vigil::cancelled& e) {
    std::puts(e.code() == std::errc::timed_out ? "too slow" : "cancelled");
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto [button, press] = vigil::with_cancel(vigil::background());
    download(30s, button);
    download(90s, button);
    const auto user = vigil::after_func(20s, [press = press] { press(); });
    download(90s, button);
  });
}

//! [recipe]
