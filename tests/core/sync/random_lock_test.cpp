// Random programs over mutex and condition_variable (random_locks.hpp).
#include "random_locks.hpp"

#include <algorithm>
#include <deque>
#include <mutex>

using namespace vigil::testing_support;
using namespace vigil::testing_support::random_locks;

namespace {

// The owner keeps the mutex until the program unlocks it, which any fiber may do.
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

  void stop(request&) override {}  // a stop does not end the wait for a lock

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

  // Happens before the woken waiter runs: if it has waited for a millisecond, the mutex
  // is reserved for it.
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

// The program holds the lock now and then: those that come and those that go wait for it.
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

}  // namespace

TEST_SUITE("random programs") {
  // Go: random programs beside a model: locks, conditions, counters, once.
  TEST_CASE("a mutex is locked, given up or cancelled when the model says") {
    run_all<mutex_program>();
  }

  TEST_CASE("waits for a condition end at the time and in the way of the model") {
    run_all<condition_program>();
  }
}
