// How a task waits: as caller.hpp and select_core.cpp do for fibers, in two halves with
// the coroutine's suspension in between.
//
// TW1 The task says that it is about to wait (next, wanted) before anyone can find the
//     wait: it may be resumed as soon as begin() has returned true, on another thread.
// TW2 begin() returns false only if no deliver() will come: nothing was queued, or it has
//     claimed the wait itself.
#include "chan/select_core.hpp"
#include "chan/selecting.hpp"
#include "sched/scheduler.hpp"
#include "sched/wait/cancel_tree.hpp"
#include "sched/wait/case_table.hpp"
#include "task/task_core.hpp"
#include "task/task_service.hpp"

#include <vigil/error.hpp>

#include <exception>
#include <optional>
#include <utility>

namespace vigil::inline VIGIL_ABI::detail {

// The coroutine that a task is resumed in while a select goes through rounds: only a
// coroutine can be suspended again.
class task_wait::round_loop {
 public:
  // A task_frame, so that debuggers find the coroutine that is resumed afterwards.
  struct promise_type : task_frame {
    promise_type(task_wait&, task_core& t, std::coroutine_handle<> h) noexcept {
      task = &t;
      awaiting = h;
    }

    round_loop get_return_object() noexcept {
      return round_loop(std::coroutine_handle<promise_type>::from_promise(*this));
    }

    std::suspend_always initial_suspend() const noexcept { return {}; }

    std::suspend_always final_suspend() const noexcept { return {}; }

    void return_void() const noexcept {}

    void unhandled_exception() const noexcept { std::terminate(); }
  };

  round_loop() noexcept = default;

  explicit round_loop(std::coroutine_handle<promise_type> c) noexcept : coroutine_(c) {}

  round_loop(round_loop&& other) noexcept : coroutine_(std::exchange(other.coroutine_, {})) {}

  round_loop& operator=(round_loop&& other) noexcept {
    std::swap(coroutine_, other.coroutine_);
    return *this;
  }

  ~round_loop() {
    if (coroutine_) coroutine_.destroy();
  }

  std::coroutine_handle<> coroutine() const noexcept { return coroutine_; }

 private:
  std::coroutine_handle<promise_type> coroutine_;
};

// A wait under a context.
struct task_wait::context_part {
  explicit context_part(const wait_limit& limit) noexcept : kept(limit) {}

  kept_limit kept;
  queued_waiter entry;
};

// A wait for several cases.
struct task_wait::select_part {
  std::optional<selecting> several;
  std::optional<context_part> under;  // if its limit has a context
  shown_select shown = {};
  std::size_t taken = selecting::none;
  std::exception_ptr error;  // of a later round
  round_loop rounds;
};

namespace {

class task_owner final : public select_owner {
 public:
  explicit task_owner(task_core& t) noexcept : task_(t) {}

  bool may_not_wait() const noexcept override { return task_.must_stop(); }

  waiter& self() noexcept override { return task_.self; }

  ticket open() noexcept override { return task_.self.open(true); }

  [[noreturn]] void refuse() override { throw_task_stopped(task_); }

 private:
  task_core& task_;
};

void show(task_core& t, wait_reason why, const void* object) noexcept {
  // ordering: the dump's fields; nothing hangs on them.
  t.since.store(t.service.sched().clock.coarse_now(), order::relaxed);
  t.object.store(object, order::relaxed);  // ordering: as above
  t.reason.store(why, order::relaxed);     // ordering: as above
}

}  // namespace

task_wait::~task_wait() {
  if (is_select_) {
    delete select_;
  } else {
    delete one_context_;
  }
}

task_wait::context_part* task_wait::context_of_select() const noexcept {
  return select_->under.has_value() ? &*select_->under : nullptr;
}

void task_wait::keep_context(const wait_limit& limit) {
  one_context_ = new context_part(limit);
}

namespace {

// TW1; taken back unless the wait has begun.
class announcement {
 public:
  announcement(task_core& t, std::coroutine_handle<> h) noexcept : task_(t) {
    t.next = h;
    t.wanted = task_core::step::wait;
  }

  ~announcement() {
    if (stands_) return;
    task_.reason.store(wait_reason::none, order::relaxed);  // ordering: the dump's field
    task_.next = {};
    task_.wanted = task_core::step::transfer;
  }

  announcement(const announcement&) = delete;
  announcement& operator=(const announcement&) = delete;

  // The task may be gone: another thread may have resumed it.
  bool stand(bool begun) noexcept { return stands_ = begun; }

