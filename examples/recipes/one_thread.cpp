// Keeps a library that may be used by one thread only on a thread of its own.
//! [recipe]
#include <vigil/vigil.hpp>

#include <cstdio>
#include <thread>

struct old_library {  // checks that it is always the same thread

  int add(int n) {
    if (owner == std::thread::id()) owner = std::this_thread::get_id();
    return owner == std::this_thread::get_id() ? sum += n : -1;
  }

  std::thread::id owner;
  int sum = 0;
};

class counter {
 public:
  int add(int n) {
    return vigil::blocking(thread_, [this, n] { return library_.add(n); });
  }

 private:
  old_library library_;
  // The last member: it ends first, once all that is queued has run, even for a caller
  // that was stopped meanwhile.
  vigil::blocking_pool thread_{{.threads = 1, .name = "counter"}};
};

int main() {
  return vigil::run([] {
    counter c;
    vigil::group adding;
    for (int n = 1; n <= 100; ++n)
      adding.go([&c, n] { c.add(n); });
    adding.wait();
    std::printf("the sum is %d\n", c.add(0));
  });
}

//! [recipe]
