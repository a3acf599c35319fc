// A program for debuggers: ten kinds of wait, three timers and a fiber that runs.
// gdb_test.py and lldb_test.py look inside.
//
// usage: waits_program expected   prints what each fiber's stack must show
//        waits_program go         ends when all have waited
//        waits_program two        the same beside another runtime
//        waits_program stay       prints "ready" and holds still for ten minutes
//        waits_program abort      leaves a core

#include "inspect/ten_waits.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <sys/prctl.h>
#include <unistd.h>

namespace {

std::string_view what;

void on_time() {}

}  // namespace

// All ten fibers wait. A breakpoint stands here.
extern "C" [[gnu::noinline]] void all_wait() {
  if (what == "abort") std::abort();
  if (what == "stay") {
    // Lets any process of the user attach, where the kernel asks for that.
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    std::puts("ready");
    std::fflush(stdout);
    ::sleep(600);
  }
  asm volatile("" ::: "memory");
}

namespace {

void print_expected() {
  ten_waits::for_each_kind([]<class Wait>() {
    for (const std::string& function : ten_waits::functions_of<Wait>())
      std::printf("%s %s\n", Wait::name, function.c_str());
  });
}

void wait_in_ten_ways() {
  using namespace std::chrono_literals;
  const vigil::timer third = vigil::after_func(30min, &on_time);
  const vigil::timer first = vigil::after_func(10min, &on_time);
  const vigil::timer second = vigil::every(20min, &on_time);
  ten_waits::run([] { all_wait(); });
}

// Calls f while a fiber of another runtime waits for a channel.
template <class F>
void beside_another(F f) {
  using namespace std::chrono_literals;
  const auto end = vigil::make_channel<int>();
  std::atomic<bool> waits{false};
  std::thread other([&] {
    vigil::options one;
    one.workers = 1;
    vigil::run(one, [&] {
      auto fiber = vigil::spawn({.name = "other"}, [end] { static_cast<void>(end.recv_for(1h)); });
      vigil::this_fiber::yield();  // it runs until it waits
      waits = true;
      waits.notify_one();
      fiber.join();
    });
  });
  waits.wait(false);
  f();
  end.close();
  other.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2) what = argv[1];
  if (what == "expected") {
    print_expected();
    return 0;
  }
  if (what != "go" && what != "two" && what != "stay" && what != "abort") {
    std::fprintf(stderr, "usage: waits_program expected|go|two|stay|abort\n");
    return 2;
  }
  const auto wait = [] { vigil::testing::run_virtual(&wait_in_ten_ways); };
  if (what == "two") {
    beside_another(wait);
    return 0;
  }
  // A debugger that attaches sees this thread first. Its stack lies above all others.
  std::thread(wait).join();
}
