// Random programs over groups on virtual time, beside a model without fibers and locks.
// No two ends, deadlines and actions fall on one instant, so the model knows when each
// call returns and with what result. A seed replays its program.
#include "core/cancel/cancel_test.hpp"

#include <algorithm>
#include <cstdlib>
#include <optional>

namespace {

using namespace vigil::testing_support;
using vigil::group_of;
using time_point = clock::time_point;

// The error that wait() throws: a failure, or a cancelled with its code and its cause (0:
// none).
struct error {
  bool is_failure = false;
  bool is_timeout = false;
  int number = 0;

  friend bool operator==(const error&, const error&) = default;
};

// The sleep of a group's function until its end.
enum class sleeps { stoppable, under_context, shielded };

struct work {
  int result;
  time_point until;
  sleeps how;
  int fails_with;  // 0: it does not fail
};

// --- the model

class model {
 public:
  model(std::size_t limit, time_point deadline, int cause_of_deadline)
      : limit_(limit), deadline_(deadline), late_(cause_of_deadline) {}

  // The instant at which go() returns.
  time_point go(const work& w, time_point now) {
    advance(now);
    bool waited = false;
    while (!done_ && limit_ != 0 && running_.size() == limit_) {
      waited = true;
      now = next();
      advance(now);
    }
    given_ += 1;
    if (done_) {
      // Sleepers under the context and waiters for a slot: either may come first.
      if (waited && error_ == done_) other_error_ = cause();
      if (!by_cancel_) fail(cause());
    } else {
      running_.push_back(w);
      advance(now);  // even one whose time is over already
    }
    return now;
  }

  time_point wait_until(time_point limit, time_point now) {
    advance(now);
    while (!running_.empty() && now < limit) {
      now = std::min(next(), limit);
      advance(now);
    }
    return now;
  }

  void cancel(int with) {
    end({false, false, with}, false);
    ask_to_stop();
  }

  void advance(time_point now) {
    for (time_point t = next(); t <= now; t = next()) {
      if (!done_ && deadline_ == t) {
        end({false, true, late_});
        continue;
      }
      const auto first = std::find_if(
          running_.begin(), running_.end(), [&](const work& w) { return w.until == t; });
      const work w = *first;
      running_.erase(first);
      w.fails_with == 0 ? results_.push_back(w.result) : fail({true, false, w.fails_with});
    }
  }

  bool is_done() const { return done_.has_value(); }

  bool all_ended() const { return running_.empty(); }

  // The results or the error, after the last function has ended.
  std::optional<error> outcome() const {
    if (error_) return error_;
    if (results_.size() != given_) return done_;
    return std::nullopt;
  }

  bool may_be(const error& e) const { return outcome() == e || other_error_ == e; }

  std::vector<int> results() const {
    std::vector<int> all = results_;
    std::sort(all.begin(), all.end());
    return all;
  }

 private:
  time_point next() const {
    time_point first = done_ ? time_point::max() : deadline_;
    for (const work& w : running_)
      first = std::min(first, w.until);
    return first;
  }

  // The context's cause, as it is thrown.
  error cause() const { return done_->number != 0 ? error{true, false, done_->number} : *done_; }

  // The context ends: an error of the functions that sleep under it, unless by cancel().
  void end(const error& how, bool is_error = true) {
    if (done_) return;
    done_ = how;
    by_cancel_ = !is_error;
    if (remove(sleeps::under_context) && is_error) fail(how);
  }

  void fail(const error& e) {
    if (error_) return;
    error_ = e;
    end({false, false, e.is_failure ? e.number : 0});
    ask_to_stop();
  }

  void ask_to_stop() {
    remove(sleeps::stoppable);
    remove(sleeps::under_context);
  }

  bool remove(sleeps how) {
    return std::erase_if(running_, [how](const work& w) { return w.how == how; }) != 0;
  }

  const std::size_t limit_;
  const time_point deadline_;
  const int late_;
  std::vector<work> running_;
  std::vector<int> results_;
  std::size_t given_ = 0;
  std::optional<error> done_;
  bool by_cancel_ = false;  // rather than by an error or the deadline
  std::optional<error> error_;
  std::optional<error> other_error_;  // the other error that is possible as well
};

// --- the program

class program {
 public:
  explicit program(std::uint64_t seed) : dice_(seed) {}

