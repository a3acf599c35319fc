// Helpers that the tests of sync share.
#pragma once

#include "support/in_runtime.hpp"
#include "support/text_of.hpp"

#include <vigil/sync.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace vigil::testing_support {

// Fibers that are joined at the end of a scope.
class crowd {
 public:
  template <class F>
  void add(F f) {
    fibers_.push_back(vigil::spawn(std::move(f)));
  }

  void join() {
    for (auto& f : fibers_)
      f.join();
    fibers_.clear();
  }

 private:
  std::vector<vigil::fiber<>> fibers_;
};

}  // namespace vigil::testing_support
