// One workload on a given number of workers, whose touches of cache lines are counted
// (count.cpp), for run.py: `scaling_work WORK WORKERS [YIELD_AFTER]`. As
// scaling_time it is the same program without the counter, and writes times instead.
#include "connected.hpp"
#ifdef SCALING_TIME
#include "together/measure.hpp"
#else
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/worker/worker.hpp"
#include "scaling/count.hpp"
#endif

#include <vigil/io/deadline_stream.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/ip/tcp.hpp>

namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using asio::ip::tcp;

// Random durations below a millisecond.
class durations {
 public:
  explicit durations(std::size_t seed) : dice_(static_cast<std::minstd_rand::result_type>(seed)) {}

  std::chrono::nanoseconds operator()() { return std::chrono::nanoseconds(within_(dice_)); }

 private:
  std::minstd_rand dice_;
  std::uniform_int_distribution<std::int64_t> within_{0, 1'000'000};
};

// Starts `fibers` fibers, each with its number and its share of the operations.
template <class F>
void share(std::size_t fibers, std::size_t operations, F f) {
  vigil::group all;
  for (std::size_t i = 0; i < fibers; ++i)
    all.go([&f, i, each = operations / fibers] { f(i, each); });
  all.wait();
}

// A value there and back over two channels; a pair of fibers for each worker.
void hops(std::size_t workers, std::size_t n) {
  share(workers, n, [](std::size_t, std::size_t each) {
    vigil::channel<int> there = vigil::make_channel<int>();
    vigil::channel<int> back = vigil::make_channel<int>();
    auto far = vigil::spawn([&] {
      for (std::size_t i = 0; i < each; ++i)
        back.send(*there.recv());
    });
    for (std::size_t i = 0; i < each; ++i) {
      there.send(1);
      back.recv();
    }
    far.join();
  });
}

// A sleep; sixteen fibers for each worker.
void sleepers(std::size_t workers, std::size_t n) {
  share(16 * workers, n, [](std::size_t number, std::size_t each) {
    durations random(number + 1);
    for (std::size_t i = 0; i < each; ++i)
      vigil::sleep_for(random());
  });
}

// A callback that is armed; every fourth fires, the others are stopped. A fiber for each
// worker.
void timers(std::size_t workers, std::size_t n) {
  share(workers, n, [](std::size_t number, std::size_t each) {
    durations random(number + 1);
    for (std::size_t i = 0; i < each; ++i) {
      vigil::timer t = vigil::after_func(random(), [] {});
      if (i % 4 != 0) t.stop();
      if (i % 16 == 0) vigil::this_fiber::yield();
    }
    vigil::sleep_for(2ms);
  });
}

void grow(std::size_t depth) {
  if (depth == 0) return;
  auto left = vigil::spawn([depth] { grow(depth - 1); });
  auto right = vigil::spawn([depth] { grow(depth - 1); });
  left.join();
  right.join();
}

// A fiber that is started and joined, in trees of 62; a root for each worker.
void trees(std::size_t workers, std::size_t n) {
  share(workers, n, [](std::size_t, std::size_t each) {
    for (std::size_t i = 0; i < each; i += 62)
      grow(5);
  });
}

using stream = vigil::io::deadline_stream<tcp::socket>;

void take_one(stream& s) {
  char byte = 0;
  s.set_deadline(vigil::clock::now() + 10s);
  s.read_some(asio::buffer(&byte, 1));
}

void give_one(stream& s) {
  const char byte = 0;
  s.write_some(asio::buffer(&byte, 1));
}

// One byte there and back over TCP, each wait with a deadline; a pair of fibers for each
// worker.
void tcp_pairs(std::size_t workers, std::size_t n) {
  share(workers, n, [](std::size_t, std::size_t each) {
    auto [a, b] = bench::connected();
    stream near(std::move(a));
    auto far = vigil::spawn([each, s = stream(std::move(b))]() mutable {
      for (std::size_t i = 0; i < each; ++i) {
        take_one(s);
        give_one(s);
      }
    });
    for (std::size_t i = 0; i < each; ++i) {
      give_one(near);
      take_one(near);
    }
    far.join();
  });
}

struct workload {
  void (*run)(std::size_t workers, std::size_t n);
  std::size_t operations;
};

const std::map<std::string, workload> works{
    {"hops", {hops, 200'000}},
    {"sleepers", {sleepers, 100'000}},
    {"timers", {timers, 200'000}},
    {"trees", {trees, 99'200}},  // 62 times 1 600, for up to 64 workers
    {"tcp", {tcp_pairs, 20'000}},
};

#ifdef SCALING_TIME

using together::measure;

void prepare(std::size_t) {}

void print(std::size_t) {}

#else

void prepare(std::size_t yield_after) {
  scaling::yield_after = static_cast<unsigned>(yield_after);
  scaling::on_timer_fiber = [] {
    const vigil::detail::fiber* const f = vigil::detail::current_fiber();
    return f != nullptr && f->role == vigil::detail::fiber_role::timer;
  };
}

template <class F>
void measure(std::size_t, F f) {
  scaling::begin();
  f();
  scaling::end();
}

using scaling::print;

#endif

}  // namespace

int main(int argc, char** argv) {
  const auto found = argc >= 3 ? works.find(argv[1]) : works.end();
  if (found == works.end()) {
    std::fputs("usage: scaling_work WORK WORKERS [YIELD_AFTER]\n  WORK:", stderr);
    for (const auto& [name, work] : works)
      std::fprintf(stderr, " %s", name.c_str());
    std::fputc('\n', stderr);
    return 2;
  }
  const auto number = [&](int i, std::size_t otherwise) {
    return i < argc ? std::strtoul(argv[i], nullptr, 10) : otherwise;
  };
  vigil::options o;
  o.workers = number(2, 1);
  const std::size_t operations = found->second.operations;
  prepare(number(3, 5));
  vigil::run(o, [&] {
    found->second.run(o.workers, operations / 5);  // warms up
    measure(operations, [&] { found->second.run(o.workers, operations); });
  });
  print(operations);
  return 0;
}
