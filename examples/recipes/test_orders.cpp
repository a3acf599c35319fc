// Tests what happens when an answer and a cancel come at the same moment.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdint>
#include <cstdio>

using namespace std::chrono_literals;

enum class outcome { received, cancelled, lost };

outcome both_at_once() {
  const auto answers = vigil::make_channel<int>();
  const auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  auto server = vigil::spawn([answers] {
    vigil::sleep_for(10ms);
    return bool(answers.try_send(42));
  });
  auto user = vigil::spawn([cancel = cancel] {
    vigil::sleep_for(10ms);
    cancel();
  });
  bool is_received = true;
  try {
    answers.recv(ctx);
  } catch (const vigil::cancelled&) {
    is_received = false;
  }
  if (server.join() != is_received) return outcome::lost;
  return is_received ? outcome::received : outcome::cancelled;
}

int main() {
  int received = 0;
  int cancelled = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {  // each is an order of what comes at once
    switch (vigil::testing::run_virtual({.seed = seed}, both_at_once)) {
      case outcome::received:
        ++received;
        break;
      case outcome::cancelled:
        ++cancelled;
        break;
      case outcome::lost:
        std::printf("lost: VIGIL_SEED=%d\n", int(seed));
        return 1;
    }
  }
  std::puts(received > 0 && cancelled > 0 ? "both have happened" : "only one has happened");
}

//! [recipe]
