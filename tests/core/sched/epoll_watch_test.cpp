// The seam for I/O: a watch over epoll and a timerfd, as an io_context would be, in place
// of the futex watch.
#include "core/base/clock_source.hpp"
#include "core/sched/call/park.hpp"
#include "core/sched/idle/watch.hpp"
#include "support/at_rest.hpp"
#include "support/in_runtime.hpp"

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::sleep_for;
using vigil::spawn;
using vigil::detail::nanos;
using vigil::detail::never;

namespace {

struct watch_calls {
  std::atomic<int> waits{0};
  std::atomic<int> settings{0};
  std::atomic<int> interrupts{0};
  std::atomic<int> readable{0};
};

class epoll_watch final : public vigil::detail::watch {
 public:
  explicit epoll_watch(watch_calls& calls) : calls_(calls) {
    add(timer_);
    add(event_);
  }

  ~epoll_watch() override {
    ::close(epoll_);
    ::close(timer_);
    ::close(event_);
  }

  // Readies the waiter when the descriptor has input.
  void await(int descriptor, vigil::detail::waiter& who, vigil::detail::ticket which) {
    who_ = &who;
    which_ = which;
    descriptor_ = descriptor;
    add(descriptor);
  }

  void prepare() noexcept override {
    {
      const std::lock_guard guard(timer_lock_);
      earliest_ = never;
    }
    // seq_cst: ordered before the worker publishes its sleep.
    interrupted_.store(false);
    std::uint64_t ignored = 0;
    while (::read(event_, &ignored, sizeof ignored) > 0) {
    }
  }

  void wait_until(nanos deadline) noexcept override {
    calls_.waits.fetch_add(1);
    set(deadline);
    epoll_event events[4];
    if (interrupted_.load()) return;
    const int n = ::epoll_wait(epoll_, events, 4, -1);
    for (int i = 0; i < n; ++i) {
      if (events[i].data.fd == timer_) {
        std::uint64_t ignored = 0;
        if (::read(timer_, &ignored, sizeof ignored) < 0) continue;
      } else if (events[i].data.fd == descriptor_) {
        calls_.readable.fetch_add(1);
        ::epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor_, nullptr);
        if (who_->claim(which_, vigil::detail::outcome::value)) who_->deliver();
      }
    }
  }

  bool interrupt() noexcept override {
    calls_.interrupts.fetch_add(1);
    if (interrupted_.exchange(true)) return false;
    const std::uint64_t one = 1;
    return ::write(event_, &one, sizeof one) > 0;
  }

  bool earlier(nanos deadline) noexcept override {
    set(deadline);
    return true;
  }

 private:
  void add(int descriptor) {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = descriptor;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &e);
  }

  // The earliest deadline since prepare() counts: earlier() may be called before the wait
  // has begun. A deadline that is already set is set again: it may have passed meanwhile.
  void set(nanos deadline) noexcept {
    const std::lock_guard guard(timer_lock_);
    if (deadline < earliest_) earliest_ = deadline;
    deadline = earliest_;
    calls_.settings.fetch_add(1);
    itimerspec when{};  // zero disarms it
    if (deadline != never) {
      const nanos at = deadline > 0 ? deadline : 1;
      when.it_value.tv_sec = at / 1'000'000'000;
      when.it_value.tv_nsec = at % 1'000'000'000;
    }
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
  }

  watch_calls& calls_;
  int epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  int timer_ = ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  int event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  std::atomic<bool> interrupted_{false};
  std::mutex timer_lock_;
  nanos earliest_ = never;
  int descriptor_ = -1;
  vigil::detail::waiter* who_ = nullptr;
  vigil::detail::ticket which_ = 0;
};

// Calls body(core, calls, watch).
template <class F>
void over_epoll(const std::vector<unsigned>& workers, F body) {
  for (const unsigned n : workers) {
    INFO("workers: ", n);
    watch_calls calls;
    vigil::detail::scheduler_options o = vigil::detail::checked({});
    o.workers = n;
    auto watch = std::make_unique<epoll_watch>(calls);
    auto* const seen = watch.get();
    vigil::detail::runtime_core core(o, std::move(watch));
    auto main = [&] { body(core, calls, *seen); };
    core.sched.run(main);
  }
}

}  // namespace

