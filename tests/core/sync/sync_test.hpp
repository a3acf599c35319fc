// Includes, names and helpers that the tests of sync share.
#pragma once

#include "support/in_runtime.hpp"
#include "support/text_of.hpp"

#include <vigil/sync.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <doctest/doctest.h>

namespace vigil::testing_support {

using namespace std::chrono_literals;
using vigil::clock;
using vigil::sleep_for;
using vigil::spawn;
using vigil::testing::settle;

// Fibers that are joined at the end of a scope.
class crowd {
 public:
  template <class F>
  void add(F f) {
    fibers_.push_back(spawn(std::move(f)));
  }

  void join() {
    for (auto& f : fibers_)
      f.join();
    fibers_.clear();
  }

 private:
  std::vector<fiber<>> fibers_;
};

}  // namespace vigil::testing_support
