// Random programs on virtual time against Go's rules (reference_model.hpp).
#include "chan/random_program.hpp"

#include "chan/random_form.hpp"
#include "chan/reference_model.hpp"
#include "support/in_runtime.hpp"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <string>

using namespace vigil::testing_support;

namespace {

struct outcome {
  std::uint64_t operations = 0;
  std::string refused;  // empty: the rules allow it
};

template <class Value>
outcome run_program(std::uint64_t seed) {
  random_program<Value> program(seed, seed % 4 == 0);
  std::string failed;
  try {
    in_virtual({.seed = seed, .runtime = {}}, [&] { program.run(); });
  } catch (const std::exception& e) {
    failed = e.what();
  }
  try {
    check_history(program.written());  // says more than a program that is stuck
  } catch (const std::exception& e) {
    failed += (failed.empty() ? "" : "\n") + std::string(e.what());
  }
  return {program.operations(), failed};
}

outcome run_program(std::uint64_t seed) {
  return seed % 2 == 0 ? run_program<moved_value>(seed) : run_program<plain_value>(seed);
}

}  // namespace

TEST_SUITE("random programs") {
  TEST_CASE("do only what Go's rules allow, under every seed") {
    draw_until(operations(300'000), [](std::uint64_t seed) {
      const outcome did = run_program(seed);
      INFO(did.refused);
      REQUIRE(did.refused.empty());
      REQUIRE(moved_value::alive == 0);
      return did.operations;
    });
  }

  TEST_CASE("are the same again under the same seed") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      const auto write = [&] {
        random_program<moved_value> program(seed, false);
        in_virtual({.seed = seed, .runtime = {}}, [&] { program.run(); });
        std::string text;
        for (const record& r : program.written().records)
          text += to_string(program.written(), r) + "\n";
        return text;
      };
      CHECK(write() == write());
    }
  }
}
