// The work that shows what the flight recorder costs: n rounds of each, in a run.
#pragma once

#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <chrono>

namespace bench {

// By each of two fibers.
inline void yields(int n) {
  auto other = vigil::spawn([n] {
    for (int i = 0; i < n; ++i)
      vigil::this_fiber::yield();
  });
  for (int i = 0; i < n; ++i)
    vigil::this_fiber::yield();
  other.join();
}

inline void questions(int n) {
  auto ask = vigil::make_channel<int>();
  auto answer = vigil::make_channel<int>();
  auto other = vigil::spawn([&] {
    while (auto v = ask.recv())
      answer.send(*v);
  });
  for (int i = 0; i < n; ++i) {
    ask.send(i);
    static_cast<void>(answer.recv());
  }
  ask.close();
  other.join();
}

inline void starts(int n) {
  for (int i = 0; i < n; ++i)
    vigil::spawn([] {}).join();
}

inline void timers(int n) {
  for (int i = 0; i < n; ++i)
    vigil::after_func(std::chrono::hours(1), [] {}).stop();
}

inline void regions(int n) {
  for (int i = 0; i < n; ++i)
    const vigil::trace::region region("round");
}

}  // namespace bench
