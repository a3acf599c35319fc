// A hang and its report: two fibers lock two accounts in opposite orders. They do so on
// virtual time, so that it happens each time.
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

struct account {
  vigil::mutex lock;
  int balance = 100;
};

//! [transfer]
[[gnu::noinline]] void transfer(account& from, account& to, int amount) {
  const std::lock_guard first(from.lock);
  vigil::sleep_for(1ms);
  const std::lock_guard second(to.lock);
  from.balance -= amount;
  to.balance += amount;
}

//! [transfer]

int main() {
  //! [install]
  vigil::inspect::install();
  //! [install]
  account a;
  account b;
  try {
    vigil::testing::run_virtual([&] {
      auto rent = vigil::spawn({.name = "rent"}, [&] { transfer(a, b, 10); });
      auto wages = vigil::spawn({.name = "wages"}, [&] { transfer(b, a, 20); });
      rent.join();
    });
  } catch (const vigil::deadlock&) {
    // Standard error has the report: which lock each waits for, who holds it, and the
    // frames, with transfer() among them.
    std::puts("a deadlock, as it had to come");
  }
}
