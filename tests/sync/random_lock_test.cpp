// Random programs over mutex, condition_variable, wait_group, latch and once on
// virtual time, beside models that know no fiber and no lock. At each step somebody
// asks, is let go, is stopped, a context is cancelled, or time passes; then each
// request has ended as the model says, at exactly that instant. No two deadlines
// are equal and none is at a step. A seed replays its program.
#include "sync_test.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::testing::settle;

namespace {

using instant = vigil::clock::time_point;
using std::chrono::nanoseconds;

constexpr instant never = instant::max();

instant now() {
  return vigil::clock::now();
}

enum class result : std::uint8_t { waits, done, late, cancelled, stopped, failed };

struct failure {};

struct scope {
  vigil::cancellable made;
  instant deadline;
  bool is_done = false;
};

struct request {
  std::optional<nanoseconds> timeout;
  scope* under = nullptr;
  instant asked_at;
  instant deadline = never;  // of its wait, once that has begun
  // condition: how its wait has ended, while the lock is not back; waits: it comes.
  result before_lock = result::waits;
  instant until;       // once: how long its function takes
  bool fails = false;  // once: how it ends
  result predicted = result::waits;
  instant predicted_at;
  result is = result::waits;
  instant at;
  std::optional<vigil::fiber<>> who;
};

class program {
 public:
  explicit program(std::uint64_t seed) : dice_(seed) {}

  program(const program&) = delete;
  program& operator=(const program&) = delete;
  virtual ~program() = default;

  // What was wrong; empty: nothing.
  std::string play() {
    for (int i = 0; i < 40 && wrong_.empty(); ++i)
      step();
    for (int i = 0; i < 200 && wrong_.empty() && somebody_waits(); ++i) {
      let_one_go();
      pass_time();
      check();
    }
    if (wrong_.empty() && somebody_waits()) wrong_ = "somebody waits for ever";
    if (!wrong_.empty()) {
      for (request& r : all_)
        r.who->request_stop();
      for (std::size_t i = 0; i <= all_.size(); ++i)
        let_one_go();
    }
    for (request& r : all_)
      r.who->join();
    return wrong_;
  }

 protected:
  // The real thing, on a fiber of its own. False: the timeout has passed.
  virtual bool call(request& r) = 0;
  // What the model does when r asks.
  virtual void asked(request& r) = 0;
  // What only this subject does: both the real thing and the model.
  virtual void deed() = 0;
  virtual void let_one_go() = 0;

  virtual bool has_timeouts() const { return true; }

  virtual void stop(request& r) { leave(r, result::stopped, now()); }

  // r, who has waited, waits no longer. Caller: it is in no queue.
  virtual void ended(request& r, result how, instant t) { end(r, how, t); }

  // Of other things than those who wait.
  virtual instant next() const { return never; }

  virtual void happen(instant) {}

  static void end(request& r, result how, instant t) {
    r.predicted = how;
    r.predicted_at = t;
  }

