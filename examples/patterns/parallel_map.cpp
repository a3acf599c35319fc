// parallel_map: applies a function to a list, at most so many at a time. It returns the
// results in the order of the list, or throws the first error, which stops the rest.
//
// Run it:     build/release/examples/patterns/parallel_map
// It prints:  the sizes of some pages and how long that took, then the error of a list
//             with a missing page. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

namespace {

template <class R, class T, class F>
std::vector<R> parallel_map(const std::vector<T>& list,
                            std::size_t at_once,
                            const vigil::context& ctx,
                            F f) {
  vigil::group_of<R> all(ctx, {.limit = at_once});
  for (const T& each : list)
    all.go([&](const vigil::context& inner) -> R { return f(each, inner); });
  return all.wait();
}

// A page of n kilobytes takes n milliseconds.
int size_of(const std::string& page, const vigil::context& ctx) {
  const int size = static_cast<int>(page.size());
  vigil::sleep_for(size * 1ms, ctx);
  if (page == "missing") throw std::runtime_error("no such page: " + page);
  return size;
}

void fetch(const std::vector<std::string>& pages) {
  const auto start = vigil::clock::now();
  try {
    const auto limited = vigil::with_timeout(vigil::background(), 1s);
    for (const int size : parallel_map<int>(pages, 2, limited.ctx, size_of))
      std::printf("%d kB\n", size);
  } catch (const std::runtime_error& e) {
    std::puts(e.what());
  }
  std::printf("after %d ms\n", int((vigil::clock::now() - start) / 1ms));
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    fetch({"introduction", "contents", "index", "end"});
    fetch({"introduction", "missing", "index", "a page that nobody waits for"});
  });
}
