// Goes on when two of three copies are written, or when that has become impossible.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <vector>

using namespace std::chrono_literals;

struct disk {
  vigil::clock::duration takes;
  bool works;
};

bool is_stored(const std::vector<disk>& disks, std::size_t needed) {
  vigil::group_of<bool> writes;
  for (const disk& d : disks) {
    writes.go([&d](const vigil::context& ctx) {
      vigil::sleep_for(d.takes, ctx);
      return d.works;
    });
  }
  std::size_t written = 0;
  std::size_t failed = 0;
  while (written < needed && failed + needed <= disks.size())
    ++(*writes.next() ? written : failed);
  return written == needed;
}  // the group stops the writes that are not needed any more

int main() {
  return vigil::testing::run_virtual([] {
    const disk fast{5ms, true}, slow{80ms, true}, broken{1ms, false};
    for (const auto& disks : {std::vector{fast, slow, fast},
                              std::vector{fast, broken, slow},
                              std::vector{broken, slow, broken}}) {
      const auto start = vigil::clock::now();
      const bool stored = is_stored(disks, 2);
      const auto took = vigil::clock::now() - start;
      std::printf("%s after %d ms\n", stored ? "stored" : "not stored", int(took / 1ms));
    }
  });
}

//! [recipe]
