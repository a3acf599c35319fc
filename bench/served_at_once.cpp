// How late a sleep of 2 ms ends beside fibers that loop over calls which are served at
// once, as many as there are workers; and beside the same loops with a yield() in them.
#include "harness.hpp"

#include <vigil/co.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bench {
namespace {

using namespace std::chrono_literals;

struct loop_kind {
  const char* name;
  std::function<std::function<void()>()> make;  // one round of the loop, with its objects
};

std::vector<loop_kind> kinds() {
  using vigil::make_channel;
  return {
      {"send and recv",
       [] {
         return [c = make_channel<int>(4)] {
           c.send(1);
           c.recv();
         };
       }},
      {"select with otherwise",
       [] {
         return [c = make_channel<int>(4)] {
           vigil::select(vigil::on_recv(c, [] {}), vigil::otherwise());
         };
       }},
      {"select with a done context",
       [] {
         auto [ctx, cancel] = vigil::with_cancel(vigil::background());
         cancel();
         return [c = make_channel<int>(4), done = ctx] {
           vigil::select(vigil::on_recv(c, [] {}), vigil::on_done(done));
         };
       }},
      {"lock and unlock",
       [] {
         return [m = std::make_shared<vigil::mutex>()] {
           m->lock();
           m->unlock();
         };
       }},
      {"lock and unlock of new ones",
       [] {
         return [] {
           vigil::mutex m;
           m.lock();
           m.unlock();
         };
       }},
      {"acquire and release",
       [] {
         return [s = std::make_shared<vigil::semaphore>(1)] {
           s->acquire();
           s->release();
         };
       }},
      {"sleep_for(0s)", [] { return [] { vigil::sleep_for(0s); }; }},
  };
}

// Returns how late each of `samples` sleeps of 2 ms ended beside the others.
template <class Start>
std::vector<nanos> late_beside(std::size_t workers, std::size_t samples, Start start) {
  std::atomic<bool> over{false};
  std::vector<nanos> late;
  vigil::run(with_workers(workers), [&] {
    std::vector<vigil::fiber<>> others;
    for (std::size_t i = 0; i < workers; ++i)
      others.push_back(vigil::spawn([&] { start(over); }));
    for (std::size_t i = 0; i < samples; ++i) {
      const nanos deadline = now() + 2 * millisecond;
      vigil::sleep_for(2ms);
      late.push_back(now() - deadline);
    }
    over = true;
  });
  return late;
}

vigil::task<> task_loop(std::atomic<bool>& over, bool yields) {
  const auto c = vigil::make_channel<int>(4);
  while (!over.load()) {
    co_await vigil::co::send(c, 1);
    co_await vigil::co::recv(c);
    if (yields) co_await vigil::co::yield();
  }
}

}  // namespace

void served_at_once(report& out) {
  const std::size_t samples = out.is_asked_for() ? 1'000 : 200;
  for (const std::size_t workers : {std::size_t{1}, std::size_t{2}}) {
    const std::string title = ", " + std::to_string(workers) + " of " + std::to_string(workers) +
                              " workers: a sleep's lateness, p99";
    for (const loop_kind& kind : kinds()) {
      const auto loop = [&](bool yields) {
        return late_beside(workers, samples, [&](std::atomic<bool>& over) {
          const auto call = kind.make();
          while (!over.load()) {
            call();
            if (yields) vigil::this_fiber::yield();
          }
        });
      };
      const std::vector<nanos> with_yields = loop(true);
      out.compare(kind.name + title,
                  quantile(loop(false), 0.99) / 1e3,
                  "us",
                  quantile(with_yields, 0.99) / 1e3);
    }
    const auto tasks = [&](bool yields) {
      return late_beside(workers, samples, [&](std::atomic<bool>& over) {
        vigil::spawn(task_loop(over, yields)).join();
      });
    };
    const std::vector<nanos> with_yields = tasks(true);
    out.compare("co::send and co::recv" + title,
                quantile(tasks(false), 0.99) / 1e3,
                "us",
                quantile(with_yields, 0.99) / 1e3);
  }
}

}  // namespace bench
