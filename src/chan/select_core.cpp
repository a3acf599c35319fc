#include "chan/select_core.hpp"

#include "chan/channel_core.hpp"
#include "sched/scheduler.hpp"
#include "sched/wait/caller.hpp"
#include "sched/wait/case_table.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <stdexcept>

#include <boost/container/small_vector.hpp>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// --- the draw

// For a thread that runs no fiber.
random& thread_dice() noexcept {
  thread_local random dice(reinterpret_cast<std::uintptr_t>(&dice) ^
                           static_cast<std::uint64_t>(monotonic_now()));
  return dice;
}

random& dice_of_caller() noexcept {
  worker* const w = current_worker();
  if (w == nullptr) return thread_dice();
  return w->dice();
}

// --- one select

// Indices of cases, with room for a few on the stack.
using index_array = boost::container::small_vector<std::uint32_t, 16>;

constexpr std::size_t none = static_cast<std::size_t>(-1);
constexpr std::size_t again = none - 1;  // another round follows

// Whether a look at the case may find something.
bool is_near(const select_case& c) noexcept {
  if (c.type != select_case::kind::waits || c.object == nullptr) return false;
  if (c.table != &recv_case_table) return true;
  const timed_source* const source = static_cast<const channel_core*>(c.object)->source;
  return source == nullptr || !source->is_far();
}

class selecting {
 public:
  selecting(select_case* const* cases, std::size_t count, choice mode)
      : shown_{cases, count}, cases_(cases), mode_(mode) {
    for (index_array* const a : {&near_, &order_, &locks_})
      a->reserve(count);
    sort_out(count);
  }

  std::size_t run();

 private:
  void sort_out(std::size_t count);
  void shuffle(index_array& order) noexcept;
  std::size_t look_at_each() noexcept;
  std::size_t look_at_all(wake_list& told) noexcept;

  case_lock lock_of(std::uint32_t i) const noexcept {
    return cases_[i]->table->lock(cases_[i]->object);
  }

  void lock_all() noexcept;
  void unlock_all() noexcept;

  // Keeps every object that is waited for, as long as this lives (CH5).
  class kept_objects {
   public:
    explicit kept_objects(selecting& s) noexcept : selecting_(s) {
      for (const std::uint32_t i : s.order_)
        s.cases_[i]->table->retain(s.cases_[i]->object);
    }

    ~kept_objects() {
      for (const std::uint32_t i : selecting_.order_)
        selecting_.cases_[i]->table->release(selecting_.cases_[i]->object);
    }

    kept_objects(const kept_objects&) = delete;
    kept_objects& operator=(const kept_objects&) = delete;

   private:
    selecting& selecting_;
  };

  // Ends what the cases have begun (CT4).
  class begun_cases {
   public:
    explicit begun_cases(selecting& s) noexcept : selecting_(s) {}

    ~begun_cases() {
      for (const std::uint32_t i : selecting_.begun_)
        if (const auto leave = selecting_.cases_[i]->table->leave) leave(*selecting_.cases_[i]);
    }

    begun_cases(const begun_cases&) = delete;
    begun_cases& operator=(const begun_cases&) = delete;

   private:
    selecting& selecting_;
  };

  void begin_all(bool waits);
  bool is_taken(std::size_t i) noexcept;
  std::size_t enqueue_all(caller& self, wake_list& told);
  std::size_t find_winner() const noexcept;
  void retract_all(std::size_t but) noexcept;
  [[gnu::noinline]] std::size_t queue_and_wait();
  std::size_t one_round();

  const shown_select shown_;
  select_case* const* const cases_;
  index_array near_;   // the cases that may be ready
  index_array order_;  // those that can come at all
  index_array locks_;  // the same by the addresses of their locks
  boost::container::small_vector<std::uint32_t, 4> begun_;  // those to be left
  nanos round_ends_ = never;                                // as the cases have asked
  std::size_t otherwise_ = none;
  std::size_t timed_ = none;  // the timed case whose time comes first
  wait_limit limit_;
  const choice mode_;
};

