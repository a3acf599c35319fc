// Sends no more than a given number of bytes each second.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string_view>

using namespace std::chrono_literals;

void send(std::string_view) {}  // to the network

void send_all(std::string_view bytes, vigil::rate_limiter& pace, const vigil::context& ctx) {
  while (!bytes.empty()) {
    // A wait for more than the burst is refused.
    const auto n = std::min<std::size_t>(bytes.size(), 16'384);
    pace.wait(std::int64_t(n), ctx);
    send(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    static char file[1'000'000];
    vigil::rate_limiter pace(vigil::rate::per(100'000, 1s), 16'384);  // may be shared by many
    const auto start = vigil::clock::now();
    send_all({file, sizeof file}, pace, vigil::background());
    std::printf("sent after %d ms\n", int((vigil::clock::now() - start) / 1ms));
  });
}

//! [recipe]
