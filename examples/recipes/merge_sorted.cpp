// Merges two sorted streams into one that is sorted.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <vector>

void merge(vigil::receiver<int> left, vigil::receiver<int> right, vigil::sender<int> out) {
  const vigil::scoped_close closes(out);
  auto l = left.recv();
  auto r = right.recv();
  while (l || r) {
    const bool takes_left = l && (!r || *l <= *r);
    out.send(takes_left ? *l : *r);
    if (takes_left) {
      l = left.recv();
    } else {
      r = right.recv();
    }
  }
}

vigil::receiver<int> stream(std::vector<int> values) {
  const auto out = vigil::make_channel<int>();
  vigil::go([out, values = std::move(values)] {
    for (const int v : values)
      out.send(v);
    out.close();
  });
  return out;
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto merged = vigil::make_channel<int>();
    vigil::go(merge, stream({1, 4, 9, 16}), stream({2, 4, 8}), merged);
    for (const int n : merged)
      std::printf("%d\n", n);
  });
}

//! [recipe]
