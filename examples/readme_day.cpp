// The test on the first page of the README: a session that ends after a day of silence,
// tested on virtual time.
//
// Run:    build/release/examples/readme_day
// Prints: what the session heard, and the milliseconds that the two days took.

#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cassert>
#include <chrono>
#include <cstdio>
#include <string>

using namespace std::chrono_literals;

namespace {

//! [test]
// The code under test: a session ends a day after its last message.
void session(const vigil::receiver<std::string>& messages) {
  while (auto message = messages.recv_for(24h))
    std::printf("heard: %s\n", message->c_str());
}

void test_session() {
  vigil::testing::run_virtual([] {
    auto messages = vigil::make_channel<std::string>();
    auto user = vigil::spawn(session, messages);
    vigil::sleep_for(23h + 59min);
    messages.send("still here");  // a minute before the end
    user.join();                  // a day later, to the nanosecond:
    assert(vigil::clock::now() == vigil::testing::epoch + 47h + 59min);
  });
}

//! [test]

}  // namespace

int main() {
  const auto began = std::chrono::steady_clock::now();
  test_session();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  std::printf("two days in %.2f ms\n", took.count());
}
