// Random programs over mutex, condition_variable, wait_group, latch and once on virtual
// time, beside models that have neither fibers nor locks. Each step makes a request, ends
// a hold, stops a fiber, cancels a context or lets time pass; afterwards each request has
// ended as the model says, at exactly that instant. No two deadlines are equal and none
// coincides with a step. A seed replays its program.
#pragma once

#include "core/sync/sync_test.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>

// In a namespace of its own: the names are short.
namespace vigil::testing_support::random_locks {

using namespace std::chrono_literals;
using testing::settle;
using instant = clock::time_point;
using std::chrono::nanoseconds;

inline constexpr instant never = instant::max();

inline instant now() {
  return clock::now();
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
  // condition: how its wait ended while the lock is not yet back; waits: no end yet.
  result before_lock = result::waits;
  instant until;       // once: when its function ends
  bool fails = false;  // once: its function throws
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

  // Returns a description of the first error, or an empty string.
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
  // The real call, on a fiber of its own. Returns false if the timeout has passed.
  virtual bool call(request& r) = 0;
  // The model's reaction to the request r.
  virtual void asked(request& r) = 0;
  // An action that only this subject has, on both the real object and the model.
  virtual void deed() = 0;
  virtual void let_one_go() = 0;

  virtual bool has_timeouts() const { return true; }

  virtual void stop(request& r) { leave(r, result::stopped, now()); }

  // Ends r's wait. Caller: r is in no queue.
  virtual void ended(request& r, result how, instant t) { end(r, how, t); }

  // The next instant that matters to the model beside those of the waiters.
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

  // Makes r wait, if it may.
  void wait(request& r) {
    if (r.under != nullptr && r.under->is_done) return ended(r, result::cancelled, now());
    if (r.timeout && *r.timeout <= 0ns) return ended(r, result::late, now());
    if (r.timeout) r.deadline = now() + *r.timeout;
    queue_.push_back(&r);
  }

  // An instant that no step has: steps are at whole microseconds.
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
  std::deque<request*> queue_;  // requests whose wait a deadline, a context or a stop may end
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

template <class Program>
void run_all() {
  const int seeds = rounds(1500) * (std::getenv("VIGIL_LONG") != nullptr ? 20 : 1);
  for_each_seed(static_cast<std::uint64_t>(seeds), [](std::uint64_t seed) {
    const std::string wrong = Program(seed).play();
    CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
  });
}

}  // namespace vigil::testing_support::random_locks
