// Channels: plain threads, two runtimes, deadlocks, and many waiters at once.
#include "core/chan/chan_test.hpp"
#include "support/child.hpp"

#include <optional>

using namespace vigil::testing_support;

namespace {

// n senders, each with `each` values in order, and m receivers, by every kind of
// operation, on fibers of two runtimes and on plain threads in turn: each value arrives
// once, and each receiver sees the values of one sender in order.
class traffic {
 public:
  traffic(std::size_t capacity, int senders, int receivers, int each)
      : ch_(make_channel<std::unique_ptr<int>>(capacity)),
        senders_(senders),
        receivers_(receivers),
        each_(each),
        seen_(static_cast<std::size_t>(senders * each)) {}

  void run() {
    std::vector<std::thread> threads;
    const auto on_a_thread = [&](auto f) { threads.emplace_back(f); };
    std::atomic<int> left{senders_};
    const auto send = [&](int s) {
      send_all(s);
      if (left.fetch_sub(1) == 1) ch_.close();
    };
    // The second runtime: half of the fibers.
    on_a_thread([&] {
      vigil::options o;
      o.workers = 2;
      o.deadlock = vigil::on_deadlock::warn;
      vigil::run(o, [&] {
        std::vector<vigil::fiber<>> fibers;
        for (int s = 1; s < senders_; s += 3)
          fibers.push_back(spawn([&send, s] { send(s); }));
        for (int r = 1; r < receivers_; r += 3)
          fibers.push_back(spawn([this, r] { recv_all(r); }));
        for (auto& f : fibers)
          f.join();
      });
    });
    for (int s = 2; s < senders_; s += 3)
      on_a_thread([&send, s] { send(s); });
    for (int r = 2; r < receivers_; r += 3)
      on_a_thread([this, r] { recv_all(r); });
    {
      std::vector<vigil::fiber<>> fibers;
      for (int s = 0; s < senders_; s += 3)
        fibers.push_back(spawn([&send, s] { send(s); }));
      for (int r = 0; r < receivers_; r += 3)
        fibers.push_back(spawn([this, r] { recv_all(r); }));
      for (auto& f : fibers)
        f.join();
    }
    for (auto& t : threads)
      t.join();
    int missing = 0;
    for (const auto& n : seen_)
      missing += n.load() == 1 ? 0 : 1;
    CHECK(missing == 0);
    CHECK(disorder_.load() == 0);
    CHECK(lost_in_hand_.load() == 0);
    CHECK(ch_.size() == 0);
  }

 private:
  void send_all(int s) {
    for (int i = 0; i < each_; ++i) {
      auto value = std::make_unique<int>(s * each_ + i);
      bool sent = false;
      for (int how = (s + i) % 4; !sent; how = (how + 1) % 4) {
        switch (how) {
          case 0:
            ch_.send(std::move(value));
            sent = true;
            break;
          case 1:
            sent = static_cast<bool>(ch_.try_send(std::move(value)));
            break;
          case 2:
            sent = static_cast<bool>(ch_.send_for(std::move(value), 2us));
            break;
          default:
            sent =
                vigil::select(vigil::on_timeout(5us), vigil::on_send(ch_, std::move(value))) == 1;
        }
        if (sent != (value == nullptr)) ++lost_in_hand_;
        if (value == nullptr) sent = true;
      }
    }
  }

  void recv_all(int r) {
    std::vector<int> last(static_cast<std::size_t>(senders_), -1);
    const receiver<std::unique_ptr<int>> from = ch_;
    for (int round = r;; ++round) {
      std::unique_ptr<int> got;
      bool over = false;
      switch (round % 4) {
        case 0: {
          auto v = from.recv();
          v ? void(got = std::move(*v)) : void(over = true);
          break;
        }
        case 1: {
          auto v = from.try_recv();
          v ? void(got = std::move(*v)) : void(over = v.is_closed());
          break;
        }
        case 2: {
          auto v = from.recv_for(2us);
          v ? void(got = std::move(*v)) : void(over = v.is_closed());
          break;
        }
        default:
          vigil::select(vigil::on_recv(from,
                                       [&](std::optional<std::unique_ptr<int>> v) {
                                         v ? void(got = std::move(*v)) : void(over = true);
                                       }),
                        vigil::on_timeout(5us));
      }
      if (over) return;
      if (got == nullptr) continue;
      seen_[static_cast<std::size_t>(*got)].fetch_add(1);
      int& before = last[static_cast<std::size_t>(*got / each_)];
      if (*got % each_ <= before) ++disorder_;
      before = *got % each_;
    }
  }

