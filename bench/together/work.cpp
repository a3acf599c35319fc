// One workload on a given number of workers, for run.py: `together_work WORK WORKERS`
// writes, each for one operation, `cpu` and `elapsed` in nanoseconds, `wakes`, the system
// calls that woke a worker, and `delay`, the nanoseconds without a processor.
#include "connected.hpp"
#include "gate.hpp"
#include "together/measure.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;
using bench::connected;
using bench::wait_at_gate;
using together::nanos;
using together::read_clock;
using vigil::io::use_fiber;

template <class F>
void measure(std::size_t operations, F&& f) {
  together::measure(operations, f, [] { return vigil::runtime::current().stats().wake_calls; });
}

void compute_for(std::chrono::nanoseconds d) {
  const nanos until = read_clock(CLOCK_MONOTONIC) + d.count();
  while (read_clock(CLOCK_MONOTONIC) < until) {
  }
}

// --- sockets: neither end on the main fiber

// One message there and back with a deadline, `n` times.
template <std::size_t Room>
void talk_by_stream(std::size_t n) {
  auto [a, b] = connected();
  vigil::group ends;
  vigil::io::deadline_stream<tcp::socket> near(std::move(a));
  vigil::io::deadline_stream<tcp::socket> far(std::move(b));
  ends.go([&] {
    std::array<char, Room> bytes{};
    for (std::size_t i = 0; i < n; ++i) {
      far.set_deadline(vigil::clock::now() + 10s);
      far.read_some(asio::buffer(bytes));
      far.write_some(asio::buffer(bytes.data(), 1));
    }
  });
  ends.go([&] {
    std::array<char, Room> bytes{};
    for (std::size_t i = 0; i < n; ++i) {
      near.set_deadline(vigil::clock::now() + 10s);
      near.write_some(asio::buffer(bytes.data(), 1));
      near.read_some(asio::buffer(bytes));
    }
  });
  ends.wait();
}

void talk_by_token(std::size_t n) {
  auto [a, b] = connected();
  tcp::socket near(std::move(a));
  tcp::socket far(std::move(b));
  vigil::group ends;
  ends.go([&] {
    char byte = 0;
    for (std::size_t i = 0; i < n; ++i) {
      far.async_read_some(asio::buffer(&byte, 1), use_fiber.within(10s));
      far.async_write_some(asio::buffer(&byte, 1), use_fiber.within(10s));
    }
  });
  ends.go([&] {
    char byte = 0;
    for (std::size_t i = 0; i < n; ++i) {
      near.async_write_some(asio::buffer(&byte, 1), use_fiber.within(10s));
      near.async_read_some(asio::buffer(&byte, 1), use_fiber.within(10s));
    }
  });
  ends.wait();
}

template <class Talk>
void talk(Talk talk_n, std::size_t n) {
  talk_n(n / 10);  // warms up
  measure(n, [&] { talk_n(n); });
}

void many_pairs() {
  constexpr std::size_t pairs = 64;
  constexpr std::size_t each = 2'000;
  measure(pairs * each, [] {
    vigil::group all;
    for (std::size_t i = 0; i < pairs; ++i)
      all.go([] { talk_by_stream<1>(each); });
    all.wait();
  });
}

// --- timers

