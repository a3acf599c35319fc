// three_levels: a server, its connections, their requests. Each level has a context made
// from the one above. The end of one ends all below it, and nothing else.
//
// Run it:     build/release/examples/patterns/three_levels
// It prints:  how and when each request ends. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>

using namespace std::chrono_literals;

namespace {

vigil::clock::time_point start;

// Takes ten seconds, if nothing ends it.
void request(const std::string& name, const vigil::context& ctx) {
  try {
    vigil::sleep_for(10s, ctx);
    std::printf("%s: done\n", name.c_str());
  } catch (const vigil::cancelled& why) {
    const auto after = std::chrono::round<std::chrono::seconds>(vigil::clock::now() - start);
    std::string cause = why.code() == std::errc::timed_out ? "too slow" : "cancelled";
    try {
      if (why.cause() != nullptr) std::rethrow_exception(why.cause());
    } catch (const std::exception& e) {
      cause = e.what();
    }
    std::printf("%s: %s after %d s\n", name.c_str(), cause.c_str(), int(after.count()));
  }
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    start = vigil::clock::now();
    const auto server = vigil::with_cancel(vigil::background());
    const auto alice = vigil::with_cancel(server.ctx);
    const auto bob = vigil::with_cancel(server.ctx);
    const auto hasty = vigil::with_timeout(alice.ctx, 1s);

    vigil::group all;
    all.go([&] { request("alice's first request", hasty.ctx); });
    all.go([&] { request("alice's second request", alice.ctx); });
    all.go([&] { request("bob's request", bob.ctx); });

    vigil::sleep_for(2s);
    alice.cancel(std::runtime_error("alice has hung up"));
    vigil::sleep_for(1s);
    server.cancel(std::runtime_error("the server stops"));
    all.wait();
  });
}
