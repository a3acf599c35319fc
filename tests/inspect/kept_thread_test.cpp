#include "inspect/kept_thread.hpp"

#include "support/thread_count.hpp"

#include <string>

#include <doctest/doctest.h>

namespace vigil::detail {
namespace {

// As when the process is stopped between the question and the look at the clock.
void ask_hastily() {
  const text_of_thread unwanted(0, [] { return std::string("late"); });
}

bool is_answered() {
  const text_of_thread wanted(20'000'000'000, [] { return std::string("text"); });
  return wanted.get() != nullptr && *wanted.get() == "text";
}

TEST_CASE("askers that give up before the kept thread has begun do not keep others from it") {
  keep_thread();
  for (int i = 0; i < 100; ++i) {
    ask_hastily();
    CHECK(testing_support::once_at_most(0, [] { return is_answered() ? 0 : 1; }) == 0);
  }
}

}  // namespace
}  // namespace vigil::detail
