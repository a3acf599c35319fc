// Random programs that mix contexts, a group, locks, counters, a once and a timeout list
// on virtual time. Each actor acts at random and checks the result of each call: a call
// gives up at its deadline, a cancelled call ends when its context does, a lock has one
// owner, an entry expires a duration after its last touch. At the end the counts add up
// and no fiber is left. A seed replays its program.
#include "core/sync/sync_test.hpp"

#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>

using namespace vigil::testing_support;

namespace {

using instant = vigil::clock::time_point;
using std::chrono::nanoseconds;
using vigil::context;

constexpr instant never = instant::max();

instant now() {
  return vigil::clock::now();
}

struct failure {};

struct connection {
  vigil::timeout_list::entry idle;
  std::optional<instant> last;  // its last touch, as the model knows it
};

class mixed_program {
 public:
  explicit mixed_program(std::uint64_t seed)
      : dice_(seed),
        actors_(2 + dice_.below(6)),
        duration_(after()),
        idle_(duration_, [this](auto& e) { expire(e); }) {}

  void run() {
    // Ends the waits for something that nobody brings.
    root_end_ = any_time() + (dice_.below(3) == 0 ? 0s : 1s);
    root_ = vigil::with_deadline(vigil::background(), root_end_);
    vigil::group g(root_.ctx, {.limit = dice_.below(3) == 0 ? 1 + dice_.below(actors_) : 0});
    connections_.resize(actors_);
    started_.emplace(dice_.below(2) == 0 ? 1 : 2);
    for (std::uint32_t i = 0; i < actors_; ++i) {
      count_.add();
      // Its slot may never come: a dropped function is done as well.
      g.go([this, i, one = done_at_end(*this)](const context& ctx) { act(ctx, connections_[i]); });
    }
    started_by_ = now();
    auto all_done = vigil::spawn([this] {
      count_.wait();
      return now();
    });
    result is = result::none;
    try {
      g.wait();
    } catch (const failure&) {
      is = result::failed;
    } catch (const vigil::cancelled&) {
      is = result::cancelled;
    }
    // A function that was not started is a reason for `cancelled`, too.
    CHECK((is == error_ || (begun_ < actors_ && is == result::cancelled)));
    CHECK(begun_ == ended_);
    CHECK(all_done.join() == std::max(started_by_, last_done_));
    CHECK(count_.wait_for(0s));
    CHECK(count_.count() == 0);
    CHECK(opened_ <= 1);
    CHECK(once_.is_done() == (opened_ == 1));
    CHECK(m_.try_lock());
    CHECK(owners_ == 0);
    CHECK(in_store_ == brought_ - taken_);
    m_.unlock();
    changed_.notify_all();
    const auto linked = [this] {
      return static_cast<std::size_t>(std::count_if(
          connections_.begin(), connections_.end(), [](auto& c) { return c.last.has_value(); }));
    };
    CHECK(idle_.size() == linked());
    vigil::sleep_for(2 * duration_);
    CHECK(linked() == 0);
    CHECK(idle_.size() == 0);
  }

 private:
  enum class result : std::uint8_t { none, failed, cancelled };

  // Counts down when it is destroyed, whether its function has run or not.
  class done_at_end {
   public:
    explicit done_at_end(mixed_program& of) : of_(&of) {}

    done_at_end(done_at_end&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {}

    done_at_end& operator=(done_at_end&&) = delete;

    ~done_at_end() {
      if (of_ == nullptr) return;
      of_->last_done_ = now();
      of_->count_.done();
    }

   private:
    mixed_program* of_;
  };

  // --- instants: no two that are drawn are equal

