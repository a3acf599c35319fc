// A program without fibers: debuggers and profilers show on it what they can do here,
// before a test leans on them.
//
// usage: five_lines        calls answer() once
//        five_lines stay   prints "ready" and holds still for ten minutes
//        five_lines work   computes for a quarter of a second

#include <cstdio>
#include <ctime>

#include <sys/prctl.h>
#include <unistd.h>

extern "C" [[gnu::noinline]] int answer() {
  asm volatile("" ::: "memory");
  return 42;
}

int main(int count, char** arguments) {
  const char way = count > 1 ? arguments[1][0] : ' ';
  if (way == 's') {
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // any process of the user may attach
    std::puts("ready");
    std::fflush(stdout);
    ::sleep(600);
  }
  while (way == 'w' && std::clock() < CLOCKS_PER_SEC / 4) {
    for (int i = 0; i < 1'000'000; ++i)
      answer();
  }
  return answer() - 42;
}