TEST_SUITE("a watch over epoll and timerfd") {
  TEST_CASE("sleeps end through it, never early") {
    over_epoll({1, 2, 4}, [](auto&, watch_calls& calls, auto&) {
      std::vector<vigil::fiber<>> fibers;
      for (int i = 0; i < 4; ++i) {
        fibers.push_back(spawn([i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          for (int round = 0; round < rounds(200); ++round) {
            const std::chrono::nanoseconds nap(1 + dice.below(200'000));
            const auto start = vigil::clock::now();
            sleep_for(nap);
            REQUIRE(since(start) >= nap);
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
      // Beside other programs short sleeps may all be over before the worker lies down.
      for (int i = 0; i < 100 && calls.waits.load() == 0; ++i)
        sleep_for(10ms);
      CHECK(calls.waits.load() > 0);
    });
  }

  TEST_CASE("an earlier deadline from a plain thread reaches it") {
    over_epoll({1, 2}, [](vigil::detail::runtime_core& core, auto&, auto&) {
      auto late = vigil::after_func(1h, [] {});
      std::atomic<bool> fired{false};
      auto t = vigil::after_func(2h, [&] { fired.store(true); });
      std::thread outside([&] {
        wait_until_at_rest(core.sched);
        t.reset(1ms);
      });
      while (!fired.load()) {
        auto f = spawn([] { sleep_for(500us); });
        f.join();
      }
      outside.join();
      late.stop();
      CHECK(&core.sched == vigil::detail::current_scheduler());
    });
  }

  TEST_CASE("work from outside interrupts it") {
    over_epoll({1, 2}, [](vigil::detail::runtime_core& core, watch_calls&, auto&) {
      auto waiting = spawn([] { sleep_for(1h); });
      std::thread outside([&] {
        wait_until_at_rest(core.sched);
        waiting.request_stop();
      });
      CHECK_THROWS_AS(waiting.join(), vigil::cancelled);
      outside.join();
      core.sched.end.request_stop();
      CHECK_THROWS_AS(sleep_for(1h), vigil::stopped);
    });
  }

  TEST_CASE("a descriptor that becomes readable readies the fiber that awaits it") {
    over_epoll({1, 2}, [](vigil::detail::runtime_core& core, watch_calls& calls, epoll_watch& w) {
      int ends[2];
      REQUIRE(::pipe(ends) == 0);
      core.sched.outside.add();
      auto& self = *vigil::detail::current_fiber();
      const auto t = self.own_waiter.open(true);
      w.await(ends[0], self.own_waiter, t);
      std::thread writer([&] {
        wait_until_at_rest(core.sched);
        if (::write(ends[1], "x", 1) != 1) std::abort();
      });
      CHECK(vigil::detail::wait(
                self, t, vigil::detail::wait_reason::test, vigil::detail::no_limit, true) ==
            vigil::detail::outcome::value);
      CHECK(calls.readable.load() == 1);
      core.sched.outside.end();
      writer.join();
      ::close(ends[0]);
      ::close(ends[1]);
    });
  }

  TEST_CASE("a lone sleep costs one wait") {
    over_epoll({1, 2}, [](auto&, watch_calls& calls, auto&) {
      sleep_for(1ms);
      const int before = calls.waits.load();
      const auto kernel = vigil::stats().kernel_waits;
      const int sleeps = 20;
      for (int i = 0; i < sleeps; ++i)
        sleep_for(1ms);
      CHECK(calls.waits.load() - before <= sleeps + 2);
      CHECK(vigil::stats().kernel_waits - kernel <= static_cast<std::uint64_t>(sleeps) + 3);
    });
  }
}

TEST_SUITE("the futex watch") {
  TEST_CASE("a lone sleep costs one wait") {
    in_runtime({.workers = {1, 2}}, [] {
      sleep_for(1ms);
      const auto before = vigil::stats();
      const int sleeps = 50;
      for (int i = 0; i < sleeps; ++i)
        sleep_for(1ms);
      const auto after = vigil::stats();
      CHECK(after.kernel_waits - before.kernel_waits <= static_cast<std::uint64_t>(sleeps) + 5);
      CHECK(after.wake_calls - before.wake_calls <= 5);
    });
  }

  TEST_CASE("arming and stopping a timer that is not the earliest wakes nobody") {
    in_runtime({.workers = {2}}, [] {
      auto earliest = vigil::after_func(1h, [] {});
      sleep_for(2ms);  // the other worker sleeps until the hour
      const auto before = vigil::stats();
      for (int i = 0; i < rounds(100'000); ++i)
        vigil::after_func(2h, [] {}).stop();
      const auto after = vigil::stats();
      CHECK(after.wake_calls == before.wake_calls);
      earliest.stop();
    });
  }
}