  void run() {
    const auto limit = static_cast<std::size_t>(dice_.below(4));
    const time_point deadline = dice_.below(3) == 0 ? instant(200) : time_point::max();
    const int late = number();
    const auto parent = vigil::with_deadline(background(), deadline, cause_of(late));
    group_of<int> g(parent.ctx, {.limit = limit});
    model expected(limit, deadline, late);
    const auto steps = 2 + dice_.below(14);
    for (std::uint32_t step = 0; step < steps; ++step) {
      vigil::sleep_until(start_ + next_step());
      deed(g, expected);
      vigil::sleep_until(start_ + next_step());
      expected.advance(clock::now());
      CHECK(g.context().is_done() == expected.is_done());
      CHECK(g.wait_for(0s) == expected.all_ended());
    }
    const time_point end = expected.wait_until(time_point::max(), clock::now());
    std::optional<error> thrown;
    try {
      const std::vector<int> all = g.wait();
      CHECK(all == expected.results());
    } catch (const failure& f) {
      thrown = error{true, false, f.number};
    } catch (const cancelled& c) {
      thrown = error{false, c.code() == std::errc::timed_out, number_of(c.cause())};
    }
    CHECK(clock::now() == end);
    CHECK(thrown.has_value() == expected.outcome().has_value());
    if (thrown) CHECK(expected.may_be(*thrown));
  }

 private:
  void deed(group_of<int>& g, model& expected) {
    switch (dice_.below(12)) {
      case 0:
        if (dice_.below(2) == 0) {
          const int with = number();
          expected.advance(clock::now());
          g.cancel(cause_of(with));
          expected.cancel(with);
        }
        break;
      case 1:
      case 2: {
        const time_point limit = instant(40);
        const time_point end = expected.wait_until(limit, clock::now());
        CHECK(g.wait_for(limit - clock::now()) == expected.all_ended());
        CHECK(clock::now() == end);
        break;
      }
      default: {
        const work w{++results_,
                     instant(80),
                     static_cast<sleeps>(dice_.below(3)),
                     dice_.below(10) == 0 ? ++failures_ : 0};
        g.go([w](const context& ctx) { return do_work(w, ctx); });
        const time_point now = clock::now();
        CHECK(now == expected.go(w, called_at_));
      }
    }
  }

  static int do_work(const work& w, const context& ctx) {
    switch (w.how) {
      case sleeps::stoppable:
        vigil::sleep_until(w.until);
        break;
      case sleeps::under_context:
        vigil::sleep_until(w.until, ctx);
        break;
      case sleeps::shielded: {
        const vigil::this_fiber::shield s;
        vigil::sleep_until(w.until);
      }
    }
    if (w.fails_with != 0) throw failure{w.fails_with};
    return w.result;
  }

  // Actions happen at whole microseconds, everything else between them.
  std::chrono::microseconds next_step() {
    const auto passed = std::chrono::ceil<std::chrono::microseconds>(clock::now() - start_);
    called_at_ = start_ + passed + (1 + dice_.below(10)) * 1us;
    return std::chrono::duration_cast<std::chrono::microseconds>(called_at_ - start_);
  }

  time_point instant(std::uint32_t within) {
    const auto passed = std::chrono::ceil<std::chrono::microseconds>(clock::now() - start_);
    return start_ + passed + dice_.below(within) * 1us + ++instants_ * 1ns;
  }

  int number() { return dice_.below(2) == 0 ? 0 : ++failures_; }

  seeded dice_;
  const time_point start_ = clock::now();
  time_point called_at_ = start_;
  int instants_ = 0;
  int results_ = 0;
  int failures_ = 0;
};

}  // namespace

TEST_SUITE("group_of") {
  TEST_CASE("random programs: each call returns at the model's time, with the model's result") {
    const int seeds = rounds(2000) * (std::getenv("VIGIL_LONG") != nullptr ? 20 : 1);
    for_each_seed(static_cast<std::uint64_t>(seeds),
                  [](std::uint64_t seed) { program(seed).run(); });
  }
}