  void leave(request& r, result how, instant t) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), &r));
    ended(r, how, t);
  }

  void serve_first() { leave(*queue_.front(), result::done, now()); }

  // r has to wait, unless it may not.
  void wait(request& r) {
    if (r.under != nullptr && r.under->is_done) return ended(r, result::cancelled, now());
    if (r.timeout && *r.timeout <= 0ns) return ended(r, result::late, now());
    if (r.timeout) r.deadline = now() + *r.timeout;
    queue_.push_back(&r);
  }

  // Steps are at whole microseconds; this is at none.
  nanoseconds any_time() { return dice_.below(40'000) * 1us + ++instants_ * 1ns; }

  void expect(bool is, bool predicted, const char* what) {
    if (is != predicted && wrong_.empty())
      wrong_ = std::string(what) + " is " + (is ? "true" : "false");
  }

  template <class F>
  void refuses(F f) {
    try {
      f();
      if (wrong_.empty()) wrong_ = "it has not refused";
    } catch (const std::logic_error&) {
    }
  }

  seeded dice_;
  std::deque<request*> queue_;  // those whose wait a deadline, a context or a stop may end
  std::string wrong_;

 private:
  void step() {
    const std::uint32_t kind = dice_.below(12);
    if (kind < 4) {
      ask();
    } else if (kind < 8) {
      deed();
    } else if (kind == 8) {
      if (!queue_.empty()) {
        request& r = *queue_[dice_.below(static_cast<std::uint32_t>(queue_.size()))];
        r.who->request_stop();
        settle();
        stop(r);
      }
    } else if (kind == 9) {
      if (!scopes_.empty()) {
        scope& s = scopes_[dice_.below(static_cast<std::uint32_t>(scopes_.size()))];
        s.made.cancel();
        settle();
        done(s, now());
      }
    } else {
      pass_time();
    }
    settle();
    check();
  }

  void ask() {
    request& r = all_.emplace_back();
    r.asked_at = now();
    r.until = now() + any_time();
    r.fails = dice_.below(3) != 0;
    switch (dice_.below(3)) {
      case 0:
        if (has_timeouts()) r.timeout = dice_.below(6) == 0 ? -1ns * dice_.below(2) : any_time();
        break;
      case 1:
        r.under = &any_scope();
        break;
      default:
        break;
    }
    r.who.emplace(vigil::spawn([&r, this] {
      result how = result::waits;
      try {
        how = call(r) ? result::done : result::late;
      } catch (const vigil::stopped&) {
        how = result::stopped;
      } catch (const vigil::cancelled&) {
        how = result::cancelled;
      } catch (const failure&) {
        how = result::failed;
      }
      if (r.is != result::waits && wrong_.empty()) wrong_ = "one has ended twice";
      r.is = how;
      r.at = now();
    }));
    settle();
    asked(r);
  }

  scope& any_scope() {
    if (!scopes_.empty() && dice_.below(2) == 0)
      return scopes_[dice_.below(static_cast<std::uint32_t>(scopes_.size()))];
    const instant deadline = dice_.below(2) == 0 ? now() + any_time() : never;
    return scopes_.emplace_back(
        scope{vigil::with_deadline(vigil::background(), deadline), deadline});
  }

  void done(scope& s, instant t) {
    if (s.is_done) return;
    s.is_done = true;
    const std::deque<request*> waiting = queue_;
    for (request* const r : waiting)
      if (r->under == &s) leave(*r, result::cancelled, t);
  }

  void pass_time() {
    vigil::sleep_for(dice_.below(20'000) * 1us);
    settle();
    for (;;) {
      instant first = next();
      request* late = nullptr;
      scope* over = nullptr;
      for (request* const r : queue_)
        if (r->deadline < first) first = (late = r)->deadline;
      for (scope& s : scopes_)
        if (!s.is_done && s.deadline < first) first = (over = &s)->deadline;
      if (first > now()) return;
      if (over != nullptr) {
        done(*over, first);
      } else if (late != nullptr) {
        leave(*late, result::late, first);
      } else {
        happen(first);
      }
    }
  }

  bool somebody_waits() const {
    return std::any_of(
        all_.begin(), all_.end(), [](const request& r) { return r.predicted == result::waits; });
  }

  void check() {
    for (std::size_t i = 0; i < all_.size() && wrong_.empty(); ++i) {
      const request& r = all_[i];
      if (r.is != r.predicted) {
        wrong_ = "request " + std::to_string(i) + " is " + std::to_string(static_cast<int>(r.is)) +
                 ", not " + std::to_string(static_cast<int>(r.predicted));
      } else if (r.is != result::waits && r.at != r.predicted_at) {
        wrong_ = "request " + std::to_string(i) + " has ended " +
                 std::to_string((r.at - r.predicted_at).count()) + " ns late";
      }
    }
  }

  std::deque<request> all_;
  std::deque<scope> scopes_;
  int instants_ = 0;
};

// Who has it keeps it until the program lets go of it: any fiber may.
class mutex_program final : public program {
 public:
  using program::program;

 private:
  bool call(request& r) override {
    if (r.timeout) return m_.try_lock_for(*r.timeout);
    r.under != nullptr ? m_.lock(r.under->made.ctx) : m_.lock();
    return true;
  }

  void asked(request& r) override {
    if (is_locked_) return wait(r);
    is_locked_ = true;
    end(r, result::done, now());
  }

  void stop(request&) override {}  // does not end the wait for a lock

  void deed() override {
    switch (dice_.below(4)) {
      case 0:
        expect(m_.try_lock(), !is_locked_, "try_lock");
        is_locked_ = true;
        break;
      case 1:
        if (is_locked_) overtake();
        break;
      default:
        let_one_go();
    }
  }

  // Before the one who was woken runs: has he waited for a millisecond, it is his.
  void overtake() {
    m_.unlock();
    const bool is_kept = !queue_.empty() && now() - queue_.front()->asked_at >= 1ms;
    expect(m_.try_lock(), !is_kept, "try_lock before the one on his way");
    settle();
    if (is_kept) serve_first();
  }

  void let_one_go() override {
    if (!is_locked_) return refuses([&] { m_.unlock(); });
    m_.unlock();
    settle();
    if (queue_.empty()) {
      is_locked_ = false;
    } else {
      serve_first();
    }
  }

  vigil::mutex m_;
  bool is_locked_ = false;
};

// The program holds the lock now and then: who comes and who goes waits for it.
class condition_program final : public program {
 public:
  using program::program;

 private:
  bool call(request& r) override {
    std::unique_lock lock(m_);
    const bool told = [&] {
      if (r.timeout) return changed_.wait_for(lock, *r.timeout);
      r.under != nullptr ? changed_.wait(lock, r.under->made.ctx) : changed_.wait(lock);
      return true;
    }();
    expect(lock.owns_lock(), true, "the lock after the wait");
    return told;
  }

  void asked(request& r) override { is_locked_ ? at_lock_.push_back(&r) : wait(r); }

  void ended(request& r, result how, instant t) override {
    if (!is_locked_) return end(r, how, t);
    r.before_lock = how;
    at_lock_.push_back(&r);
  }

  void deed() override {
    switch (dice_.below(4)) {
      case 0:
        expect(m_.try_lock(), !is_locked_, "try_lock");
        is_locked_ = true;
        break;
      case 1:
        if (is_locked_) unlock();
        break;
      case 2:
        changed_.notify_one();
        settle();
        if (!queue_.empty()) serve_first();
        break;
      default:
        notify_all();
    }
  }

  void let_one_go() override {
    if (is_locked_) unlock();
    notify_all();
  }

  void notify_all() {
    changed_.notify_all();
    settle();
    while (!queue_.empty())
      serve_first();
  }

  void unlock() {
    m_.unlock();
    settle();
    is_locked_ = false;
    const std::deque<request*> all = std::exchange(at_lock_, {});
    for (request* const r : all)
      r->before_lock != result::waits ? end(*r, r->before_lock, now()) : wait(*r);
  }

  vigil::mutex m_;
  vigil::condition_variable changed_;
  bool is_locked_ = false;
  std::deque<request*> at_lock_;
};

// wait_group and latch: both wait for a count of zero.
template <class Counter>
class counter_program final : public program {
 public:
  explicit counter_program(std::uint64_t seed)
      : program(seed), count_(dice_.below(is_latch ? 20 : 1)), c_(make(count_)) {}

 private:
  static constexpr bool is_latch = std::is_same_v<Counter, vigil::latch>;

  static Counter make(std::int64_t count) {
    if constexpr (is_latch) {
      return Counter(count);
    } else {
      return Counter();
    }
  }

  bool call(request& r) override {
    if (r.timeout) return c_.wait_for(*r.timeout);
    r.under != nullptr ? c_.wait(r.under->made.ctx) : c_.wait();
    return true;
  }

  void asked(request& r) override { count_ == 0 ? end(r, result::done, now()) : wait(r); }

  void deed() override {
    if (!is_latch && dice_.below(2) == 0) return change(dice_.below(3));
    change(-static_cast<std::int64_t>(dice_.below(4)));
  }

  void let_one_go() override { change(-count_); }

  void change(std::int64_t n) {
    const auto real = [&] {
      if constexpr (is_latch) {
        c_.count_down(-n);
      } else {
        n == -1 ? c_.done() : c_.add(n);
      }
    };
    if (count_ + n < 0) return refuses(real);
    real();
    settle();
    count_ += n;
    expect(c_.count() == count_, true, "the count");
    while (count_ == 0 && !queue_.empty())
      serve_first();
  }

  std::int64_t count_;
  Counter c_;
};

// Functions that take their time, and of which most fail.
class once_program final : public program {
 public:
  using program::program;

 private:
  bool has_timeouts() const override { return false; }

  bool call(request& r) override {
    const auto run = [&] {
      runs_.push_back(&r);
      vigil::sleep_until(r.until);
      if (r.fails) throw failure{};
    };
    r.under != nullptr ? once_.call(r.under->made.ctx, run) : once_.call(run);
    return true;
  }

  void asked(request& r) override {
    if (is_done_) return end(r, result::done, now());
    if (running_ != nullptr) return wait(r);
    queue_.push_back(&r);
    let_next_run(now());
  }

  void deed() override {
    expect(once_.is_done(), is_done_, "is_done");
    if (running_ == nullptr || dice_.below(4) != 0) return;
    running_->who->request_stop();
    settle();
    end(*running_, result::stopped, now());
    let_next_run(now());
  }

  void let_one_go() override {}

  instant next() const override { return running_ != nullptr ? running_->until : never; }

  void happen(instant t) override {
    if (running_->fails) {
      end(*running_, result::failed, t);
      return let_next_run(t);
    }
    end(*running_, result::done, t);
    running_ = nullptr;
    is_done_ = true;
    while (!queue_.empty())
      leave(*queue_.front(), result::done, t);
  }

  // Which of those who wait is not said.
  void let_next_run(instant t) {
    running_ = nullptr;
    if (queue_.empty()) return;
    const auto at = seen_ == runs_.size() ? queue_.end()
                                          : std::find(queue_.begin(), queue_.end(), runs_[seen_++]);
    if (at == queue_.end()) {
      wrong_ = "not one of those who wait runs its own";
      return;
    }
    running_ = *at;
    queue_.erase(at);
    if (running_->until <= t) happen(t);
  }

  vigil::once once_;
  std::vector<request*> runs_;  // in order
  std::size_t seen_ = 0;
  request* running_ = nullptr;
  bool is_done_ = false;
};

template <class Program>
void run_all() {
  const int seeds = rounds(1500) * (std::getenv("VIGIL_LONG") != nullptr ? 20 : 1);
  for_each_seed(static_cast<std::uint64_t>(seeds), [](std::uint64_t seed) {
    const std::string wrong = Program(seed).play();
    CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
  });
}

}  // namespace

TEST_SUITE("random programs") {
  // Go: random programs beside a model: locks, conditions, counters, once.
  TEST_CASE("who locks a mutex has it, gives up or is cancelled when the model says") {
    run_all<mutex_program>();
  }

  TEST_CASE("who waits for a condition goes on when, and as, the model says") {
    run_all<condition_program>();
  }

  TEST_CASE("who waits for a wait_group goes on when, and as, the model says") {
    run_all<counter_program<vigil::wait_group>>();
  }

  TEST_CASE("who waits for a latch goes on when, and as, the model says") {
    run_all<counter_program<vigil::latch>>();
  }

  TEST_CASE("calls of a once run, wait and end when, and as, the model says") {
    run_all<once_program>();
  }
}
