// Pauses all workers, and lets them go on, without ending them.
//! [recipe]
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <cstdio>
#include <mutex>

using namespace std::chrono_literals;

class gate {
 public:
  void set_open(bool open) {
    {
      const std::lock_guard lock(mutex_);
      open_ = open;
    }
    changed_.notify_all();
  }

  void pass(const vigil::context& ctx) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, ctx, [this] { return open_; });
  }

 private:
  vigil::mutex mutex_;
  vigil::condition_variable changed_;
  bool open_ = true;
};

int main() {
  return vigil::testing::run_virtual([] {
    gate may_work;
    std::atomic<int> done = 0;
    vigil::group workers;
    workers.go([&](const vigil::context& ctx) {
      for (;; ++done) {
        may_work.pass(ctx);
        vigil::sleep_for(10ms, ctx);
      }
    });
    for (const bool open : {true, false, true}) {
      may_work.set_open(open);
      vigil::sleep_for(995ms);
      std::printf("%s: %d pieces are done\n", open ? "open" : "paused", done.load());
    }
    workers.cancel();
  });
}

//! [recipe]
