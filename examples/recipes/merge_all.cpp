// Merges any number of channels into one, which ends when all of them have ended.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <vector>

using namespace std::chrono_literals;

void merge(const std::vector<vigil::channel<int>>& inputs, const vigil::sender<int>& out) {
  const vigil::scoped_close closes(out);
  std::optional<int> got;
  vigil::case_list cases;
  for (const auto& input : inputs)
    cases.add(vigil::on_recv(input, [&got](std::optional<int> n) { got = n; }));
  for (std::size_t open = inputs.size(); open > 0;) {
    const std::size_t from = vigil::select(cases);
    if (got) {
      out.send(*got);
    } else {  // closed; otherwise it would be ready each time
      cases.switch_off(from);
      --open;
    }
  }
}

int main() {
  return vigil::testing::run_virtual([] {
    std::vector<vigil::channel<int>> inputs(3);
    for (int i = 0; i < 3; ++i) {
      inputs[std::size_t(i)] = vigil::make_channel<int>();
      vigil::go([i, to = inputs[std::size_t(i)]] {
        vigil::sleep_for((3 - i) * 10ms);
        for (int n = 0; n < 2; ++n, vigil::sleep_for(100ms))
          to.send(10 * i + n);
        to.close();
      });
    }
    const auto merged = vigil::make_channel<int>();
    vigil::go(merge, inputs, merged);
    for (const int n : merged)
      std::printf("%d\n", n);
  });
}

//! [recipe]