void callbacks() {
  constexpr std::size_t n = 1'000'000;
  std::atomic<std::size_t> left{n};
  vigil::channel<void> done = vigil::make_channel<void>();
  measure(n, [&] {
    vigil::spawn([&] {
      std::minstd_rand dice(1);
      std::uniform_int_distribution<nanos> within(0, 1'000'000'000);
      for (std::size_t i = 0; i < n; ++i) {
        vigil::after_func(std::chrono::nanoseconds(within(dice)), [&] {
          if (left.fetch_sub(1) == 1) done.close();
        });
      }
    }).join();
    done.recv();
  });
}

void sleep_all(std::size_t n) {
  vigil::group all;
  std::minstd_rand dice(1);
  std::uniform_int_distribution<nanos> within(0, 1'000'000'000);
  for (std::size_t i = 0; i < n; ++i)
    all.go([d = std::chrono::nanoseconds(within(dice))] { vigil::sleep_for(d); });
  all.wait();
}

void sleepers() {
  constexpr std::size_t n = 100'000;
  measure(n, [] { sleep_all(n); });
}

// As many were alive together before: while fibers that sleep are started for the first
// time, the earliest end.
template <std::size_t N>
void sleepers_again() {
  wait_at_gate(N);
  measure(N, [] { sleep_all(N); });
}

void gate() {
  constexpr std::size_t n = 10'000;
  measure(n, [] { wait_at_gate(n); });
}

void gate_again() {
  constexpr std::size_t n = 10'000;
  wait_at_gate(n);
  measure(n, [] { wait_at_gate(n); });
}

// An event now and then: one byte, sent by a fiber that sleeps.
void events(std::chrono::milliseconds apart, std::size_t n) {
  auto [near, far] = connected();
  vigil::io::deadline_stream<tcp::socket> in(std::move(far));
  auto receiver = vigil::spawn([&] {
    char byte = 0;
    for (std::size_t i = 0; i < n; ++i)
      in.read_some(asio::buffer(&byte, 1));
  });
  measure(n, [&, &out = near] {
    vigil::spawn([&] {
      const char byte = 0;
      for (std::size_t i = 0; i < n; ++i) {
        vigil::sleep_for(apart);
        out.write_some(asio::buffer(&byte, 1));
      }
    }).join();
    receiver.join();
  });
}

// Fibers that compute between sleeps, as many as keep one worker busy.
void compute_and_sleep() {
  constexpr std::size_t fibers = 400;
  constexpr std::size_t each = 1'000;
  measure(fibers * each, [] {
    vigil::group all;
    for (std::size_t i = 0; i < fibers; ++i) {
      all.go([] {
        for (std::size_t k = 0; k < each; ++k) {
          vigil::sleep_for(100us);
          compute_for(5us);
        }
      });
    }
    all.wait();
  });
}

// --- computations of 1 ms that become ready at one instant

using instant = vigil::clock::time_point;

// `ready` makes n fibers ready that call its last argument. A pause, in which all workers
// fall asleep, comes before each burst. Two figures are written besides: `busy`, the time
// without the pauses, for one computation; and `second`, from the instant to the first
// computation of a second worker (a burst that one worker did alone counts whole).
template <class Ready>
void share(Ready ready) {
  constexpr std::size_t bursts = 60;
  constexpr std::size_t each = 16;
  nanos busy = 0;
  nanos second = 0;
  measure(bursts * each, [&] {
    for (std::size_t burst = 0; burst < bursts; ++burst) {
      vigil::sleep_for(4ms);
      std::array<std::pair<instant, std::thread::id>, each> begun{};
      std::atomic<std::size_t> next{0};
      vigil::group all;
      const instant from = ready(all, each, [&begun, &next] {
        begun[next.fetch_add(1)] = {vigil::clock::now(), std::this_thread::get_id()};
        compute_for(1ms);
      });
      all.wait();
      const instant end = vigil::clock::now();
      instant other = end;
      for (const auto& [when, thread] : begun) {
        if (thread != begun[0].second) other = std::min(other, when);
      }
      busy += (end - from).count();
      second += (other - from).count();
    }
  });
  std::printf("busy=%.1f second=%.1f\n",
              static_cast<double>(busy) / (bursts * each),
              static_cast<double>(second) / bursts);
}

void share_by_go() {
  share([](vigil::group& all, std::size_t n, auto f) {
    const instant from = vigil::clock::now();
    for (std::size_t i = 0; i < n; ++i)
      all.go(f);
    return from;
  });
}

void share_by_timers() {
  share([](vigil::group& all, std::size_t n, auto f) {
    const instant due = vigil::clock::now() + 2ms;
    for (std::size_t i = 0; i < n; ++i) {
      all.go([due, f] {
        vigil::sleep_until(due);
        f();
      });
    }
    return due;
  });
}

void share_by_close() {
  share([](vigil::group& all, std::size_t n, auto f) {
    vigil::channel<void> opens = vigil::make_channel<void>();
    for (std::size_t i = 0; i < n; ++i) {
      all.go([opens, f]() mutable {
        opens.recv();
        f();
      });
    }
    vigil::sleep_for(2ms);  // all of them wait, and the workers sleep
    const instant from = vigil::clock::now();
    opens.close();
    return from;
  });
}

// --- channels

void hops() {
  constexpr std::size_t n = 300'000;
  vigil::channel<int> there = vigil::make_channel<int>();
  vigil::channel<int> back = vigil::make_channel<int>();
  measure(n, [&] {
    vigil::group ends;
    ends.go([&] {
      for (std::size_t i = 0; i < n; ++i)
        back.send(*there.recv());
    });
    ends.go([&] {
      for (std::size_t i = 0; i < n; ++i) {
        there.send(1);
        back.recv();
      }
    });
    ends.wait();
  });
}

const std::map<std::string, void (*)()> works{
    {"stream", [] { talk([](std::size_t n) { talk_by_stream<1>(n); }, 40'000); }},
    {"stream4k", [] { talk([](std::size_t n) { talk_by_stream<4096>(n); }, 40'000); }},
    {"use_fiber", [] { talk([](std::size_t n) { talk_by_token(n); }, 30'000); }},
    {"pairs", many_pairs},
    {"callbacks", callbacks},
    {"sleepers", sleepers},
    {"sleepers2", sleepers_again<100'000>},
    {"million2", sleepers_again<1'000'000>},
    {"gate", gate},
    {"gate2", gate_again},
    {"event1", [] { events(1ms, 1'000); }},
    {"event10", [] { events(10ms, 200); }},
    {"event100", [] { events(100ms, 30); }},
    {"compute", compute_and_sleep},
    {"hops", hops},
    {"share_go", share_by_go},
    {"share_timers", share_by_timers},
    {"share_close", share_by_close},
};

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc == 3 ? works.find(argv[1]) : works.end();
  if (found == works.end()) {
    std::fputs("usage: together_work WORK WORKERS\n  WORK:", stderr);
    for (const auto& [name, work] : works)
      std::fprintf(stderr, " %s", name.c_str());
    std::fputc('\n', stderr);
    return 2;
  }
  vigil::options o;
  o.workers = static_cast<std::size_t>(std::atoi(argv[2]));
  o.warm_stacks = 1'000'000;  // of million2
  vigil::run(o, found->second);
  return 0;
}
