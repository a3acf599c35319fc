// Reading the object of a wait that has ended: its bytes may be anything.
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/wait/wait_reason.hpp"
#include "inspect/awaited_object.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <vector>

#include <doctest/doctest.h>

using vigil::detail::awaited_object;
using vigil::detail::fiber_view;
using vigil::detail::wait_reason;

namespace {

std::vector<wait_reason> all_reasons() {
  std::vector<wait_reason> all;
  for (unsigned i = 0; to_string(static_cast<wait_reason>(i)) != std::string_view("?"); ++i)
    all.push_back(static_cast<wait_reason>(i));
  return all;
}

// Words as objects have them: numbers, pointers to more of them, and any bits.
void fill(std::vector<std::uintptr_t>& words, std::mt19937_64& random) {
  const auto from = reinterpret_cast<std::uintptr_t>(words.data());
  for (std::uintptr_t& w : words) {
    switch (random() % 4) {
      case 0:
        w = random() % 4;
        break;
      case 1:
        w = from + sizeof w * (random() % words.size());
        break;
      case 2:
        w = ~std::uintptr_t{0} - random() % 64;
        break;
      default:
        w = random();
    }
  }
}

}  // namespace

TEST_SUITE("awaited") {
  TEST_CASE("an object that is gone may hold any bytes") {
    std::mt19937_64 random(1);
    std::vector<std::uintptr_t> words(512);
    const std::vector<wait_reason> reasons = all_reasons();
    REQUIRE(reasons.size() > 10);
    std::size_t read = 0;
    for (int round = 0; round < 500; ++round) {
      fill(words, random);
      for (const wait_reason reason : reasons) {
        fiber_view task;
        task.state = vigil::detail::fiber_state::parked;
        task.reason = reason;
        task.object = &words[256];
        awaited_object out;
        read_awaited(task, out);
        CHECK(out.case_count <= awaited_object::most_cases);
        if (out.type != awaited_object::kind::none) ++read;
      }
    }
    CHECK(read > 0);
  }
}