 private:
  task_core& task_;
  bool stands_ = false;
};

}  // namespace

bool task_wait::look(select_case& c) noexcept {
  if (c.object == nullptr || !is_near(c) || !c.table->look(c)) return false;
  state_ = state::taken;
  return true;
}

bool task_wait::begin(running_task& of, std::coroutine_handle<> h, select_case* c) {
  auto& t = static_cast<task_core&>(of);
  const wait_limit limit{
      timing_, time_, under() != nullptr ? under()->kept.limit.cancelled_by : nullptr};
  task_ = &t;
  announcement waits(t, h);
  ticket opened = 0;
  if (c == nullptr) {
    opened = open_sleep(t, wait_reason::sleep);
  } else if (c->object == nullptr) {
    const bool sends = c->table == &send_case_table;
    opened = open_sleep(t, sends ? wait_reason::send_nil : wait_reason::recv_nil);
  } else if (!queue_one(t, *c, limit.is_over(), opened)) {  // reads a clock: without the lock
    return false;
  }
  return waits.stand(is_bounded(t, limit, opened, c));
}

bool task_wait::begin(running_task& of,
                      std::coroutine_handle<> h,
                      select_case* const* cases,
                      std::size_t count,
                      choice mode) {
  auto& t = static_cast<task_core&>(of);
  task_ = &t;
  select_ = new select_part;
  is_select_ = true;
  selecting& s = select_->several.emplace(cases, count, mode);
  select_->shown = {cases, count};
  if (s.limit().cancelled_by != nullptr) select_->under.emplace(s.limit());
  const std::size_t taken = s.look_at_each();
  if (taken != selecting::none) {
    takes(taken);
    return false;
  }
  if (!s.waits_for_something()) return begin_timed(t, h, s);
  if (!s.has_prepared_cases()) return begin_round(t, h);
  select_->rounds = go_through_rounds(*this, t, h);
  return begin_round(t, select_->rounds.coroutine());
}

void task_wait::takes(std::size_t index) noexcept {
  state_ = state::taken;
  select_->taken = index;
}

// A select of which no case can come but by time.
bool task_wait::begin_timed(task_core& t, std::coroutine_handle<> h, const selecting& s) {
  if (s.otherwise() != selecting::none) {
    takes(s.otherwise());
    return false;
  }
  announcement waits(t, h);
  const ticket opened = open_sleep(t, wait_reason::select);
  return waits.stand(is_bounded(t, s.limit(), opened, nullptr));
}

// Begins a round of a select; those that have nothing to wait for follow one another.
// False if one was the last.
bool task_wait::begin_round(task_core& t, std::coroutine_handle<> h) {
  selecting& s = *select_->several;
  task_owner owner(t);
  show(t, wait_reason::select, &select_->shown);
  for (;;) {
    s.begin_round();
    announcement waits(t, h);
    const std::size_t taken = s.take_or_queue(owner);
    if (taken == selecting::again) continue;
    if (taken != selecting::none) {
      takes(taken);
      return false;
    }
    state_ = state::open;
    is_queued_ = true;
    return waits.stand(is_bounded(t, s.round_limit(), s.open_ticket(), nullptr));
  }
}

// Ends a round. True if it was the last one.
bool task_wait::end_round(task_core& t, std::coroutine_handle<> h) noexcept {
  for (;;) {
    const outcome ended = close();
    const bool goes_on = state_ == state::taken
                             ? select_->taken == selecting::again
                             : ended == outcome::timeout && select_->several->ends_early();
    if (!goes_on) {
      // As if the wait were open still, for end_several().
      if (state_ != state::taken) state_ = state::open;
      return true;
    }
    state_ = state::none;
    try {
      if (begin_round(t, h)) return false;
    } catch (...) {
      select_->error = std::current_exception();
      return true;
    }
    if (state_ == state::taken) return true;
  }
}

// Resumes the coroutine `h` after the last round.
task_wait::round_loop task_wait::go_through_rounds(task_wait& w,
                                                   task_core& t,
                                                   std::coroutine_handle<> h) {
  while (!w.end_round(t, w.select_->rounds.coroutine()))
    co_await std::suspend_always();
  t.next = h;
}

// Waits for nothing but the time, the context and a stop.
ticket task_wait::open_sleep(task_core& t, wait_reason why) {
  if (t.must_stop()) throw_task_stopped(t);
  show(t, why, nullptr);
  state_ = state::open;
  return t.self.open(true);
}

// False if the case was taken, or if the time is over.
bool task_wait::queue_one(task_core& t, select_case& c, bool over, ticket& opened)
    VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  wake_list told;
  const case_lock lock = c.table->lock(c.object);
  lock.lock();
  const bool taken = c.table->poll(c, told);
  if (taken || over) {
    if (taken) state_ = state::taken;
    lock.unlock();
    told.deliver(turn::next);
    return false;
  }
  if (t.must_stop()) {
    lock.unlock();
    throw_task_stopped(t);
  }
  try {
    is_queued_ = c.table->enqueue(c);
  } catch (const runtime_gone&) {
    // The runtime of a timer has just ended: its channel is closed now.
    lock.unlock();
    return queue_one(t, c, over, opened);
  } catch (...) {
    lock.unlock();
    t.service.sched().board.cover_owed();
    throw;
  }
  if (is_queued_) {
    c.table->retain(c.object);
    state_ = state::open;
    opened = t.self.open(true);
    detail::place_of(c) = {&t.self, opened};
    show(t, c.table->reason, static_cast<const std::byte*>(c.object) + c.table->shown_at);
  } else {
    state_ = state::taken;
  }
  lock.unlock();
  return is_queued_;
}

