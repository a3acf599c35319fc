// Takes the first of several that succeeds; it fails only if all of them do.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using namespace std::chrono_literals;

std::string load(const std::string& mirror, const vigil::context& ctx) {
  vigil::sleep_for(10ms * mirror.size(), ctx);
  if (mirror.size() < 5) throw std::runtime_error(mirror + " is down");
  return "loaded from " + mirror;
}

std::string first_of(const std::vector<std::string>& mirrors) {
  vigil::group_of<std::optional<std::string>> loads;
  for (const std::string& mirror : mirrors) {
    loads.go([&mirror](const vigil::context& ctx) -> std::optional<std::string> {
      try {
        return load(mirror, ctx);
      } catch (const std::exception& e) {
        if (ctx.is_done()) throw;  // another has succeeded
        std::puts(e.what());
        return std::nullopt;  // an exception would end the others
      }
    });
  }
  while (const auto done = loads.next())
    if (*done) return **done;
  throw std::runtime_error("every mirror is down");
}  // the group stops those that still load, and waits for them

int main() {
  return vigil::testing::run_virtual([] {
    std::puts(first_of({"Rio", "Lisbon", "Oslo", "Reykjavik"}).c_str());
    try {
      first_of({"Rio", "Oslo"});
    } catch (const std::runtime_error& e) {
      std::puts(e.what());
    }
  });
}

//! [recipe]
