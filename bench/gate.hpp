// Fibers that are alive together, for `together` and the bursts.
#pragma once

#include <vigil/vigil.hpp>

#include <cstddef>

namespace bench {

// Starts n fibers, which all wait until the last one was started. Called on a fiber.
inline void wait_at_gate(std::size_t n) {
  vigil::group all;
  vigil::channel<void> open = vigil::make_channel<void>();
  for (std::size_t i = 0; i < n; ++i)
    all.go([&] { open.recv(); });
  open.close();
  all.wait();
}

}  // namespace bench
