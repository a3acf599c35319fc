// The code of docs/guide/sync.md: each function is one passage there.
//
// Run:    build/release/examples/guide_sync
// Prints: what each passage does.
#include <vigil/single_flight.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <map>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

void guarded() {
  //! [mutex]
  vigil::mutex m;
  int balance = 100;

  const auto withdraw = [&](int amount) {
    const std::lock_guard lock(m);
    if (balance < amount) return false;
    vigil::sleep_for(10ms);  // other fibers run meanwhile, but none comes in here
    balance -= amount;
    return true;
  };

  auto other = vigil::spawn([&] { return withdraw(70); });
  const bool mine = withdraw(70);
  std::printf("%d of the two, %d left\n", mine + other.join(), balance);
  //! [mutex]
}

void timed() {
  vigil::mutex m;
  m.lock();
  //! [timed]
  if (std::unique_lock lock(m, 50ms); lock) {
    std::puts("had it");
  } else {
    std::puts("not within 50 ms");
  }
  //! [timed]
  m.unlock();
}

void readers_and_writers() {
  //! [shared]
  vigil::shared_mutex m;
  std::map<std::string, int> table;

  const auto find = [&](const std::string& key) {
    const std::shared_lock lock(m);  // with other readers
    const auto it = table.find(key);
    return it == table.end() ? 0 : it->second;
  };
  const auto set = [&](const std::string& key, int value) {
    const std::unique_lock lock(m);  // alone
    table[key] = value;
  };
  //! [shared]
  set("a", 1);
  std::printf("%d\n", find("a"));
}

void conditions() {
  //! [condition]
  vigil::mutex m;
  vigil::condition_variable changed;
  bool open = false;

  vigil::group guests;  // declared last, so it ends first, and its fibers with it
  for (int i = 0; i < 3; ++i) {
    guests.go([&] {
      std::unique_lock lock(m);
      changed.wait(lock, [&] { return open; });
    });
  }
  {
    const std::lock_guard lock(m);
    open = true;
  }
  changed.notify_all();
  guests.wait();
  std::puts("all three came in");
  //! [condition]
}

void condition_with_a_deadline() {
  vigil::mutex m;
  vigil::condition_variable changed;
  //! [deadline]
  std::unique_lock lock(m);
  const bool came = changed.wait_for(lock, 1s, [] { return false; });
  std::puts(came ? "it holds" : "not within a second");
  //! [deadline]
}

void groups() {
  //! [group]
  std::vector<int> squares(4);
  vigil::group all;
  for (std::size_t i = 0; i < 4; ++i)
    all.go([&squares, i] { squares[i] = static_cast<int>(i * i); });
  all.wait();  // what they wrote is visible now
  for (const int s : squares)
    std::printf("%d ", s);
  std::puts("");
  //! [group]
}

void counts() {
  //! [wait_group]
  vigil::wait_group warm;
  vigil::group caches;  // after what its fibers use: it waits for them in any case
  for (int i = 0; i < 3; ++i) {
    warm.add();
    caches.go([&warm, i] {
      vigil::sleep_for(i * 10ms);  // fills its cache
      warm.done();
      vigil::sleep_for(1h);  // and keeps it fresh
    });
  }
  warm.wait(caches.context());  // throws if a cache fails
  std::puts("the caches are warm");
  //! [wait_group]
}

void permits() {
  //! [semaphore]
  vigil::semaphore connections(2);
  vigil::group all;
  const auto start = vigil::clock::now();
  for (int i = 0; i < 6; ++i) {
    all.go([&] {
      const vigil::scoped_permit one(connections);
      vigil::sleep_for(10ms);  // two at a time
    });
  }
  all.wait();
  std::printf("%d ms\n", static_cast<int>((vigil::clock::now() - start) / 1ms));
  //! [semaphore]
}

void only_once() {
  //! [once]
  vigil::once opened;
  int connection = 0;
  const auto use = [&] {
    opened.call([&] { connection = 42; });
    return connection;
  };
  //! [once]
  auto other = vigil::spawn(use);
  std::printf("%d %d\n", use(), other.join());
}

void one_for_many() {
  //! [single_flight]
  vigil::single_flight<std::string, int> lookups;
  int asked = 0;
  vigil::group all;
  for (int i = 0; i < 100; ++i) {
    all.go([&] {
      lookups.call("vigil.example", [&] {
        ++asked;
        vigil::sleep_for(20ms);
        return 42;
      });
    });
  }
  all.wait();
  std::printf("asked %d time for 100\n", asked);
  //! [single_flight]
}

void limited() {
  //! [rate]
  vigil::rate_limiter limiter(vigil::rate::per(10, 1s), 3);
  const auto start = vigil::clock::now();
  for (int i = 0; i < 6; ++i) {
    limiter.wait();
    std::printf("%d ", static_cast<int>((vigil::clock::now() - start) / 1ms));
  }
  std::puts("ms");
  if (!limiter.allow()) std::puts("too many");
  if (!limiter.wait_for(50ms)) std::puts("not within 50 ms");  // known at once
  //! [rate]
}

int with_threads() {
  //! [thread]
  vigil::mutex m;
  vigil::condition_variable changed;
  bool measured = false;
  std::thread sensor([&, announced = vigil::runtime::current().make_work_guard()] {
    const std::lock_guard lock(m);
    measured = true;
    changed.notify_one();
  });
  {
    std::unique_lock lock(m);
    changed.wait(lock, [&] { return measured; });
  }
  sensor.join();
  //! [thread]
  std::puts("measured");
  return 0;
}

}  // namespace

int main() {
  vigil::testing::run_virtual([] {
    guarded();
    timed();
    readers_and_writers();
    conditions();
    condition_with_a_deadline();
    groups();
    counts();
    permits();
    only_once();
    one_for_many();
    limited();
  });
  return vigil::run(with_threads);
}
