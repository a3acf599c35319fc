// A program for debuggers: tasks that wait in several ways. gdb_test.py and lldb_test.py
// look inside.
//
// usage: task_waits_program go      ends when all have waited
//        task_waits_program abort   leaves a core
//
// It prints a line for each task, in the order of their numbers: its number, the
// beginning of its state, and the functions of its coroutines, the innermost first.

#include <vigil/co.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string_view>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
namespace co = vigil::co;

// All tasks wait. A breakpoint stands here.
extern "C" [[gnu::noinline]] void all_wait(bool leaves_core) {
  if (leaves_core) std::abort();
  asm volatile("" ::: "memory");
}

namespace task_waits {

vigil::task<int> sleeps() {
  co_await co::sleep_for(1h);
  co_return 1;
}

vigil::task<int> adds(int n) {
  co_return n + co_await sleeps();
}

// Its promise lies farther behind the beginning of its frame.
struct alignas(64) wide {
  int value = 0;
};

vigil::task<wide> widens() {
  wide result;
  result.value = co_await adds(1);
  co_return result;
}

vigil::task<> outermost() {
  co_await widens();
}

vigil::task<> receives(vigil::channel<int> from) {
  co_await co::recv(from);
}

vigil::task<> locks(vigil::mutex& m) {
  const auto held = co_await co::lock(m);
}

struct ignored {
  void operator()(const std::optional<int>&) const {}
};

vigil::task<> selects(vigil::channel<int> from, vigil::mutex& m) {
  co_await co::select(vigil::on_recv(from, ignored()), vigil::on_lock(m));
}

vigil::task<> joins(vigil::task_handle<>& other) {
  try {
    co_await co::join(other);
  } catch (const vigil::cancelled&) {
  }
}

// Waits as a fiber does.
vigil::task<> blocks(vigil::channel<int> from) {
  static_cast<void>(from.recv());
  co_return;
}

}  // namespace task_waits

namespace {

void wait_in_many_ways(bool leaves_core) {
  using namespace task_waits;
  auto ch = vigil::make_channel<int>();
  vigil::mutex m;
  std::unique_lock holds(m);
  auto first = vigil::spawn(outermost());
  std::vector<vigil::task_handle<>> others;
  others.push_back(vigil::spawn(receives(ch)));
  others.push_back(vigil::spawn(locks(m)));
  others.push_back(vigil::spawn(selects(ch, m)));
  others.push_back(vigil::spawn(joins(first)));
  others.push_back(vigil::spawn(blocks(ch)));
  vigil::sleep_for(90s);
  std::puts(
      "1: parked: sleep, for 90.000 s: sleeps adds widens outermost\n"
      "2: parked: channel receive from the channel made at : receives\n"
      "3: parked: mutex made at : locks\n"
      "4: parked: select (receive from the channel made at : selects\n"
      "5: parked: join of task 1, for 90.000 s: joins\n"
      "6: running on fiber : ");
  std::fflush(stdout);
  all_wait(leaves_core);
  first.request_stop();
  ch.close();
  holds.unlock();
  for (auto& t : others)
    t.join();
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view what = argc == 2 ? argv[1] : "";
  if (what != "go" && what != "abort") {
    std::fprintf(stderr, "usage: task_waits_program go|abort\n");
    return 2;
  }
  // The stack of this thread lies above all others.
  std::thread([what] {
    vigil::testing::run_virtual([what] { wait_in_many_ways(what == "abort"); });
  }).join();
}
