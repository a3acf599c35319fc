// ten_thousand_timers: the cost of 10 000 pending timers.
//
// It answers the question of the 2016 article "How Do They Do It: Timers in Go": does a
// timer cost a fiber, or a thread? The program counts both before it arms 10 000 timers,
// while they are pending, and after half were stopped and half have fired.
//
// Run it:     build/release/examples/ten_thousand_timers
// It prints:  the table of ten_thousand_timers.expected: one timer fiber,
//             whatever the number of timers, and no thread.
#include "example.hpp"

#include <atomic>
#include <chrono>
#include <string_view>
#include <vector>

using namespace std::chrono_literals;

namespace {

// Counts the fibers called `name` in a dump.
int count_in_dump(std::string_view name) {
  const std::string text = example::dump_text();
  int found = 0;
  for (auto at = text.find(name); at != text.npos; at = text.find(name, at + 1))
    ++found;
  return found;
}

void report(const char* when, std::int64_t threads_before) {
  const vigil::runtime_stats now = vigil::stats();
  std::printf("%-24s %14s %12d %11s %13lld\n",
              when,
              example::grouped(now.timers_pending).c_str(),
              count_in_dump("(timer fiber)"),
              example::grouped(now.fibers_alive).c_str(),
              static_cast<long long>(example::of_process("Threads") - threads_before));
}

}  // namespace

int main() {
  return example_main([] {
    const std::int64_t threads = example::of_process("Threads");
    std::puts("                         timers pending timer fibers user fibers threads added");
    report("before", threads);

    //! [timers]
    std::atomic<int> fired = 0;
    std::vector<vigil::scoped_timer> timers;
    for (int i = 0; i < 10'000; ++i) {
      timers.push_back(vigil::after_func(1s + i * 10us, [&fired] { ++fired; }));
    }
    report("10 000 are armed", threads);

    int stopped = 0;
    for (std::size_t i = 0; i < timers.size(); i += 2)
      stopped += timers[i]->stop();
    report("every other is stopped", threads);

    vigil::sleep_for(1500ms);
    report("the others have fired", threads);
    std::printf("%d stopped, %d fired\n", stopped, fired.load());
    //! [timers]
  });
}