// Bounds the open wait by its limit, and looks for a stop. False if one of the two has
// ended it (TW2). If it throws, the wait is over and nothing is queued.
bool task_wait::is_bounded(task_core& t, const wait_limit& l, ticket opened, select_case* c) {
  scheduler& sched = t.service.sched();
  if (under() != nullptr) static_cast<open_wait&>(under()->entry) = {&t.self, opened};
  try {
    // The clock is read before the deadline is made, and exactly.
    const nanos deadline = l.is_relative() ? l.as_deadline(sched.clock.now()) : l.as_deadline(0);
    if (deadline != never) {
      sched.timers().arm(t.self, opened, deadline);
      is_timed_ = true;
    }
    if (under() != nullptr && !l.cancelled_by->begin_wait(under()->entry)) return false;
  } catch (...) {
    if (!t.self.claim(opened, outcome::cancelled)) return true;  // it has been ended
    if (is_timed_) sched.timers().disarm(t.self);
    take_back(c);
    throw;
  }
  // The stop's flag is set before it looks for an open ticket; the ticket was opened
  // before this look. One of the two sees the other.
  return !t.must_stop() || !t.self.claim(opened, outcome::stopped);
}

// Takes the places back, and notes whether a case has ended the wait.
void task_wait::take_back(select_case* c) noexcept {
  if (!std::exchange(is_queued_, false)) return;
  if (c == nullptr) {
    select_->taken = select_->several->take_back();
    if (select_->taken != selecting::none) state_ = state::taken;
    return;
  }
  if (detail::place_of(*c).has_won) {
    state_ = state::taken;
    c->table->end(*c);
  } else {
    wake_list told;
    const case_lock lock = c->table->lock(c->object);
    lock.lock();
    c->table->retract(*c, told);
    lock.unlock();
    told.deliver();
  }
  c->table->release(c->object);
}

// Ends a wait that was open, and says how it ended; taken, if by a case.
outcome task_wait::close(select_case* c) noexcept {
  task_core& t = *task_;
  t.reason.store(wait_reason::none, order::relaxed);  // ordering: the dump's field
  const outcome ended = t.self.outcome();
  if (std::exchange(is_timed_, false) && ended != outcome::timeout)
    t.service.sched().timers().disarm(t.self);
  if (under() != nullptr) under()->kept.limit.cancelled_by->end_wait(under()->entry);
  take_back(c);
  return ended;
}

void task_wait::throw_if_ended(outcome ended) {
  if (ended == outcome::stopped) throw_task_stopped(*task_);
  if (ended == outcome::cancelled) throw_cancelled(*under()->kept.limit.cancelled_by);
}

bool task_wait::end(select_case* c) {
  if (state_ == state::open) {
    const outcome ended = close(c);
    if (state_ != state::taken) throw_if_ended(ended);
  }
  return state_ == state::taken;
}

std::size_t task_wait::end_several() {
  class at_end {
   public:
    explicit at_end(task_wait& w) noexcept : wait_(w) {}

    ~at_end() { wait_.leave_cases(); }

    at_end(const at_end&) = delete;
    at_end& operator=(const at_end&) = delete;

   private:
    task_wait& wait_;
  } const leaves(*this);

  if (select_->error != nullptr) std::rethrow_exception(std::move(select_->error));
  if (state_ == state::open) {
    // The last round has closed it, unless that was the first.
    const bool is_closed = select_->rounds.coroutine() && !is_queued_;
    const outcome ended = is_closed ? task_->self.outcome() : close();
    if (state_ != state::taken) throw_if_ended(ended);
  }
  return state_ == state::taken ? select_->taken : select_->several->timed();
}

void task_wait::leave_cases() noexcept {
  if (is_select_) select_->several.reset();
}

}  // namespace vigil::inline VIGIL_ABI::detail
