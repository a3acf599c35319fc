// A user's program that checks its locks. It reads its own report, which shows that the
// library stands before the C library's functions, in libstdc++ as well.
#include <vigil/lock_check.hpp>
#include <vigil/vigil.hpp>

#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <mutex>
#include <thread>

#include <unistd.h>

using namespace std::chrono_literals;

int main() {
  int ends[2];
  if (::pipe(ends) != 0) return 1;
  const int error_output = ::dup(2);
  ::dup2(ends[1], 2);
  vigil::lock_check::install();
  vigil::run([] {
    std::mutex m;
    std::condition_variable c;
    std::unique_lock hold(m);
    std::thread other([&] {
      const std::lock_guard also(m);
      c.notify_one();
    });
    c.wait(hold);  // in libstdc++: released meanwhile
    vigil::sleep_for(1ms);
    hold.unlock();
    other.join();
  });
  ::dup2(error_output, 2);
  char report[4096];
  const ssize_t n = ::read(ends[0], report, sizeof report - 1);
  report[n > 0 ? n : 0] = '\0';
  std::fputs(report, stderr);
  if (std::strstr(report, "is about to wait (sleep) and holds a mutex") == nullptr) return 1;
  std::puts("vigil-lock-check says hello");
}
