// A guest in a loop of epoll: the price of a poll that finds nothing, and how late its
// fibers' sleeps end beside a bare timerfd in the same loop.
#include "harness.hpp"

#include <vigil/guest.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

namespace bench {
namespace {

using namespace std::chrono_literals;

// The host.
class loop {
 public:
  loop() : set_(::epoll_create1(0)), timer_(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK)) {
    add(timer_);
  }

  ~loop() {
    ::close(timer_);
    ::close(set_);
  }

  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;

  void add(int fd) {
    epoll_event e{};
    e.events = EPOLLIN;
    e.data.fd = fd;
    ::epoll_ctl(set_, EPOLL_CTL_ADD, fd, &e);
  }

  // Returns the descriptor that is readable.
  int wait() {
    epoll_event e{};
    while (::epoll_wait(set_, &e, 1, -1) != 1) {
    }
    return e.data.fd;
  }

  // Returns how late the timer of the host is.
  nanos sleep_once() {
    const nanos until = now() + millisecond;
    itimerspec when{};
    when.it_value = {until / 1'000'000'000, until % 1'000'000'000};
    ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
    while (wait() != timer_) {
    }
    const nanos late = now() - until;
    std::uint64_t ignored = 0;
    static_cast<void>(::read(timer_, &ignored, sizeof ignored));
    return late;
  }

 private:
  const int set_;
  const int timer_;
};

}  // namespace

void guest(report& out) {
  loop host;
  vigil::guest_runtime g;
  host.add(g.descriptor());
  std::vector<nanos> ours;
  auto go_on = vigil::make_channel<int>(1);
  g.start([&] {
    while (go_on.recv()) {
      const nanos until = now() + millisecond;
      vigil::sleep_until(vigil::clock::time_point(std::chrono::nanoseconds(until)));
      ours.push_back(now() - until);
    }
  });
  g.poll();

  constexpr std::size_t polls = 100'000;
  out.add("poll that finds nothing",
          median_of(5,
                    [&] {
                      const nanos start = now();
                      for (std::size_t i = 0; i < polls; ++i)
                        g.poll();
                      return static_cast<double>(now() - start) / polls;
                    }),
          "ns");

  const std::size_t n = out.is_asked_for() ? 2'000 : 200;
  std::vector<nanos> bare;
  std::uint64_t calls = 0;
  for (std::size_t i = 0; i < n; ++i) {
    bare.push_back(host.sleep_once());
    go_on.send(1);
    const std::size_t before = ours.size();
    while (ours.size() == before) {
      host.wait();
      g.poll();
      ++calls;
    }
  }
  for (const auto& [label, q] : {std::pair{"p50", 0.5}, {"p99", 0.99}}) {
    out.compare(std::string("sleep of 1 ms, lateness, ") + label,
                quantile(ours, q) / 1e3,
                "us",
                quantile(bare, q) / 1e3,
                "bare timerfd");
  }
  out.add("polls per sleep and its start", static_cast<double>(calls) / static_cast<double>(n), "");
  g.runtime().request_stop();
  while (g.poll())
    host.wait();
}

}  // namespace bench