void selecting::sort_out(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    select_case& c = *cases_[i];
    if (c.type == select_case::kind::waits) {
      if (c.object == nullptr) continue;
      order_.push_back(static_cast<std::uint32_t>(i));
      if (is_near(c)) near_.push_back(static_cast<std::uint32_t>(i));
    } else if (c.type == select_case::kind::otherwise) {
      if (otherwise_ != none) {
        throw std::invalid_argument(
            "vigil::select: two otherwise cases; only one can be taken when nothing is ready");
      }
      otherwise_ = i;
    } else {
      if (timed_ == none) {
        timed_ = i;
        limit_ = c.limit;
      } else {
        const nanos before = limit_.as_deadline();
        const nanos at = c.limit.as_deadline();
        if (at < before) timed_ = i;
        limit_ = detail::until(std::min(at, before));
      }
    }
  }
}

void selecting::shuffle(index_array& order) noexcept {
  if (mode_ == choice::ordered || order.size() < 2) return;
  random& dice = dice_of_caller();
  for (auto n = static_cast<std::uint32_t>(order.size()); n > 1; --n)
    std::swap(order[n - 1], order[dice.below(n)]);
}

// Takes the first case in the order that is ready. Each look is at an instant of its own,
// which is enough for a case that is taken.
std::size_t selecting::look_at_each() noexcept {
  shuffle(near_);
  for (const std::uint32_t i : near_) {
    // Only the first of ordered cases may be taken here: any other must be ready while
    // those before it are not, which only a look at one instant can tell.
    if (mode_ == choice::ordered && i != order_[0]) return none;
    select_case& c = *cases_[i];
    if (c.table->look(c)) return i;
  }
  return none;
}

// Caller: holds all locks.
std::size_t selecting::look_at_all(wake_list& told) noexcept {
  for (const std::uint32_t i : order_) {
    if (cases_[i]->table->poll(*cases_[i], told)) return i;
  }
  return none;
}

void selecting::lock_all() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  locks_.clear();
  for (const std::uint32_t i : order_)
    locks_.push_back(i);
  std::sort(locks_.begin(), locks_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return lock_of(a) < lock_of(b);
  });
  const case_lock first = lock_of(locks_[0]);
  first.lock();
  for (case_lock last = first; const std::uint32_t i : locks_) {
    const case_lock lock = lock_of(i);
    if (lock == last) continue;
    lock.lock_after(last);
    last = lock;
  }
}

void selecting::unlock_all() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  for (std::size_t n = locks_.size(); n-- > 0;) {
    if (n == 0 || !(lock_of(locks_[n]) == lock_of(locks_[n - 1]))) lock_of(locks_[n]).unlock();
  }
}

// Queues all cases, with one ticket, and returns none. Or returns the case that became
// ready meanwhile, which is taken then; nothing is queued then, nor if this throws.
// Caller: holds all locks, so no thread sees the places before they are whole.
std::size_t selecting::enqueue_all(caller& self, wake_list& told) {
  const auto take_back = [&](std::uint32_t queued) noexcept {
    // A case that leaves may let the next in its queue have its turn, which must not be
    // one of these: no claim of a ticket that was never open succeeds.
    for (std::uint32_t n = 0; n < queued; ++n)
      detail::place_of(*cases_[order_[n]]) = open_wait{&self.self()};
    for (std::uint32_t n = 0; n < queued; ++n)
      cases_[order_[n]]->table->retract(*cases_[order_[n]], told);
  };
  for (std::uint32_t n = 0; n < order_.size(); ++n) {
    try {
      if (cases_[order_[n]]->table->enqueue(*cases_[order_[n]])) continue;
    } catch (...) {
      take_back(n);
      throw;
    }
    take_back(n);
    return order_[n];
  }
  const open_wait all{&self.self(), self.open()};
  for (const std::uint32_t i : order_)
    detail::place_of(*cases_[i]) = all;
  return none;
}

// The case that has ended the wait.
std::size_t selecting::find_winner() const noexcept {
  for (const std::uint32_t i : order_) {
    if (detail::place_of(*cases_[i]).has_won) return i;
  }
  return none;
}

void selecting::retract_all(std::size_t but) noexcept {
  wake_list told;
  for (const std::uint32_t i : order_) {
    if (i == but) continue;
    const case_lock lock = lock_of(i);
    lock.lock();
    cases_[i]->table->retract(*cases_[i], told);
    lock.unlock();
  }
  told.deliver();
}

std::size_t selecting::run() {
  const std::size_t ready = look_at_each();
  if (ready != none) return ready;
  if (order_.size() != 0) return queue_and_wait();
  if (otherwise_ != none) return otherwise_;
  wait_on_nothing(timed_ != none ? wait_reason::select : wait_reason::select_none, limit_);
  return timed_;
}

