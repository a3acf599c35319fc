// Puts a queue without limit between a sender that must not wait and a slow receiver.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <deque>
#include <optional>

using namespace std::chrono_literals;

void queue(vigil::receiver<int> in, const vigil::sender<int>& out) {
  const vigil::scoped_close closes(out);
  std::deque<int> waiting;
  while (in || !waiting.empty()) {
    const auto to = waiting.empty() ? vigil::sender<int>() : out;  // empty: never ready
    vigil::select(
        vigil::on_recv(in,
                       [&](std::optional<int> n) {
                         if (n)
                           waiting.push_back(*n);
                         else
                           in = {};  // closed: only what waits is left
                       }),
        vigil::on_send(to, waiting.empty() ? 0 : waiting.front(), [&] { waiting.pop_front(); }));
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto in = vigil::make_channel<int>();
    const auto out = vigil::make_channel<int>();
    vigil::go(queue, in, out);
    const auto start = vigil::clock::now();
    for (int n = 1; n <= 1000; ++n)
      in.send(n);
    in.close();
    std::printf("all are sent after %d ms\n", int((vigil::clock::now() - start) / 1ms));
    int sum = 0;
    for (const int n : out) {
      vigil::sleep_for(1ms);
      sum += n;
    }
    std::printf("the sum is %d after %d ms\n", sum, int((vigil::clock::now() - start) / 1ms));
  });
}

//! [recipe]
