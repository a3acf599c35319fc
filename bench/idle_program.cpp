// A program for strace to look at: see tools/count_syscalls.sh.
//
//   idle_program idle              1 000 timers of one hour, then nothing
//   idle_program burst             the same after 1 000 000 arm+stop from two
//                                  workers; prints the wake-ups of the second
//                                  after that
//   idle_program sleep WORKERS N   a lone fiber sleeps N times 10 ms
//   idle_program arm-stop N        arms and stops N times a timer that is not
//                                  the earliest
//
// The last two make the system call getppid right before and right after, so that the
// calls in between can be counted.
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <sys/syscall.h>
#include <unistd.h>

namespace {

using namespace std::chrono_literals;

void mark() {
  ::syscall(SYS_getppid);
}

std::vector<vigil::timer> thousand_timers() {
  std::vector<vigil::timer> timers;
  for (int i = 0; i < 1000; ++i)
    timers.push_back(vigil::after_func(1h, [] {}));
  return timers;
}

[[noreturn]] void idle_for_ever() {
  std::puts("ready");
  std::fflush(stdout);
  for (;;)
    vigil::sleep_for(std::chrono::hours(24 * 365));
}

void idle() {
  const auto timers = thousand_timers();
  idle_for_ever();
}

void burst(vigil::runtime& rt) {
  const auto timers = thousand_timers();
  static std::atomic<int> arrived{0};
  static std::atomic<pid_t> threads[2];
  std::vector<vigil::fiber<>> two;
  for (int n = 0; n < 2; ++n) {
    two.push_back(vigil::spawn([n] {
      arrived.fetch_add(1);
      while (arrived.load() < 2)
        vigil::this_fiber::yield();
      threads[n] = static_cast<pid_t>(::syscall(SYS_gettid));
      vigil::timer t = vigil::after_func(2h, [] {});
      for (int i = 0; i < 500'000; ++i) {
        t.stop();
        t.reset(90min + std::chrono::nanoseconds(i));
      }
      t.stop();
    }));
  }
  for (auto& f : two)
    f.join();
  // A plain thread looks, so that the look itself wakes no worker.
  static std::thread look([&rt] {
    const auto wakes = [](const vigil::runtime_stats& s) {
      return s.wakes_useful + s.wakes_needless;
    };
    std::this_thread::sleep_for(1ms);
    const auto before = rt.stats();
    std::this_thread::sleep_for(1s);
    const auto after = rt.stats();
    std::printf(
        "wake-ups in the second after the burst: %llu, kernel waits: %llu, workers used: %d\n",
        static_cast<unsigned long long>(wakes(after) - wakes(before)),
        static_cast<unsigned long long>(after.kernel_waits - before.kernel_waits),
        threads[0].load() == threads[1].load() ? 1 : 2);
    std::puts("ready");
    std::fflush(stdout);
  });
  look.detach();
  for (;;)
    vigil::sleep_for(std::chrono::hours(24 * 365));
}

void sleep_often(int n) {
  vigil::spawn([n] {
    vigil::sleep_for(50ms);
    mark();
    for (int i = 0; i < n; ++i)
      vigil::sleep_for(10ms);
    mark();
  }).join();
}

void arm_and_stop(int n) {
  const auto timers = thousand_timers();
  // Until then the others, and the fiber's worker, have come to rest.
  vigil::sleep_for(50ms);
  vigil::timer t = vigil::after_func(2h, [] {});
  mark();
  for (int i = 0; i < n; ++i) {
    t.stop();
    t.reset(90min + std::chrono::nanoseconds(i));
  }
  mark();
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  const auto number = [&](int i) { return count > i ? std::atoi(arguments[i]) : 1; };
  vigil::options settings;
  settings.workers = mode == "sleep" ? static_cast<std::size_t>(number(2)) : 2;
  // Counts the system calls of arm and stop, without those of the stuck watch.
  if (mode == "arm-stop") settings.stuck_limit = 0s;
  vigil::runtime rt(settings);
  if (mode == "idle") return rt.run([] { idle(); });
  if (mode == "burst") return rt.run([&rt] { burst(rt); });
  if (mode == "sleep") return rt.run([&] { sleep_often(number(3)); });
  if (mode == "arm-stop") return rt.run([&] { arm_and_stop(number(2)); });
  std::fprintf(stderr, "usage: idle_program idle | burst | sleep WORKERS N | arm-stop N\n");
  return 2;
}
