// Random programs on virtual time against a model: each step acquires, releases, stops a
// fiber or lets time pass, and then compares who holds what. The message has the seed.
#include "core/sync/sync_test.hpp"

#include <algorithm>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>

using namespace vigil::testing_support;

namespace {

enum class state : std::uint8_t { waits, has, gave_up, stopped, gave_back };

struct request {
  std::int64_t amount;  // of a shared_mutex: 0 for a reader, 1 for a writer
  std::optional<clock::time_point> deadline;
  state predicted = state::waits;
  state is = state::waits;
  std::optional<vigil::fiber<>> who;
};

// The part that both models share: the requests, in order of arrival.
class model {
 public:
  virtual ~model() = default;
  virtual void ask(request& r) = 0;
  virtual void give_back(request& r) = 0;
  virtual void leave(request& r) = 0;  // r gave up or was stopped

 protected:
  static bool take_out(std::deque<request*>& queue, request& r) {
    const auto at = std::find(queue.begin(), queue.end(), &r);
    if (at == queue.end()) return false;
    queue.erase(at);
    return true;
  }

  static request& pop(std::deque<request*>& queue) {
    request& r = *queue.front();
    queue.pop_front();
    r.predicted = state::has;
    return r;
  }
};

class semaphore_model : public model {
 public:
  explicit semaphore_model(std::int64_t permits) : free_(permits) {}

  void ask(request& r) override {
    if (r.amount == 0) {  // granted at once, no matter who waits
      r.predicted = state::has;
      return;
    }
    queue_.push_back(&r);
    grant();
  }

  void give_back(request& r) override {
    free_ += r.amount;
    grant();
  }

  void leave(request& r) override {
    take_out(queue_, r);
    grant();
  }

 private:
  void grant() {
    while (!queue_.empty() && queue_.front()->amount <= free_)
      free_ -= pop(queue_).amount;
  }

  std::int64_t free_;
  std::deque<request*> queue_;
};

class shared_mutex_model : public model {
 public:
  void ask(request& r) override {
    (r.amount != 0 ? writers_ : readers_).push_back(&r);
    // A new reader does not pass a waiting writer.
    if (inside_ == 0 || (r.amount == 0 && writers_.empty())) admit(false);
  }

  void give_back(request& r) override {
    inside_ = r.amount != 0 ? 0 : inside_ - 1;
    if (inside_ == 0) admit(r.amount != 0);
  }

  void leave(request& r) override {
    if (!take_out(r.amount != 0 ? writers_ : readers_, r)) return;
    if (writers_.empty()) admit(false);
  }

 private:
  void admit(bool after_writer) {
    if (inside_ < 0) return;
    if (after_writer || writers_.empty()) {
      while (!readers_.empty()) {
        pop(readers_);
        ++inside_;
      }
    }
    if (inside_ == 0 && !writers_.empty()) {
      pop(writers_);
      inside_ = -1;
    }
  }

