// Searches while the user types: each new text ends the search for the one before.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

void search(const std::string& text) {
  vigil::sleep_for(150ms);  // a stop ends each wait
  std::printf("found 3 pages about %s\n", text.c_str());
}

int main() {
  return vigil::testing::run_virtual([] {
    const auto typed = vigil::make_channel<std::string>();
    vigil::go([typed] {
      for (const char* text : {"c", "co", "cor", "coroutine"}) {
        typed.send(text);
        vigil::sleep_for(text[1] == 0 ? 200ms : 100ms);
      }
      typed.close();
    });
    vigil::fiber<> searching;
    for (std::string& text : typed) {
      searching = {};  // stops the one before, and waits for its end
      searching = vigil::spawn(search, std::move(text));
    }
    if (searching.joinable()) searching.join();
  });
}

//! [recipe]
