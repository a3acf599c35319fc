// pipeline: stages joined by channels. Each stage ends when the one before has closed its
// channel, and closes its own.
//
// Run it:     build/release/examples/patterns/pipeline
// It prints:  the sum of the squares from 1 to 1000, made by three workers.
#include <vigil/vigil.hpp>

#include <array>
#include <cstdint>
#include <cstdio>

namespace {

//! [pipeline]
vigil::receiver<std::uint64_t> count_to(std::uint64_t last) {
  auto out = vigil::make_channel<std::uint64_t>();
  vigil::go([out, last] {
    for (std::uint64_t n = 1; n <= last; ++n)
      out.send(n);
    out.close();
  });
  return out;
}

vigil::receiver<std::uint64_t> squares(const vigil::receiver<std::uint64_t>& in) {
  auto out = vigil::make_channel<std::uint64_t>(16);
  vigil::go([in, out] {
    std::array<vigil::fiber<>, 3> workers;
    for (auto& worker : workers) {
      worker = vigil::spawn([in, out] {
        for (const std::uint64_t n : in)
          out.send(n * n);
      });
    }
    for (auto& worker : workers)
      worker.join();
    out.close();  // once all senders are done
  });
  return out;
}

//! [pipeline]

}  // namespace

int main() {
  return vigil::run([] {
    std::uint64_t sum = 0;
    for (const std::uint64_t square : squares(count_to(1000)))
      sum += square;
    std::printf("the sum is %llu\n", static_cast<unsigned long long>(sum));
  });
}
