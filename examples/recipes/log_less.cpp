// Writes a message once a second at most, and how many like it were left out.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstdio>

using namespace std::chrono_literals;

class rare_message {
 public:
  void write(const char* text) {
    if (!may_write_.allow()) {
      ++left_out_;
    } else if (const int n = left_out_.exchange(0); n > 0) {
      std::printf("%s (and %d times before)\n", text, n);
    } else {
      std::puts(text);
    }
  }

 private:
  vigil::rate_limiter may_write_{vigil::rate::every(1s), 1};
  std::atomic<int> left_out_ = 0;
};

int main() {
  return vigil::testing::run_virtual([] {
    rare_message full;
    for (int i = 0; i < 250; ++i) {
      full.write("the disk is full");
      vigil::sleep_for(10ms);
    }
  });
}

//! [recipe]
