// service: starts, works every 100 ms, stops cleanly on Ctrl-C.
//
// Run it:     build/release/examples/service, then Ctrl-C (or SIGTERM)
// It prints:  a line for every ten pieces of work, so one each second, and the steps of
//             the shutdown at the end: main is told, finishes what has begun, and returns;
//             the shutdown then ends every other wait with `vigil::stopped`, the
//             destructors run, run() returns.

//! [service]
#include <vigil/vigil.hpp>

#include <csignal>
#include <cstdio>

using namespace std::chrono_literals;

struct said_at_the_end {
  const char* text;

  ~said_at_the_end() { std::puts(text); }
};

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 12);  // each line at once, even into a pipe

  vigil::options settings;
  settings.stop_on = {SIGINT, SIGTERM};
  const int status = vigil::run(settings, [] {
    // A client that is never heard of again: only the shutdown ends this wait.
    vigil::go([] {
      const said_at_the_end goodbye{"the client is told goodbye"};
      vigil::sleep_for(24h);
    });

    int done = 0;
    vigil::scoped_timer work = vigil::every(100ms, [&done] {
      if (++done % 10 == 0) std::printf("worked %d times\n", done);
    });

    std::puts("serving; Ctrl-C stops");
    vigil::background().done().recv();  // until Ctrl-C or SIGTERM
    // From here there are five seconds to finish what has begun, or options::grace.
    work->stop_and_wait();
    std::puts("the work is done");
  });
  std::puts("stopped");
  return status;
}

//! [service]
