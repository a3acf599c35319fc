// Collects values into batches: of three, or of what has come within 50 ms.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <vector>

using namespace std::chrono_literals;
using rows = std::vector<int>;

void batch(vigil::receiver<int> in, vigil::sender<rows> out) {
  const vigil::scoped_close closes(out);
  for (const int first : in) {
    rows together = {first};
    const auto until = vigil::deadline_in(50ms);  // no row waits longer than that
    while (together.size() < 3) {
      const auto next = in.recv_until(until);
      if (!next) break;  // the time is over, or there are no more
      together.push_back(*next);
    }
    out.send(std::move(together));
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto in = vigil::make_channel<int>();
    const auto out = vigil::make_channel<rows>();
    vigil::go(batch, in, out);
    vigil::go([in] {
      for (int n = 1; n <= 8; ++n) {
        in.send(n);
        vigil::sleep_for(n < 5 ? 10ms : 35ms);
      }
      in.close();
    });
    for (const rows& together : out) {
      std::printf("a batch:");
      for (const int row : together)
        std::printf(" %d", row);
      std::puts("");
    }
  });
}

//! [recipe]