  nanoseconds after() { return dice_.below(40) * 1ms + (dice_.below(1'000) + 1) * 1us; }

  instant any_time() {
    const auto passed = std::chrono::ceil<std::chrono::microseconds>(now() - start_);
    return start_ + passed + dice_.below(30'000) * 1us + ++instants_ * 1ns;
  }

  // --- an actor

  void act(const context& ctx, connection& mine) {
    begun_ += 1;
    try {
      started_->count_down(std::min<std::int64_t>(1, started_->count()));
      const instant until = any_time();
      bool open = false;
      ends_by(ctx, never, [&] { open = started_->wait_for(until - now()); });
      CHECK((open ? now() < until : now() == until));
      for (std::uint32_t left = 3 + dice_.below(10); left != 0; --left) {
        if (dice_.below(3) != 0) {
          deed(ctx, never, mine);
          continue;
        }
        const instant own_end = any_time();
        const auto own = vigil::with_deadline(ctx, own_end);
        try {
          deed(own.ctx, own_end, mine);
        } catch (const vigil::stopped&) {
          throw;
        } catch (const vigil::cancelled&) {
          if (ctx.is_done()) throw;
        }
      }
    } catch (const failure&) {
      leave(result::failed);
      throw;
    } catch (const vigil::stopped&) {
      ended_ += 1;  // no error
      throw;
    } catch (const vigil::cancelled&) {
      leave(result::cancelled);
      throw;
    }
    ended_ += 1;
  }

  // Leaves with an error; the first error asks the others to stop.
  void leave(result with) {
    ended_ += 1;
    if (error_ != result::none) return;
    error_ = with;
    group_end_ = std::min(group_end_, now());
    stop_at_ = now();
  }

  instant end_of(instant own_end) const { return std::min({own_end, root_end_, group_end_}); }

  // Makes a waiting call under ctx, which was made for it and lives until own_end, or is
  // the group's. A cancelled call throws at that end, or at once if the end has passed.
  // `exact` is false if the call takes a lock back first.
  template <class F>
  void ends_by(const context& ctx, instant own_end, F call, bool exact = true) {
    const instant from = now();
    const auto has_come = [&](instant t) {
      const instant due = std::max(from, t);
      return exact ? now() == due : now() >= due;
    };
    try {
      call();
    } catch (const vigil::stopped&) {
      // The end of the context is an error of a function that was not started because of
      // it.
      CHECK((has_come(stop_at_) || (started_by_ >= root_end_ && has_come(root_end_))));
      throw;
    } catch (const vigil::cancelled&) {
      CHECK(ctx.is_done());
      CHECK(has_come(end_of(own_end)));
      throw;
    }
  }

  // Makes a waiting call under ctx, as above: it does not outlast it.
  template <class F>
  void under(const context& ctx, instant own_end, F call) {
    const instant from = now();
    ends_by(ctx, own_end, call);
    CHECK((now() == from || now() <= end_of(own_end)));
  }

  void deed(const context& ctx, instant own_end, connection& mine) {
    switch (dice_.below(12)) {
      case 0: {
        const instant until = any_time();
        under(ctx, own_end, [&] { vigil::sleep_until(until, ctx); });
        CHECK(now() == until);
        break;
      }
      case 1:
        m_.lock();
        own(ctx, own_end);
        break;
      case 2: {
        const instant until = any_time();
        if (m_.try_lock_for(until - now())) {
          CHECK(now() < until);
          own(ctx, own_end);
        } else {
          CHECK(now() == until);
          CHECK(is_taken());
        }
        break;
      }
      case 3:
        try {
          under(ctx, own_end, [&] { m_.lock(ctx); });
        } catch (...) {
          CHECK(is_taken());
          throw;
        }
        own(ctx, own_end);
        break;
      case 4:
        if (m_.try_lock()) own(ctx, own_end);
        break;
      case 5:
        take_one(ctx, own_end);
        break;
      case 6:
      case 7:
        bring();
        break;
      case 8:
        open(ctx, own_end);
        break;
      case 9:
        use(mine);
        break;
      case 10: {
        const instant until = any_time();
        bool all_done = false;
        ends_by(ctx, own_end, [&] { all_done = count_.wait_for(until - now()); });
        CHECK(!all_done);  // not this actor
        CHECK(now() == until);
        break;
      }
      default:
        if (dice_.below(8) == 0) throw failure{};
        if (dice_.below(8) == 0) {
          root_end_ = std::min(root_end_, now());
          root_.cancel();
        }
    }
  }

  void open(const context& ctx, instant own_end) {
    const instant from = now();
    bool mine = false;
    try {
      under(ctx, own_end, [&] {
        once_.call(ctx, [&] {
          mine = true;
          const one_of o(openers_, opener_left_);
          CHECK(opened_ == 0);
          vigil::sleep_until(any_time(), ctx);
          opened_ += 1;
        });
      });
    } catch (...) {
      CHECK((mine || is_there(openers_, opener_left_)));
      throw;
    }
    CHECK(opened_ == 1);
    CHECK(now() == std::max(from, opener_left_));
  }

  // Explains a wait in vain: there was a reason to wait, up to this instant.
  static bool is_there(int number, instant left) { return number == 1 || left == now(); }

  bool is_taken() const { return is_there(owners_, owner_left_); }

  // Caller: holds m_.
  void own(const context& ctx, instant own_end) {
    const std::lock_guard guard(m_, std::adopt_lock);
    const one_of o(owners_, owner_left_);
    if (dice_.below(4) == 0) return;
    under(ctx, own_end, [&] { vigil::sleep_until(any_time(), ctx); });
  }

  // Checks that it is the only one there.
  class one_of {
   public:
    one_of(int& number, instant& left) : number_(number), left_(left) { CHECK(++number_ == 1); }

    one_of(const one_of&) = delete;
    one_of& operator=(const one_of&) = delete;

    ~one_of() {
      --number_;
      left_ = now();
    }

   private:
    int& number_;
    instant& left_;
  };

  void take_one(const context& ctx, instant own_end) {
    std::unique_lock lock(m_);
    const auto is_in_store = [this] { return in_store_ > 0; };
    bool have = true;
    switch (dice_.below(3)) {
      case 0:
        ends_by(
            ctx, own_end, [&] { changed_.wait(lock, ctx, is_in_store); }, false);
        break;
      case 1: {
        const instant until = any_time();
        ends_by(
            ctx,
            own_end,
            [&] { have = changed_.wait_for(lock, until - now(), is_in_store); },
            false);
        if (!have) CHECK(now() >= until);
        break;
      }
      default: {
        const instant until = any_time();
        const auto notified = [&] { have = changed_.wait_for(lock, until - now()); };
        ends_by(ctx, own_end, notified, false);
        if (!have) CHECK(now() >= until);
        have = is_in_store();
      }
    }
    const one_of o(owners_, owner_left_);
    if (!have) return;
    CHECK(is_in_store());
    in_store_ -= 1;
    taken_ += 1;
  }

  void bring() {
    const std::lock_guard guard(m_);
    const one_of o(owners_, owner_left_);
    in_store_ += 1;
    brought_ += 1;
    dice_.below(4) == 0 ? changed_.notify_all() : changed_.notify_one();
  }

  void use(connection& mine) {
    switch (dice_.below(4)) {
      case 0:
        CHECK(vigil::timeout_list::remove(mine.idle) == mine.last.has_value());
        mine.last.reset();
        break;
      case 1:
        CHECK(mine.idle.touch() == mine.last.has_value());
        if (mine.last) mine.last = now();
        break;
      default:
        idle_.add(mine.idle);
        mine.last = now();
    }
  }

  void expire(vigil::timeout_list::entry& e) {
    connection& c = vigil::owner_of<&connection::idle>(e);
    CHECK(c.last.has_value());
    if (c.last) CHECK(now() == *c.last + duration_);
    c.last.reset();
  }

  seeded dice_;
  const instant start_ = now();
  int instants_ = 0;
  const std::uint32_t actors_;

  vigil::cancellable root_;
  instant root_end_ = never;
  instant group_end_ = never;
  instant stop_at_ = never;
  instant started_by_ = never;  // by this time all actors have been started
  result error_ = result::none;

  vigil::mutex m_;
  int owners_ = 0;
  instant owner_left_;
  vigil::condition_variable changed_;  // in_store_
  int in_store_ = 0;
  int brought_ = 0;
  int taken_ = 0;
  vigil::wait_group count_;
  instant last_done_;
  std::optional<vigil::latch> started_;
  vigil::once once_;
  int opened_ = 0;
  int openers_ = 0;
  instant opener_left_;
  std::uint32_t begun_ = 0;
  std::uint32_t ended_ = 0;
  std::deque<connection> connections_;
  const nanoseconds duration_;
  vigil::timeout_list idle_;
};

}  // namespace

TEST_SUITE("random programs") {
  // Go: all of it together with contexts, a group and a timeout list.
  TEST_CASE("of all parts together: each call ends when it may, and no fiber is left") {
    const int seeds = rounds(3000) * (std::getenv("VIGIL_LONG") != nullptr ? 20 : 1);
    for_each_seed(static_cast<std::uint64_t>(seeds),
                  [](std::uint64_t seed) { mixed_program(seed).run(); });
  }
}
