// Writes its trace to standard output.
#include <vigil/inspect.hpp>
#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>

using namespace std::chrono_literals;

int main() {
  vigil::options o;
  o.workers = 2;
  o.recorder_events = 16'384;
  vigil::run(o, [] {
    auto jobs = vigil::make_channel<int>();
    vigil::fiber_options named;
    named.name = "hostile \"name\"\n\xff";
    auto worker = vigil::spawn(named, [&] {
      while (auto job = jobs.recv()) {
        const vigil::trace::region region("job");
        vigil::sleep_for(1ms);
      }
    });
    auto late = vigil::after_func(2ms, [] {});
    for (int i = 0; i < 5; ++i)
      jobs.send(i);
    jobs.close();
    worker.join();
    vigil::blocking([] {});
    vigil::inspect::write_trace(stdout);
  });
}
