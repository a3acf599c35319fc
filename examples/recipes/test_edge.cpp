// Tests that a session ends after a day, and not a nanosecond earlier.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstdio>

using namespace std::chrono_literals;

class session {  // the code under test
 public:
  bool is_over() const { return over_; }

  void use() { end_->reset(24h); }

 private:
  std::atomic<bool> over_ = false;
  vigil::scoped_timer end_ = vigil::after_func(24h, [this] { over_ = true; });
};

int expect(const char* what, bool holds) {
  std::printf("%s: %s\n", what, holds ? "yes" : "NO");
  return holds ? 0 : 1;
}

int main() {
  return vigil::testing::run_virtual([] {
    session s;
    vigil::sleep_for(10h);
    s.use();
    vigil::sleep_for(24h - 1ns);
    vigil::testing::settle();  // all that is due has run
    int faults = expect("it is there until the last moment", !s.is_over());
    vigil::sleep_for(1ns);
    vigil::testing::settle();
    faults += expect("then it is over", s.is_over());
    return faults;
  });
}

//! [recipe]
