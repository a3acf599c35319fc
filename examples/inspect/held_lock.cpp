// A std::mutex that is held across a wait, and its report on standard error.
#include <vigil/lock_check.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

struct price_list {
  std::mutex lock;
  int version = 0;
};

[[gnu::noinline]] void fetch() {
  vigil::sleep_for(1ms);  // stands for a call to another server
}

//! [refresh]
[[gnu::noinline]] void refresh(price_list& list) {
  const std::lock_guard hold(list.lock);
  fetch();
  ++list.version;
}

//! [refresh]

int main() {
  //! [install]
  vigil::lock_check::install();
  //! [install]
  price_list list;
  vigil::run([&] {
    vigil::spawn({.name = "refresher"}, [&] { refresh(list); }).join();
    std::printf("version %d\n", list.version);
  });
}