// Prepares the next round.
void selecting::begin_all(bool waits) {
  const bool is_first = begun_.empty();
  round_ends_ = never;
  for (const std::uint32_t i : order_) {
    select_case& c = *cases_[i];
    if (c.table->begin == nullptr) continue;
    if (is_first) begun_.reserve(order_.size());
    round_ends_ = std::min(round_ends_, c.table->begin(c, waits));
    if (is_first) begun_.push_back(i);
  }
  if (!begun_.empty()) limit_ = limit_.absolute();  // the same time for all rounds
}

// Whether case i, which is ready, is taken now.
bool selecting::is_taken(std::size_t i) noexcept {
  const auto take = cases_[i]->table->take;
  return take == nullptr || take(*cases_[i]);
}

std::size_t selecting::queue_and_wait() {
  const begun_cases begun(*this);
  for (;;) {
    const std::size_t taken = one_round();
    if (taken != again) return taken;
  }
}

std::size_t selecting::one_round() {
  const bool over = otherwise_ != none || limit_.is_over();  // reads a clock: without the locks
  shuffle(order_);
  begin_all(!over);
  const bool ends_early = !begun_.empty() && round_ends_ < limit_.nanoseconds;
  caller self(ends_early ? limit_.until(round_ends_) : limit_);
  wake_list told;
  lock_all();
  std::size_t ready = look_at_all(told);
  if (ready != none) {
    unlock_all();
    told.deliver(turn::next);
    return is_taken(ready) ? ready : again;
  }
  if (over) {
    unlock_all();
    return otherwise_ != none ? otherwise_ : timed_;
  }
  if (self.may_not_wait()) {
    unlock_all();
    self.refuse("select");
  }
  const kept_objects kept(*this);
  try {
    ready = enqueue_all(self, told);
  } catch (const runtime_gone&) {
    // The runtime of a timer has just ended: its channel is closed now.
    unlock_all();
    told.deliver();
    return again;
  } catch (...) {
    unlock_all();
    told.deliver();
    if (current_fiber() != nullptr) current_scheduler()->board.cover_owed();
    throw;
  }
  if (ready != none) {
    unlock_all();
    told.deliver();
    return is_taken(ready) ? ready : again;
  }
  const ticket t = detail::place_of(*cases_[order_[0]]).ticket;
  unlock_all();
  outcome result = outcome::open;
  try {
    result = self.wait(t, {wait_reason::select, &shown_});
  } catch (...) {
    retract_all(none);
    throw;
  }
  const std::size_t winner = find_winner();
  retract_all(winner);
  if (winner != none) {
    const case_table& table = *cases_[winner]->table;
    table.end(*cases_[winner]);
    // After a false alarm a case before this one may be ready as well by now.
    if (mode_ == choice::ordered && table.take != nullptr) return again;
    return is_taken(winner) ? winner : again;
  }
  self.throw_if_ended(result);
  return ends_early ? again : timed_;
}

[[gnu::noinline]] std::size_t select_among(select_case* const* cases,
                                           std::size_t count,
                                           choice mode) {
  return selecting(cases, count, mode).run();
}

// If only one case may be ready, there is nothing to draw.
std::size_t select_one(select_case* const* cases, std::size_t count, choice mode) {
  std::size_t only = none;
  std::size_t others = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if (is_near(*cases[i])) {
      if (only != none) return select_among(cases, count, mode);
      only = i;
    } else if (mode == choice::ordered && cases[i]->object != nullptr) {
      return select_among(cases, count, mode);  // a far timer has its turn before others
    } else if (cases[i]->type == select_case::kind::otherwise && ++others == 2) {
      return select_among(cases, count, mode);  // which says what is wrong
    }
  }
  if (only != none) {
    if (cases[only]->table->look(*cases[only])) return only;
  }
  return select_among(cases, count, mode);
}

}  // namespace

void throw_select_within() {
  throw std::logic_error(
      "vigil::select: the list of cases is being selected from already, by the select whose "
      "function is running; give the inner select a list of its own");
}

std::size_t select(select_case* const* cases, std::size_t count, choice mode) {
  return detail::select_one(cases, count, mode);
}

}  // namespace vigil::inline VIGIL_ABI::detail
