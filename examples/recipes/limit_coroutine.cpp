// Gives a coroutine a second, and stops it if it needs longer. A caller that is itself
// stopped drops the handle, and a late error goes to options::on_unhandled.
//! [recipe]
#include <vigil/co.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <exception>
#include <optional>
#include <string>

using namespace std::chrono_literals;
namespace co = vigil::co;

vigil::task<int> price(vigil::clock::duration takes) {
  co_await co::sleep_for(takes);
  co_return 42;
}

template <class T>
vigil::task<std::optional<T>> within(vigil::clock::duration limit, vigil::task<T> work) {
  auto running = vigil::spawn(std::move(work));
  const bool in_time = co_await co::join_for(running, limit);
  if (in_time) co_return co_await co::join(running);
  running.request_stop();
  co_await co::wait_all(running);  // suspends; the handle's destructor would keep a stack
  try {
    co_await co::join(running);
  } catch (const std::exception&) {
    // It was stopped, or its error comes too late.
  }
  co_return std::nullopt;
}

int main() {
  return vigil::testing::run_virtual([] {
    for (const auto takes : {100ms, 5000ms}) {
      const std::optional<int> p = vigil::spawn(within(1s, price(takes))).join();
      std::printf("%s\n", p ? std::to_string(*p).c_str() : "too late");
    }
  });
}

//! [recipe]
