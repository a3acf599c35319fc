// Takes values until there are enough, and ends the fiber that makes more of them.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

int sum_of_squares_below(int limit) {
  const auto squares = vigil::make_channel<int>();
  const auto maker = vigil::spawn([squares] {
    for (int n = 1;; ++n)
      squares.send(n * n);
  });
  int sum = 0;
  for (const int square : squares) {
    if (square >= limit) break;
    sum += square;
  }
  return sum;
}  // the handle stops the maker, which waits for somebody to take the next square

int main() {
  return vigil::testing::run_virtual([] {
    std::printf("the sum is %d\n", sum_of_squares_below(100));
    std::printf("%d fiber is left\n", int(vigil::stats().fibers_alive));
  });
}

//! [recipe]
