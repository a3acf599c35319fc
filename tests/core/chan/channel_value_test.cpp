// Channels: the lifetimes of values and handles.
#include "core/chan/chan_test.hpp"

#include <array>

using namespace vigil::testing_support;

namespace {

// A move-only value that records what was done with it.
struct traced {
  struct counts {
    int alive = 0;
    int moves = 0;
  };

  traced(counts& c, int v) : of(&c), value(v) { ++of->alive; }

  traced(traced&& other) noexcept : of(other.of), value(std::exchange(other.value, -1)) {
    ++of->alive;
    ++of->moves;
  }

  traced& operator=(traced&& other) noexcept {
    value = std::exchange(other.value, -1);
    ++of->moves;
    return *this;
  }

  ~traced() { --of->alive; }

  counts* of;
  int value;  // -1: moved from
};

struct alignas(32) wide {
  std::array<std::uint64_t, 24> words{};
};

// Refers to the value sent, in the manner of an interface value.
struct shape {
  virtual ~shape() = default;
  virtual int corners() const = 0;
};

struct square final : shape {
  int corners() const override { return 4; }
};

}  // namespace

TEST_SUITE("channel") {
  TEST_CASE("a value is moved straight from hand to hand and destroyed as often as it was made") {
    in_virtual([] {
      traced::counts n;
      {
        const auto c = make_channel<traced>();
        auto f = spawn([&] {
          auto got = c.recv();
          return got->value;
        });
        settle();
        traced value(n, 7);
        n.moves = 0;
        c.send(std::move(value));
        CHECK(value.value == -1);
        CHECK(n.moves == 1);  // into the receiver's own room
        CHECK(f.join() == 7);
      }
      CHECK(n.alive == 0);
      {
        const auto c = make_channel<traced>(2);
        c.send(traced(n, 1));
        c.send(traced(n, 2));
        CHECK(n.alive == 2);
        auto f = spawn([&] { c.send(traced(n, 3)); });
        settle();
        CHECK(n.alive == 3);
        CHECK(c.recv()->value == 1);
        f.join();
        CHECK(c.recv()->value == 2);
        auto last = c.recv();
        CHECK(last->value == 3);
        CHECK(n.alive == 1);
      }
      CHECK(n.alive == 0);
    });
  }

  TEST_CASE("values left in the buffer are destroyed with the last handle, of whichever kind") {
    in_virtual([] {
      traced::counts n;
      auto c = make_channel<traced>(3);
      for (int round = 0; round < 2; ++round) {  // so that the ring has turned
        for (int i = 0; i < 3; ++i)
          c.send(traced(n, i));
        for (int i = 0; i < 2 - round; ++i)
          static_cast<void>(c.recv());
        if (round == 0) static_cast<void>(c.recv());
      }
      CHECK(n.alive == 2);
      receiver<traced> out = c;
      sender<traced> in = c;
      c = {};
      CHECK(n.alive == 2);
      out = {};
      CHECK(n.alive == 2);
      in = {};
      CHECK(n.alive == 0);
    });
  }

  TEST_CASE("values keep their alignment and their content at any size") {
    in_virtual([] {
      const auto c = make_channel<wide>(3);
      for (std::uint64_t i = 0; i < 3; ++i) {
        wide w;
        w.words.fill(i);
        c.send(w);
      }
      for (std::uint64_t i = 0; i < 3; ++i) {
        const auto got = c.recv();
        CHECK(reinterpret_cast<std::uintptr_t>(&*got) % alignof(wide) == 0);
        CHECK(got->words.front() == i);
        CHECK(got->words.back() == i);
      }
    });
  }

  // Go: TestChanSendInterface.
  TEST_CASE("polymorphic values go through as they are") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<shape>>(1);
      c.send(std::make_unique<square>());
      CHECK((*c.recv())->corners() == 4);
      const auto shared = make_channel<std::shared_ptr<const shape>>(2);
      const auto one = std::make_shared<square>();
      shared.send(one);
      CHECK(shared.try_send(one));
      CHECK(one.use_count() == 3);
      static_cast<void>(shared.recv());
      CHECK(one.use_count() == 2);
    });
  }

  TEST_CASE("an lvalue is copied and stays as it was") {
    in_virtual([] {
      const auto c = make_channel<std::string>(4);
      std::string text = "a text that is too long for the string itself to hold";
      const std::string same = text;
      c.send(text);
      CHECK(c.try_send(text));
      CHECK(c.send_for(text, 1s));
      CHECK(c.send_until(same, vigil::clock::now()));
      CHECK(text == same);
      for (int i = 0; i < 4; ++i)
        CHECK(c.recv() == same);
    });
  }

  // --- handles

  TEST_CASE("copies name the same channel and a moved-from handle names none") {
    in_virtual([] {
      auto a = make_channel<int>(1);
      const auto b = a;
      CHECK(a == b);
      CHECK_FALSE(a == make_channel<int>(1));
      a.send(1);
      CHECK(b.recv() == 1);
      const auto moved = std::move(a);
      CHECK(moved == b);
      CHECK_FALSE(a);  // NOLINT(bugprone-use-after-move)
      CHECK(moved);
      const receiver<int> out = b;
      CHECK(out == receiver<int>(moved));
      CHECK(channel<int>() == channel<int>());
      a = b;
      CHECK(a == b);
    });
  }

  TEST_CASE("it lives on while somebody is parked on it, though every handle is gone") {
    in_virtual([] {
      auto c = make_channel<int>();
      auto f = spawn([&c] { static_cast<void>(c.recv()); });
      auto g = spawn([&c] { return c.recv_for(1h).is_timeout(); });
      auto h = spawn([&c] { return vigil::select(vigil::on_recv(c), vigil::on_timeout(1h)); });
      settle();
      c = {};
      // The memory that is taken now is not what they wait on.
      const auto others = std::vector<channel<int>>(50, make_channel<int>());
      f.request_stop();
      CHECK_THROWS_AS(f.join(), vigil::cancelled);
      CHECK(g.join());
      CHECK(h.join() == 1);
    });
  }

  // Go: chan/select3.go: nil, plain.
  TEST_CASE("a nil one makes everybody wait for ever and refuses every try") {
    in_virtual([] {
      const channel<int> nil;
      const auto start = vigil::clock::now();
      CHECK_FALSE(nil);
      CHECK(nil.size() == 0);
      CHECK(nil.capacity() == 0);
      CHECK(waits([&] { nil.send(1); }));
      CHECK(waits([&] { static_cast<void>(nil.recv()); }));
      CHECK(waits([&] {
        for (const int v : nil)
          CHECK(v != v);
      }));
      CHECK(nil.try_send(1).status() == channel_status::not_ready);
      CHECK(nil.try_recv().status() == channel_status::not_ready);
      CHECK(since(start) == 0s);
      CHECK(nil.send_for(1, 1s).is_timeout());
      CHECK(since(start) == 1s);
      CHECK(nil.recv_until(start + 2s).is_timeout());
      CHECK(since(start) == 2s);
      CHECK(nil.recv_for(0s).is_timeout());
      CHECK(receiver<int>().try_recv().status() == channel_status::not_ready);
      CHECK(sender<int>().try_send(1).status() == channel_status::not_ready);
      CHECK(channel<void>().recv_for(1s).is_timeout());
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a range over it ends with the close and takes each value by move") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(2);
      go([c] {
        for (int i = 0; i < 5; ++i)
          c.send(std::make_unique<int>(i));
        c.close();
      });
      std::vector<int> got;
      for (auto& p : c) {
        const std::unique_ptr<int> mine = std::move(p);
        got.push_back(*mine);
      }
      CHECK(got == std::vector{0, 1, 2, 3, 4});
      // Leaving the loop early takes no further value.
      const auto d = make_channel<int>(3);
      for (int i = 0; i < 3; ++i)
        d.send(i);
      for (const int v : receiver<int>(d)) {
        if (v == 1) break;
      }
      CHECK(d.recv() == 2);
    });
  }
}
