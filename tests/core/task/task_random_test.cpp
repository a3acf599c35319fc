// Random programs of tasks and fibers: no value is lost, none comes twice.
#include "core/task/task_test.hpp"

#include <atomic>
#include <cstdint>

using namespace vigil::testing_support;

namespace {

struct program {
  channel<int> ways[3] = {make_channel<int>(), make_channel<int>(1), make_channel<int>(8)};
  std::atomic<std::int64_t> sent{0};
  std::atomic<std::int64_t> received{0};
};

task<> sends(program& p, std::uint64_t seed, int n) {
  seeded dice(seed);
  for (int i = 0; i < n; ++i) {
    const int value = static_cast<int>(dice.below(1000));
    auto& to = p.ways[dice.below(3)];
    switch (dice.below(3)) {
      case 0:
        co_await co::send(to, value);
        p.sent += value;
        break;
      case 1:
        if (const auto sent =
                co_await co::send_for(to, value, std::chrono::microseconds(dice.below(50))))
          p.sent += value;
        break;
      default:
        co_await co::select(vigil::on_send(p.ways[0], value, [&] { p.sent += value; }),
                            vigil::on_send(p.ways[2], value, [&] { p.sent += value; }),
                            vigil::on_timeout(20us));
    }
  }
}

task<> receives(program& p, std::uint64_t seed, vigil::context end) {
  seeded dice(seed);
  bool over = false;
  const auto take = [&](std::optional<int> v) { p.received += v.value_or(0); };
  while (!over) {
    if (dice.below(2) == 0) {
      auto got =
          co_await co::recv_for(p.ways[dice.below(3)], std::chrono::microseconds(dice.below(50)));
      if (got) p.received += *got;
    } else {
      co_await co::select(vigil::on_recv(p.ways[0], take),
                          vigil::on_recv(p.ways[1], take),
                          vigil::on_recv(p.ways[2], take),
                          vigil::on_done(end, [&] { over = true; }));
    }
  }
  for (auto& way : p.ways) {
    while (auto got = way.try_recv())
      p.received += *got;
  }
}

void run_program(std::uint64_t seed, int n) {
  program p;
  auto [end, stop] = vigil::with_cancel(vigil::background());
  std::vector<task_handle<>> senders;
  std::vector<task_handle<>> receivers;
  for (std::uint64_t i = 0; i < 3; ++i) {
    receivers.push_back(vigil::spawn(receives(p, seed * 10 + i, end)));
    senders.push_back(vigil::spawn(sends(p, seed * 10 + 5 + i, n)));
  }
  // A fiber takes part.
  auto beside = vigil::spawn([&] {
    for (int i = 0; i < n; ++i) {
      if (const auto got = p.ways[1].recv_for(10us)) p.received += *got;
    }
  });
  for (auto& t : senders)
    t.join();
  beside.join();
  stop();
  for (auto& t : receivers)
    t.join();
  CHECK(p.sent.load() == p.received.load());
}

}  // namespace

TEST_SUITE("task: random programs") {
  TEST_CASE("on virtual time, under each seed") {
    for_each_seed(static_cast<std::uint64_t>(rounds(100)),
                  [](std::uint64_t seed) { run_program(seed, 20); });
  }

  TEST_CASE("on real time, with several workers") {
    in_runtime({.workers = {1, 2, 4}}, [] { run_program(7, rounds(2'000)); });
  }

  TEST_CASE("stops that come at any moment leave nothing behind") {
    in_runtime({.workers = {2, 4}}, [] {
      auto ch = make_channel<int>();
      repeat(rounds(2'000), [&](int i) {
        auto a = vigil::spawn([](channel<int> c) -> task<> { co_await co::recv(c); }(ch));
        auto b = vigil::spawn([](channel<int> c) -> task<> {
          static_cast<void>(co_await co::send_for(c, 1, 1ms));
        }(ch));
        if (i % 2 == 0) vigil::this_fiber::yield();
        a.request_stop();
        b.request_stop();
      });
      CHECK_FALSE(ch.try_recv());
      CHECK_FALSE(ch.try_send(1));
    });
  }
}
