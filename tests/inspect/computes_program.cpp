// A fiber computes for half a second of its thread's time, three calls deep.
#include <vigil/vigil.hpp>

#include <ctime>

namespace {

// Returns the time on a processor that this thread has had.
[[gnu::noinline]] double seconds_used() {
  timespec t;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

[[gnu::noinline]] unsigned computes(unsigned sum) {
  for (unsigned i = 0; i < 1'000'000; ++i) {
    sum = sum * 31 + i;
    asm volatile("" : "+r"(sum));
  }
  return sum;
}

[[gnu::noinline]] void inner() {
  const double end = seconds_used() + 0.5;
  for (unsigned sum = 0; seconds_used() < end;)
    sum = computes(sum);
  asm volatile("" ::: "memory");  // no tail call
}

[[gnu::noinline]] void outer() {
  inner();
  asm volatile("" ::: "memory");
}

}  // namespace

int main() {
  vigil::run([] { vigil::spawn(&outer).join(); });
}
