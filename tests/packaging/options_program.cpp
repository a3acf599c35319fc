// A user's program for a library that has neither libdw nor the recorder.
#include <vigil/inspect.hpp>
#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

[[gnu::noinline]] void waits(const vigil::channel<int>& end, int depth) {
  const vigil::trace::region region("waits");
  if (depth == 1) {
    static_cast<void>(end.recv());
  } else {
    waits(end, depth - 1);
  }
  asm volatile("" ::: "memory");  // no tail call
}

int main() {
  vigil::inspect::install();
  vigil::options one;
  one.workers = 1;
  return vigil::run(one, [] {
    const auto end = vigil::make_channel<int>();
    auto waiter = vigil::spawn({.name = "waiter"}, [&end] { waits(end, 3); });
    vigil::this_fiber::yield();  // it runs until it waits
    vigil::inspect::dump(stderr);
    end.close();
    waiter.join();
    std::puts("vigil-inspect says hello");
  });
}
