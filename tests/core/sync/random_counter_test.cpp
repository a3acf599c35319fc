// Random programs over wait_group, latch and once (random_locks.hpp).
#include "random_locks.hpp"

#include <algorithm>
#include <type_traits>

using namespace vigil::testing_support;
using namespace vigil::testing_support::random_locks;

namespace {

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

// Functions that take their time, most of which fail.
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

  // Which of the waiters runs next is unspecified.
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

}  // namespace

TEST_SUITE("random programs") {
  // Go: random programs beside a model: locks, conditions, counters, once.
  TEST_CASE("waits for a wait_group end at the time and in the way of the model") {
    run_all<counter_program<vigil::wait_group>>();
  }

  TEST_CASE("waits for a latch end at the time and in the way of the model") {
    run_all<counter_program<vigil::latch>>();
  }

  TEST_CASE("calls of a once run, wait and end at the time and in the way of the model") {
    run_all<once_program>();
  }
}
