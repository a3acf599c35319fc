// The code of docs/guide/timeout-lists.md, on virtual time: each function is one
// passage there.
//
// Run:    build/release/examples/guide_timeouts
// Prints: what each passage does.
#include <vigil/testing.hpp>
#include <vigil/timeout_list.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <memory>
#include <vector>

using namespace std::chrono_literals;

namespace {

//! [connection]
struct connection {
  int number = 0;
  vigil::timeout_list::entry idle{};  // 40 bytes, and no allocation ever
  bool open = true;

  void close() {
    open = false;
    std::printf("connection %d is closed\n", number);
  }
};

//! [connection]

void first() {
  //! [first]
  vigil::timeout_list idle(
      30s, [](vigil::timeout_list::entry& e) { vigil::owner_of<&connection::idle>(e).close(); });

  connection a{.number = 1};
  connection b{.number = 2};
  idle.add(a.idle);  // counts from now
  idle.add(b.idle);
  vigil::sleep_for(20s);
  a.idle.touch();         // data came: a counts from now
  vigil::sleep_for(15s);  // b is closed 30 s after it was added
  std::printf("%zu left\n", idle.size());
  //! [first]
}

void reader() {
  vigil::timeout_list idle(30s, [](vigil::timeout_list::entry&) {});
  connection c{.number = 3};
  idle.add(c.idle);
  //! [false]
  const auto now = vigil::clock::now();  // once for many events
  if (!c.idle.touch(now)) return;        // its expiry has begun: leave it alone
  //! [false]
  std::puts("in time");
}

void owned() {
  //! [owner]
  std::vector<std::unique_ptr<connection>> table;
  vigil::timeout_list idle(30s, [&table](vigil::timeout_list::entry& e) {
    const connection& c = vigil::owner_of<&connection::idle>(e);
    std::erase_if(table, [&c](const auto& each) { return each.get() == &c; });
  });
  for (int i = 0; i < 3; ++i) {
    table.push_back(std::make_unique<connection>());
    idle.add(table.back()->idle);
  }
  vigil::sleep_for(1min);
  std::printf("%zu in the table\n", table.size());
  //! [owner]
}

void durations() {
  //! [durations]
  vigil::timeout_lists timeouts(
      [](vigil::timeout_list::entry& e) { vigil::owner_of<&connection::idle>(e).close(); });
  connection a{.number = 4};
  connection b{.number = 5};
  timeouts.add(a.idle, 5s);
  timeouts.add(b.idle, 1min);
  timeouts.add(a.idle, 2min);  // moves it: an entry is in one list
  vigil::sleep_for(1min);
  vigil::testing::settle();
  std::printf("%zu left\n", timeouts.size());
  //! [durations]
}

void shutdown() {
  vigil::timeout_list idle(
      30s, [](vigil::timeout_list::entry& e) { vigil::owner_of<&connection::idle>(e).close(); });
  connection a{.number = 6};
  connection b{.number = 7};
  idle.add(a.idle);
  vigil::sleep_for(1s);
  idle.add(b.idle);
  //! [now]
  const std::size_t closed = idle.expire_now();  // all that are idle, the oldest first
  std::printf("%zu closed at the end\n", closed);
  //! [now]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    first();
    reader();
    owned();
    durations();
    shutdown();
  });
}
