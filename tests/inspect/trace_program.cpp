// Writes its trace to standard output, and to standard error how many fibers were stolen.
#include <vigil/inspect.hpp>
#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

using namespace std::chrono_literals;

namespace {

// Returns once the other worker has taken a fiber from this one.
void let_steal() {
  std::atomic<bool> has_run{false};
  vigil::fiber_options named;
  named.name = "stolen";
  auto f = vigil::spawn(named, [&] { has_run.store(true); });
  while (!has_run.load()) {
  }
  f.join();
}

// Another thread has a timer, starts a fiber and posts a function.
void act_outside(vigil::runtime& rt) {
  auto answers = vigil::make_channel<int>(2);
  std::thread([&] {
    vigil::timer t = rt.after_func(1h, [] {});
    t.reset(2h);
    t.stop();
    rt.go([answers] { answers.send(1); });
    rt.post([answers] { answers.send(2); });
  }).join();
  static_cast<void>(answers.recv());
  static_cast<void>(answers.recv());
}

std::string trace() {
  char* text = nullptr;
  std::size_t size = 0;
  std::FILE* const out = ::open_memstream(&text, &size);
  vigil::inspect::write_trace(out);
  std::fclose(out);
  const std::string copy(text, size);
  std::free(text);
  return copy;
}

// Returns once the trace shows that this fiber computes.
[[gnu::noinline]] void compute_for_long() {
  std::atomic<bool> is_shown{false};
  std::thread looks([&] {
    while (trace().find("slow_fiber") == std::string::npos)
      std::this_thread::sleep_for(1ms);
    is_shown.store(true);
  });
  while (!is_shown.load()) {
  }
  looks.join();
}

}  // namespace

int main() {
  vigil::inspect::install();
  vigil::options o;
  o.workers = 2;
  o.recorder_events = 16'384;
  o.slow_fiber = 10ms;
  vigil::runtime rt(o);
  rt.run([&] {
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
    let_steal();
    vigil::spawn({.name = "computes"}, [] { compute_for_long(); }).join();
    act_outside(rt);
    while (rt.stats().kernel_waits < 2)
      vigil::sleep_for(2ms);
    vigil::inspect::write_trace(stdout);
    std::fprintf(stderr, "%llu stolen\n", static_cast<unsigned long long>(rt.stats().steals));
  });
}
