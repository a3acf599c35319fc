// loop_deadline: one deadline for a whole loop, however many values come.
//
// Run it:     build/release/examples/patterns/loop_deadline
// It prints:  the values of two loops of a second each. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <string>

using namespace std::chrono_literals;

namespace {

// One channel: all waits have the same deadline. A waiting value is received even late:
// beside a sender that never pauses, look at the clock as well.
int sum_until(const vigil::receiver<int>& numbers, vigil::clock::time_point deadline) {
  //! [recv_until]
  int sum = 0;
  while (auto number = numbers.recv_until(deadline))
    sum += *number;
  //! [recv_until]
  return sum;
}

// Several channels: `after` is made once, before the loop, and is ready once, like any
// other channel. select_ordered looks at it first.
void read_for(vigil::clock::duration time,
              const vigil::receiver<std::string>& lines,
              const vigil::receiver<int>& numbers) {
  //! [after]
  auto too_late = vigil::after(time);
  for (bool over = false; !over;) {
    vigil::select_ordered(
        vigil::on_recv(too_late, [&over] { over = true; }),
        vigil::on_recv(lines, [](std::optional<std::string> s) { std::puts(s->c_str()); }),
        vigil::on_recv(numbers, [](std::optional<int> n) { std::printf("%d\n", *n); }));
  }
  //! [after]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    auto numbers = vigil::make_channel<int>();
    auto lines = vigil::make_channel<std::string>();
    vigil::go([numbers] {
      for (int n = 1;; ++n, vigil::sleep_for(300ms))
        numbers.send(n);
    });
    vigil::go([lines] {
      for (;; vigil::sleep_for(350ms))
        lines.send("a line");
    });
    std::printf("the sum is %d\n", sum_until(numbers, vigil::clock::now() + 1s));
    read_for(1s, lines, numbers);
  });
}
