// receive_timeout: waits for a value, but not for ever.
//
// Run it:     build/release/examples/patterns/receive_timeout
// It prints:  how seven waits end: value, timeout and close are told apart.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <string>

using namespace std::chrono_literals;

namespace {

void wait_for_one(const vigil::receiver<std::string>& letters) {
  //! [recv_for]
  if (auto letter = letters.recv_for(100ms)) {
    std::printf("got %s\n", letter->c_str());
  } else if (letter.is_timeout()) {
    std::puts("nothing for 100 ms");
  } else {
    std::puts("closed: nothing will come any more");
  }
  //! [recv_for]
}

void wait_for_either(const vigil::receiver<std::string>& letters,
                     const vigil::receiver<int>& parcels) {
  using letter = std::optional<std::string>;
  //! [select]
  vigil::select(
      vigil::on_recv(letters, [](letter got) { std::puts(got ? got->c_str() : "closed"); }),
      vigil::on_recv(parcels, [](std::optional<int> kilos) { std::printf("%d kg\n", *kilos); }),
      vigil::on_timeout(100ms, [] { std::puts("neither for 100 ms"); }));
  //! [select]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    auto letters = vigil::make_channel<std::string>();
    auto parcels = vigil::make_channel<int>();
    vigil::go([letters, parcels] {
      for (const char* letter : {"a bill", "a card"}) {
        vigil::sleep_for(120ms);
        letters.send(letter);
      }
      parcels.send(7);
      vigil::sleep_for(150ms);
      letters.close();
    });
    for (int i = 0; i < 3; ++i)
      wait_for_one(letters);
    for (int i = 0; i < 3; ++i)
      wait_for_either(letters, parcels);
    wait_for_one(letters);
  });
}
