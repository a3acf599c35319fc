// Random programs on virtual time against Go's rules (reference_model.hpp).
#include "core/chan/random_program.hpp"

#include "core/chan/random_form.hpp"
#include "core/chan/reference_model.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
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
    check_history(program.written());  // explains more than a program that is stuck
  } catch (const std::exception& e) {
    failed += (failed.empty() ? "" : "\n") + std::string(e.what());
  }
  return {program.operations(), failed};
}

outcome run_program(std::uint64_t seed) {
  return seed % 2 == 0 ? run_program<moved_value>(seed) : run_program<plain_value>(seed);
}

void count_ways(const history& h, std::map<std::string, int>& ways) {
  std::map<int, std::size_t> begun;  // by fiber
  for (std::size_t i = 0; i < h.records.size(); ++i) {
    const record& r = h.records[i];
    if (r.what == record::kind::begin) begun[r.fiber] = i;
    if (r.what != record::kind::end) continue;
    const std::size_t begin = begun[r.fiber];
    static constexpr const char* kinds[] = {"recv", "send", "timer", "timeout", "otherwise"};
    std::string way = "threw";
    if (r.got.index != nil) {
      const wish& w = h.wishes[h.records[begin].first + static_cast<std::size_t>(r.got.index)];
      way = std::string(kinds[static_cast<std::size_t>(w.what)]) +
            (r.got.how == result::kind::closed ? " closed" : " done");
    }
    ++ways[way + (i == begin + 1 ? ", at once" : ", after a wait")];
  }
}

}  // namespace

TEST_SUITE("random programs") {
  TEST_CASE("do only what Go's rules allow, under every seed") {
    draw_until(operations(300'000), [](std::uint64_t seed) {
      const outcome did = run_program(seed);
      NOTE(did.refused);
      REQUIRE(did.refused.empty());
      REQUIRE(moved_value::alive == 0);
      return did.operations;
    });
  }

  // Otherwise a program that does little would pass for one that is right.
  TEST_CASE("end in every way, at once and after a wait") {
    std::map<std::string, int> ways;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      random_program<plain_value> program(seed, seed % 4 == 0);
      in_virtual({.seed = seed, .runtime = {}}, [&] { program.run(); });
      count_ways(program.written(), ways);
    }
    for (const char* const how : {"at once", "after a wait"}) {
      for (const char* const what :
           {"recv done", "recv closed", "send done", "threw", "timer done", "timeout done"}) {
        NOTE(what, ", ", how);
        CHECK(ways[std::string(what) + ", " + how] > 20);
      }
    }
    CHECK(ways["otherwise done, at once"] > 20);
    CHECK(ways["otherwise done, after a wait"] == 0);
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
