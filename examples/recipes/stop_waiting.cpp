// Stops waiting for an answer after two seconds, and ends the call as well.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

std::string ask(const std::string& city, vigil::clock::duration takes) {
  vigil::sleep_for(takes);  // as if over the network
  return city + " answers";
}

template <class F>
auto within(vigil::clock::duration limit, F f) {
  vigil::group_of<decltype(f())> call;
  call.go(std::move(f));
  return call.next_for(limit);  // true if there is a result; throws what f has thrown
}  // the group stops a call that is still under way, and waits for its end

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {1s, 5s}) {
      const auto answer = within(2s, [takes] { return ask("Oslo", takes); });
      std::puts(answer ? answer->c_str() : "no answer within two seconds");
    }
  });
}

//! [recipe]