  const channel<std::unique_ptr<int>> ch_;
  const int senders_;
  const int receivers_;
  const int each_;
  std::vector<std::atomic<int>> seen_;
  std::atomic<int> disorder_{0};
  std::atomic<int> lost_in_hand_{0};
};

}  // namespace

TEST_SUITE("channel") {
  TEST_CASE("plain threads of no runtime use it as fibers do") {
    const auto c = make_channel<int>();
    const auto start = vigil::clock::now();
    CHECK(c.recv_for(1ms).is_timeout());
    CHECK(since(start) >= 1ms);
    CHECK_FALSE(c.try_send(1));
    std::thread other([c] {
      for (int i = 0; i < 1000; ++i)
        c.send(i);
      c.close();
    });
    int next = 0;
    for (const int v : c)
      CHECK(v == next++);
    CHECK(next == 1000);
    other.join();
    // A wait that a close ends, in both directions.
    const auto d = make_channel<int>();
    std::thread waiting([d] { CHECK_FALSE(d.recv().has_value()); });
    const auto e = make_channel<int>();
    std::thread sending([e] { CHECK_THROWS_AS(e.send(1), channel_closed); });
    // It holds however far the two have come.
    d.close();
    e.close();
    waiting.join();
    sending.join();
  }

  TEST_CASE("fibers of two runtimes and plain threads, in any mix, lose and double no value") {
    in_runtime({.workers = {1, 2}}, [] {
      for (const std::size_t n : {0u, 1u, 8u}) {
        traffic(n, 5, 4, many(400)).run();
        traffic(n, 3, 1, many(400)).run();
        traffic(n, 1, 6, many(400)).run();
      }
    });
  }

  TEST_CASE("a fiber that waits hears of a plain thread although its workers sleep") {
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::warn;
    in_runtime({.workers = {1, 2}, .settings = o}, [](vigil::runtime& rt) {
      const auto there = make_channel<int>();
      const auto back = make_channel<int>();
      const auto guard = rt.make_work_guard();
      std::thread outside([=] {
        for (const int v : there)
          back.send(v + 1);
        back.close();
      });
      for (int i = 0; i < many(1000); ++i) {
        there.send(i);
        REQUIRE(back.recv() == i + 1);
      }
      there.close();
      CHECK(back.recv() == std::nullopt);
      outside.join();
    });
  }

  TEST_CASE("waiting for a value that nobody can send is a deadlock, and the dump says why") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      const auto c = make_channel<int>();
                      go([c] { c.send(1); });
                      static_cast<void>(c.recv());
                      static_cast<void>(c.recv());
                    }),
                    vigil::deadlock);
    const child_result r = run_child("child: waits on channels for ever");
    CHECK_MESSAGE(r.succeeded(), r.output);
    CHECK(r.says("vigil: deadlock"));
    CHECK(r.says("parked: channel receive"));
    CHECK(r.says("parked: channel send"));
    CHECK(r.says("parked: channel receive (nil channel)"));
    CHECK(r.says("parked: channel send (nil channel)"));
    CHECK(r.says("parked: select (no cases)"));
    CHECK(r.says("channel_outside_test.cpp:"));
  }

  TEST_CASE("child: waits on channels for ever" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(o,
                               [] {
                                 const auto c = make_channel<int>();
                                 const auto d = make_channel<int>();
                                 go([c] { static_cast<void>(c.recv()); });
                                 go([d] { d.send(1); });
                                 go([] { static_cast<void>(channel<int>().recv()); });
                                 go([] { channel<int>().send(1); });
                                 vigil::select();
                               }),
                    vigil::deadlock);
  }

  TEST_CASE("twenty thousand receivers wait on one channel and each is served") {
    in_virtual([] {
      const auto c = make_channel<int>();
      const int n = rounds(20'000);
      std::int64_t sum = 0;
      for (int i = 0; i < n; ++i)
        go([c, &sum] { sum += c.recv().value(); });
      settle();
      for (int i = 0; i < n; ++i)
        c.send(i);
      settle();
      CHECK(sum == static_cast<std::int64_t>(n) * (n - 1) / 2);
    });
  }
}
