// Locks two accounts at once, in whatever order they are named, without a deadlock.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

struct account {
  int balance;
  vigil::mutex mutex{};
};

void move_money(account& from, account& to, int amount) {
  if (&from == &to) return;
  const std::scoped_lock both(from.mutex, to.mutex);
  vigil::sleep_for(1ms);  // writes to the disk; a vigil::mutex may be held meanwhile
  from.balance -= amount;
  to.balance += amount;
}

int main() {
  return vigil::testing::run_virtual([] {
    account a{1000};
    account b{1000};
    vigil::group all;  // after what its fibers refer to
    for (int i = 1; i <= 20; ++i) {
      all.go([&, i] { move_money(a, b, i); });
      all.go([&] { move_money(b, a, 10); });
    }
    all.wait();
    std::printf("%d and %d\n", a.balance, b.balance);
  });
}

//! [recipe]
