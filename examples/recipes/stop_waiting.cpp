// Stops waiting for an answer after two seconds, and ends the call as well.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <string>

using namespace std::chrono_literals;

std::string ask(const std::string& city, vigil::clock::duration takes) {
  vigil::sleep_for(takes);  // as if over the network
  return city + " answers";
}

template <class F>
auto within(vigil::clock::duration limit, F f) {
  auto call = vigil::spawn(std::move(f));
  using result = std::optional<decltype(call.join())>;
  return call.join_for(limit) ? result(call.join()) : std::nullopt;
}  // the handle stops a call that is still under way, and waits for its end

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {1s, 5s}) {
      const auto answer = within(2s, [takes] { return ask("Oslo", takes); });
      std::puts(answer ? answer->c_str() : "no answer within two seconds");
    }
  });
}

//! [recipe]
