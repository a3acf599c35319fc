// The descriptor by which threads wake a guest's host (wake_descriptor.hpp), around the
// steps of a worker that lies down (idle.hpp) and of a host that waits.
#include "core/guest/wake_descriptor.hpp"

#include "core/base/futex.hpp"
#include "core/base/nanos.hpp"
#include "prove.hpp"

#include <atomic>
#include <cstdint>
#include <thread>

#include <doctest/doctest.h>

using vigil::detail::futex_word;
using vigil::detail::never;
using vigil::detail::wake_descriptor;

namespace {

// An eventfd, and a host that waits for it.
class event {
 public:
  void write() noexcept {
    writes_.fetch_add(1);
    count_.fetch_add(1);
    vigil::detail::futex_wake_one(count_);
  }

  void take() noexcept { count_.exchange(0); }

  void wait_until_readable() const noexcept {
    while (count_.load() == 0)
      vigil::detail::futex_wait(const_cast<futex_word&>(count_), 0, never);
  }

  int writes() const noexcept { return writes_.load(); }

 private:
  futex_word count_{0};
  std::atomic<int> writes_{0};
};

struct guest {
  wake_descriptor<event> wake;
  std::atomic<bool> sleeps{false};
  std::atomic<int> work{0};

  void add_work() {
    work.fetch_add(1);
    if (sleeps.load()) wake.set();
  }

  // Takes what there is. Then lies down, and has the host wait, unless there is more.
  int take_all(int wanted) {
    int taken = 0;
    int in_vain = 0;
    for (;;) {
      const int found = work.exchange(0);
      taken += found;
      if (found != 0) {  // as a poll whose time is over (WD2)
        wake.leave_work();
        wake.event().wait_until_readable();
      }
      if (taken == wanted) break;
      wake.clear();
      sleeps.store(true);
      if (work.load() != 0) {
        sleeps.store(false);
        continue;
      }
      while (wake.may_wait()) {
        wake.event().wait_until_readable();
        if (work.load() == 0) ++in_vain;
      }
      sleeps.store(false);
    }
    model::require(in_vain <= wake.event().writes(), "each write wakes in vain once at most");
    return taken;
  }
};

}  // namespace

TEST_CASE("wake descriptor: no wake-up is lost, early or late") {
  prove(
      "wake descriptor: one thread",
      [] {
        guest g;
        std::thread other([&] { g.add_work(); });
        model::require(g.take_all(1) == 1, "the work is found");
        other.join();
      },
      also::unbounded);
  prove("wake descriptor: two threads", [] {
    guest g;
    std::thread first([&] { g.add_work(); });
    std::thread second([&] { g.add_work(); });
    model::require(g.take_all(2) == 2, "all work is found");
    first.join();
    second.join();
  });
}