  int inside_ = 0;  // readers; -1 for a writer
  std::deque<request*> readers_;
  std::deque<request*> writers_;
};

// acquire(amount, deadline) and release(amount) are those of the real object.
template <class Acquire, class Release>
std::string play(std::uint64_t seed,
                 model& expected,
                 std::int64_t largest,
                 bool can_be_stopped,
                 Acquire acquire,
                 Release release) {
  seeded dice(seed);
  std::deque<request> all;
  const auto any = [&](state s) -> request* {
    std::vector<request*> found;
    for (request& r : all)
      if (r.predicted == s) found.push_back(&r);
    return found.empty() ? nullptr : found[dice.below(static_cast<std::uint32_t>(found.size()))];
  };
  const auto expire = [&](clock::time_point now) {
    for (;;) {
      request* next = nullptr;
      for (request& r : all) {
        if (r.predicted != state::waits || !r.deadline || *r.deadline > now) continue;
        if (next == nullptr || *r.deadline < *next->deadline) next = &r;
      }
      if (next == nullptr) return;
      next->predicted = state::gave_up;
      expected.leave(*next);
    }
  };
  std::string wrong;
  const auto step = [&](std::uint32_t kind) {
    if (kind < 4) {
      request& r = all.emplace_back();
      r.amount = dice.below(static_cast<std::uint32_t>(largest + 1));
      // No two deadlines are equal: with equal ones the seed decides which comes first.
      if (dice.below(2) == 0) {
        r.deadline = clock::now() + std::chrono::microseconds(dice.below(50)) * 1'000 +
                     std::chrono::nanoseconds(all.size());
      }
      expected.ask(r);
      r.who.emplace(vigil::spawn([&r, &acquire] {
        try {
          r.is = acquire(r.amount, r.deadline) ? state::has : state::gave_up;
        } catch (const vigil::stopped&) {
          r.is = state::stopped;
        }
      }));
    } else if (kind < 8) {
      if (request* const r = any(state::has)) {
        r->predicted = r->is = state::gave_back;
        expected.give_back(*r);
        release(r->amount);
      }
    } else if (kind == 8 && can_be_stopped) {
      if (request* const r = any(state::waits)) {
        r->predicted = state::stopped;
        expected.leave(*r);
        r->who->request_stop();
      }
    } else {
      vigil::sleep_for(std::chrono::microseconds(dice.below(20'000)));
      expire(clock::now());
    }
    settle();
    std::size_t number = 0;
    for (const request& r : all) {
      ++number;
      if (wrong.empty() && r.is != r.predicted) {
        wrong = "request " + std::to_string(number) + " is " +
                std::to_string(static_cast<int>(r.is)) + ", not " +
                std::to_string(static_cast<int>(r.predicted));
      }
    }
  };
  for (int i = 0; i < 200 && wrong.empty(); ++i)
    step(dice.below(10));
  // To the end: every request is granted or gives up.
  for (int i = 0; i < 2'000 && wrong.empty() && (any(state::has) || any(state::waits)); ++i)
    step(any(state::has) != nullptr ? 4 : 9);
  if (wrong.empty() && any(state::waits) != nullptr) wrong = "somebody waits for ever";
  for (request& r : all) {
    if (!wrong.empty()) r.who->request_stop();
  }
  return wrong;
}

}  // namespace

TEST_SUITE("random programs") {
  TEST_CASE("a semaphore serves, refuses and forgets as the model does") {
    for_each_seed(static_cast<std::uint64_t>(rounds(300)), [](std::uint64_t seed) {
      vigil::semaphore s(4);
      semaphore_model expected(4);
      const std::string wrong = play(
          seed,
          expected,
          4,
          true,
          [&](std::int64_t n, std::optional<clock::time_point> deadline) {
            if (deadline) return s.try_acquire_until(*deadline, n);
            s.acquire(n);
            return true;
          },
          [&](std::int64_t n) { s.release(n); });
      CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
      CHECK(s.available() == 4);
    });
  }

  TEST_CASE("a shared_mutex admits readers and writers as the model does") {
    for_each_seed(static_cast<std::uint64_t>(rounds(300)), [](std::uint64_t seed) {
      vigil::shared_mutex m;
      shared_mutex_model expected;
      const std::string wrong = play(
          seed,
          expected,
          1,
          false,
          [&](std::int64_t writes, std::optional<clock::time_point> deadline) {
            if (writes != 0) {
              if (deadline) return m.try_lock_until(*deadline);
              m.lock();
            } else {
              if (deadline) return m.try_lock_shared_until(*deadline);
              m.lock_shared();
            }
            return true;
          },
          [&](std::int64_t writes) { writes != 0 ? m.unlock() : m.unlock_shared(); });
      CHECK_MESSAGE(wrong.empty(), "seed " << seed << ": " << wrong);
      CHECK(m.try_lock());
      m.unlock();
    });
  }
}

TEST_SUITE("waits") {
  TEST_CASE("the dump names the object that each fiber waits for") {
    std::string text;
    in_virtual([&] {
      vigil::mutex m;
      vigil::shared_mutex s;
      vigil::condition_variable c;
      vigil::wait_group g;
      vigil::latch l(1);
      vigil::semaphore p(0);
      vigil::once o;
      vigil::rate_limiter r(vigil::rate::every(1h), 1);
      m.lock();
      s.lock();
      g.add();
      r.wait();
      crowd all;
      all.add([&] {
        m.lock();
        m.unlock();
      });
      all.add([&] {
        s.lock();
        s.unlock();
      });
      all.add([&] {
        s.lock_shared();
        s.unlock_shared();
      });
      all.add([&] {
        vigil::mutex own;
        own.lock();
        c.wait(own);
        own.unlock();
      });
      all.add([&] { g.wait(); });
      all.add([&] { l.wait(); });
      all.add([&] { p.acquire(); });
      all.add([&] { r.wait(); });
      all.add([&] { o.call([&] { vigil::sleep_for(2h); }); });
      settle();
      all.add([&] { o.call([] {}); });
      settle();
      if (std::FILE* const f = std::tmpfile()) {
        vigil::debug::dump(f);
        std::rewind(f);
        char part[4096];
        while (const std::size_t n = std::fread(part, 1, sizeof part, f))
          text.append(part, n);
        std::fclose(f);
      }
      m.unlock();
      s.unlock();
      c.notify_one();
      g.done();
      l.count_down();
      p.release();
      all.join();
    });
    for (const char* const reason : {"mutex",
                                     "shared_mutex (to write)",
                                     "shared_mutex (to read)",
                                     "condition_variable",
                                     "wait_group",
                                     "latch",
                                     "semaphore",
                                     "once (another runs it)",
                                     "rate_limiter"})
      CHECK_MESSAGE(holds(text, reason), reason);
  }
}
