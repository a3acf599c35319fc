// debounce_throttle: fewer values. debounce passes on the last value of a burst, once the
// burst is over; throttle passes on the first value of each period.
//
// Run it:     build/release/examples/patterns/debounce_throttle
// It prints:  the rest of two bursts of typing. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>
#include <utility>

using namespace std::chrono_literals;
using texts = vigil::channel<std::string>;

namespace {

void debounce(const texts& in, const texts& out, vigil::clock::duration quiet) {
  for (std::string& last : in) {
    while (auto next = in.recv_for(quiet))
      last = *std::move(next);
    out.send(std::move(last));
  }
  out.close();
}

void throttle(const texts& in, const texts& out, vigil::clock::duration period) {
  for (std::string& first : in) {
    const auto end = vigil::clock::now() + period;
    out.send(std::move(first));
    // A waiting value is received even late, so the clock ends the period.
    while (vigil::clock::now() < end && in.recv_until(end)) {
    }
  }
  out.close();
}

void show(const char* name, void (*filter)(const texts&, const texts&, vigil::clock::duration)) {
  const auto typed = vigil::make_channel<std::string>(),
             passed = vigil::make_channel<std::string>();
  vigil::go([typed] {
    for (const char* text : {"h", "he", "hel", "", "hell", "hello"}) {
      if (*text != 0) typed.send(text);
      vigil::sleep_for(*text != 0 ? 40ms : 200ms);
    }
    typed.close();
  });
  vigil::go(filter, typed, passed, 100ms);
  const auto start = vigil::clock::now();
  for (const std::string& text : passed)
    std::printf("%s, %3d ms: %s\n", name, int((vigil::clock::now() - start) / 1ms), text.c_str());
}
}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    show("debounced", debounce);
    show("throttled", throttle);
  });
}
