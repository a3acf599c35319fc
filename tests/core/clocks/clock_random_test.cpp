// Random programs on virtual time, beside a model: a timer on a clock ends at the first
// instant at which that clock reads its time.
#include "core/clocks/clocks_test.hpp"

#include <algorithm>

namespace {

using namespace vigil::testing_support;

// One timer, and what the model expects of it.
struct expected {
  bool on_wall = true;
  nanoseconds due{};  // on its own clock
  bool pending = true;
  bool ended = false;  // told by the program
  nanoseconds read{};  // the clock, when it ended
};

class random_clocks {
 public:
  explicit random_clocks(std::uint64_t seed) : dice_(seed) {}

  void run() {
    for (int i = 0; i < timers; ++i)
      start(static_cast<std::size_t>(i));
    for (int i = 0; i < 60; ++i) {
      act();
      settle();
      check();
    }
    vigil::testing::suspend_for(1000h);
    step(1000h);
    vigil::sleep_for(1s);
    for (expected& t : all_)
      if (t.pending) CHECK(t.ended);
    for (auto& f : fibers_)
      f.join();
  }

 private:
  static constexpr int timers = 24;

  static nanoseconds now(bool on_wall) {
    return on_wall ? wall_clock::now().time_since_epoch() : boot_clock::now().time_since_epoch();
  }

  nanoseconds some_time() { return nanoseconds(1s) * (1 + dice_.below(200)); }

  // Sleeps, callbacks and channels in turn, on both clocks.
  void start(std::size_t i) {
    all_[i].on_wall = dice_.below(2) == 0;
    all_[i].due = now(all_[i].on_wall) + some_time();
    expected& t = all_[i];
    const auto ends = [&t] {
      t.ended = true;
      t.read = now(t.on_wall);
    };
    const wall_time on_wall(t.due);
    const boot_time on_boot(t.due);
    switch (i % 3) {
      case 0:
        fibers_.push_back(vigil::spawn([&t, on_wall, on_boot, ends] {
          t.on_wall ? vigil::wall::sleep_until(on_wall) : vigil::boot::sleep_until(on_boot);
          ends();
        }));
        break;
      case 1:
        if (t.on_wall) {
          wall_[i] = vigil::wall::after_func_at(on_wall, ends);
        } else {
          boot_[i] = vigil::boot::after_func_at(on_boot, ends);
        }
        break;
      default:
        fibers_.push_back(vigil::spawn([&t, on_wall, on_boot, ends] {
          if (t.on_wall) {
            CHECK(vigil::wall::timer(on_wall).channel().recv() == on_wall);
          } else {
            CHECK(vigil::boot::timer(on_boot).channel().recv() == on_boot);
          }
          ends();
        }));
    }
  }

  void step(nanoseconds by) { vigil::testing::step_wall(by); }

  // Moves time, or one timer that can be moved.
  void act() {
    switch (dice_.below(6)) {
      case 0:
        step(some_time() / 4);
        break;
      case 1:
        step(-some_time() / 4);
        break;
      case 2:
        vigil::testing::suspend_for(some_time() / 8);
        break;
      case 3:
        // Steps that cancel out, before anything else runs.
        step(100h);
        step(-100h);
        break;
      case 4:
        move(1 + 3 * dice_.below(timers / 3));
        break;
      default:
        sleep(some_time() / 8);
    }
  }

  // In small pieces, so that an end is seen at its own instant.
  void sleep(nanoseconds length) {
    for (; length > 0ns; length -= 1s) {
      vigil::sleep_for(std::min<nanoseconds>(length, 1s));
      settle();
      check();
    }
  }

  void move(std::size_t i) {
    expected& t = all_[i];
    const bool stops = dice_.below(2) == 0;
    const nanoseconds due = now(t.on_wall) + some_time();
    bool was_pending = false;
    if (t.on_wall) {
      was_pending = stops ? wall_[i].stop() : wall_[i].reset(wall_time(due));
    } else {
      was_pending = stops ? boot_[i].stop() : boot_[i].reset(boot_time(due));
    }
    CHECK(was_pending == (t.pending && !t.ended));
    t.pending = !stops;
    t.ended = false;
    t.due = due;
  }

  void check() {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const expected& t = all_[i];
      if (t.ended) {
        CHECK(t.pending);
        CHECK(t.read >= t.due);
      } else if (t.pending) {
        CHECK(now(t.on_wall) < t.due);
      }
    }
  }

  seeded dice_;
  std::vector<expected> all_ = std::vector<expected>(timers);
  std::vector<vigil::wall::timer> wall_ = std::vector<vigil::wall::timer>(timers);
  std::vector<vigil::boot::timer> boot_ = std::vector<vigil::boot::timer>(timers);
  std::vector<vigil::fiber<>> fibers_;
};

}  // namespace

TEST_SUITE("random steps") {
  TEST_CASE("each timer ends when its own clock reads its time, whatever the steps") {
    for_each_seed(static_cast<std::uint64_t>(rounds(200)),
                  [](std::uint64_t seed) { random_clocks(seed).run(); });
  }
}
