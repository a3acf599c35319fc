// prime_sieve: a chain of fibers, one for each prime found. Each lets through the numbers
// that its prime does not divide.
//
// Run it:     build/release/examples/patterns/prime_sieve
// It prints:  the primes below 100. The fibers that still count and sieve then are
//             unwound when run() ends.
#include <vigil/vigil.hpp>

#include <cstdio>

namespace {

//! [sieve]
void count(const vigil::sender<int>& out) {
  for (int n = 2;; ++n)
    out.send(n);
}

void sieve(int prime, const vigil::receiver<int>& in, const vigil::sender<int>& out) {
  for (const int n : in) {
    if (n % prime != 0) out.send(n);
  }
}

//! [sieve]

}  // namespace

int main() {
  return vigil::run([] {
    //! [chain]
    auto last = vigil::make_channel<int>();
    vigil::go(count, last);
    for (;;) {
      const int prime = *last.recv();
      if (prime > 100) break;
      std::printf("%d\n", prime);
      auto next = vigil::make_channel<int>();
      vigil::go(sieve, prime, last, next);
      last = next;
    }
    //! [chain]
  });
}
