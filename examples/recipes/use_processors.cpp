// Spreads a computation over all processors.
//! [recipe]
#include <vigil/vigil.hpp>

#include <cstdio>

bool is_prime(int n) {
  for (int d = 2; d * d <= n; ++d)
    if (n % d == 0) return false;
  return n > 1;
}

int main() {
  return vigil::run([] {  // as many workers as processors
    const int part = 2000;
    vigil::group_of<int> counts;
    for (int from = 0; from < 50'000; from += part) {  // more parts than processors: they differ
      counts.go([from] {
        int primes = 0;
        for (int n = from; n < from + part; ++n)
          primes += is_prime(n) ? 1 : 0;
        return primes;
      });
    }
    int sum = 0;
    while (const auto primes = counts.next())
      sum += *primes;
    std::printf("%d primes\n", sum);
  });
}

//! [recipe]
