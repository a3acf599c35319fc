// worker_pool: three workers, eight jobs, one second. Jobs that are not done by then are
// given up.
//
// Run it:     build/release/examples/patterns/worker_pool
// It prints:  the jobs that are done in time, and when. It runs on virtual time.
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <vector>

using namespace std::chrono_literals;

int main() {
  return vigil::testing::run_virtual([] {
    const auto start = vigil::clock::now();
    const auto passed = [start] { return static_cast<int>((vigil::clock::now() - start) / 1ms); };
    int done = 0;
    {
      auto jobs = vigil::make_channel<int>();
      auto results = vigil::make_channel<int>();

      std::vector<vigil::fiber<>> pool;
      for (int i = 0; i < 3; ++i) {
        pool.push_back(vigil::spawn([jobs, results] {
          for (const int job : jobs) {
            vigil::sleep_for(job * 100ms);
            results.send(job);
          }
        }));
      }
      pool.push_back(vigil::spawn([jobs] {
        for (int job = 1; job <= 8; ++job)
          jobs.send(job);
        jobs.close();
      }));

      const auto take_note = [&](std::optional<int> job) {
        ++done;
        std::printf("%4d ms: job %d\n", passed(), *job);
      };
      auto budget = vigil::after(1s);
      for (bool over = false; !over && done < 8;) {
        vigil::select(vigil::on_recv(results, take_note),
                      vigil::on_recv(budget, [&over] { over = true; }));
      }
    }  // the handles stop their fibers, wherever they wait, and wait for them
    std::printf("%4d ms: %d of 8 are done\n", passed(), done);
  });
}
