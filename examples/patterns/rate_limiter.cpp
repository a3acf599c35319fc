// rate_limiter: a token bucket: bursts of three, and one every 100 ms in the long run.
//
// Run it:     build/release/examples/patterns/rate_limiter
// It prints:  when each request may go: three at once, the others one by one,
//             and after a pause three at once again. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <cstdio>

using namespace std::chrono_literals;

namespace {

//! [token_bucket]
// A token is a value in a buffered channel, so taking one can also be a case of a select.
// A drip that finds the bucket full is lost; that is the limit.
class token_bucket {
 public:
  token_bucket(std::size_t burst, std::chrono::nanoseconds interval)
      : tokens_(vigil::make_channel<void>(burst)),
        drip_(vigil::every(interval, [t = tokens_] { static_cast<void>(t.try_send()); })) {
    while (tokens_.try_send()) {
    }
  }

  void take() const { tokens_.recv(); }

  bool try_take() const { return static_cast<bool>(tokens_.try_recv()); }

 private:
  vigil::channel<void> tokens_;
  vigil::scoped_timer drip_;  // stops with the bucket
};

//! [token_bucket]

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    const token_bucket bucket(3, 100ms);
    const auto start = vigil::clock::now();
    for (int request = 1; request <= 9; ++request) {
      if (request == 6) vigil::sleep_for(450ms);
      bucket.take();
      const auto waited = (vigil::clock::now() - start) / 1ms;
      std::printf("%3d ms: request %d\n", static_cast<int>(waited), request);
    }
    if (!bucket.try_take()) std::puts("no token is left");
  });
}
