#include "chan/select_core.hpp"

#include "sched/scheduler.hpp"
#include "sched/wait/caller.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <stdexcept>

#include <boost/container/small_vector.hpp>

namespace vigil::inline VIGIL_ABI::detail {
namespace {

// --- channels as cases

channel_core& channel_of(void* object) noexcept {
  return *static_cast<channel_core*>(object);
}

queued_case& place_of(select_case& c) noexcept {
  static_assert(sizeof(queued_case) <= sizeof c.place);
  return *std::launder(reinterpret_cast<queued_case*>(c.place));
}

void new_place(select_case& c, queued_case*& chosen) noexcept {
  auto& place = *::new (static_cast<void*>(c.place)) queued_case;
  place.value = c.value;
  place.chosen = &chosen;
}

spinlock& lock_of_channel(void* object) noexcept {
  return channel_of(object).lock;
}

void retain_channel(void* object) noexcept {
  detail::retain(&channel_of(object));
}

void release_channel(void* object) noexcept {
  detail::release(&channel_of(object));
}

void claim_channel(select_case& c) noexcept {
  c.status = place_of(c).status;
}

channel_status look_recv(select_case& c) noexcept {
  return detail::try_recv(&channel_of(c.object), c.value);
}

attempt poll_recv(select_case& c) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  return channel_of(c.object).recv_now(c.value);
}

void enqueue_recv(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c.object).wait_to_recv(place_of(c));
}

void retract_recv(select_case& c) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c.object).leave_receivers(place_of(c));
}

channel_status look_send(select_case& c) noexcept {
  return detail::try_send(&channel_of(c.object), c.value);
}

attempt poll_send(select_case& c) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  return channel_of(c.object).send_now(c.value);
}

void enqueue_send(select_case& c) VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c.object).wait_to_send(place_of(c));
}

void retract_send(select_case& c) noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  channel_of(c.object).leave_senders(place_of(c));
}

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

// Whether a look at the case may find something.
bool is_near(const select_case& c) noexcept {
  if (c.type != select_case::kind::waits || c.object == nullptr) return false;
  if (c.table != &recv_case_table) return true;
  const timed_source* const source = channel_of(c.object).source;
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
  std::size_t look_at_all(waiter*& peer) noexcept;

  spinlock& lock_of(std::uint32_t i) noexcept { return cases_[i]->table->lock(cases_[i]->object); }

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

  void enqueue_all(caller& self, queued_case*& chosen);
  void retract_all(const queued_case* but) noexcept;
  [[gnu::noinline]] std::size_t queue_and_wait();

  const shown_select shown_;
  select_case* const* const cases_;
  index_array near_;   // the cases that may be ready
  index_array order_;  // those that can come at all
  index_array locks_;  // the same by the addresses of their locks
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
    c.status = c.table->look(c);
    if (c.status != channel_status::not_ready) return i;
  }
  return none;
}

// Caller: holds all locks.
std::size_t selecting::look_at_all(waiter*& peer) noexcept {
  for (const std::uint32_t i : order_) {
    select_case& c = *cases_[i];
    const attempt done = c.table->poll(c);
    if (done.status == channel_status::not_ready) continue;
    c.status = done.status;
    peer = done.peer;
    return i;
  }
  return none;
}

void selecting::lock_all() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  locks_.clear();
  for (const std::uint32_t i : order_)
    locks_.push_back(i);
  std::sort(locks_.begin(), locks_.end(), [this](std::uint32_t a, std::uint32_t b) {
    return std::less<>()(&lock_of(a), &lock_of(b));
  });
  const spinlock* last = nullptr;
  for (const std::uint32_t i : locks_) {
    spinlock& lock = lock_of(i);
    if (&lock == last) continue;
    last == nullptr ? lock.lock() : lock.lock_beside();
    last = &lock;
  }
}

void selecting::unlock_all() noexcept VIGIL_NO_THREAD_SAFETY_ANALYSIS {
  const spinlock* last = nullptr;
  for (const std::uint32_t i : locks_) {
    spinlock& lock = lock_of(i);
    if (&lock == last) continue;
    last = &lock;
    lock.unlock();
  }
}

// Caller: holds all locks, so no thread sees the places before they are whole. If this
// throws, nothing is queued.
void selecting::enqueue_all(caller& self, queued_case*& chosen) {
  for (std::uint32_t n = 0; n < order_.size(); ++n) {
    select_case& c = *cases_[order_[n]];
    new_place(c, chosen);
    try {
      c.table->enqueue(c);
    } catch (...) {
      while (n-- > 0)
        cases_[order_[n]]->table->retract(*cases_[order_[n]]);
      throw;
    }
  }
  const open_wait all{&self.self(), self.open()};
  for (const std::uint32_t i : order_)
    static_cast<open_wait&>(place_of(*cases_[i])) = all;
}

void selecting::retract_all(const queued_case* but) noexcept {
  for (const std::uint32_t i : order_) {
    select_case& c = *cases_[i];
    if (&place_of(c) == but) continue;
    const lock_guard guard(lock_of(i));
    c.table->retract(c);
  }
}

std::size_t selecting::run() {
  const std::size_t ready = look_at_each();
  if (ready != none) return ready;
  if (order_.size() != 0) return queue_and_wait();
  if (otherwise_ != none) return otherwise_;
  wait_on_nothing(timed_ != none ? wait_reason::select : wait_reason::select_none, limit_);
  return timed_;
}

std::size_t selecting::queue_and_wait() {
  caller self(limit_);
  const bool over = otherwise_ != none || limit_.is_over();  // reads a clock: without the locks
  queued_case* chosen = nullptr;
  waiter* peer = nullptr;
  shuffle(order_);
  lock_all();
  const std::size_t ready = look_at_all(peer);
  if (ready != none) {
    unlock_all();
    if (peer != nullptr) peer->deliver();
    return ready;
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
    enqueue_all(self, chosen);
  } catch (const runtime_gone&) {
    // The runtime of a timer has just ended: its channel is closed now.
    unlock_all();
    return queue_and_wait();
  } catch (...) {
    unlock_all();
    if (current_fiber() != nullptr) current_scheduler()->board.cover_owed();
    throw;
  }
  const ticket t = place_of(*cases_[order_[0]]).ticket;
  unlock_all();
  outcome result = outcome::open;
  try {
    result = self.wait(t, {wait_reason::select, &shown_});
  } catch (...) {
    retract_all(nullptr);
    throw;
  }
  retract_all(chosen);
  if (chosen != nullptr) {
    for (const std::uint32_t i : order_) {
      select_case& c = *cases_[i];
      if (&place_of(c) != chosen) continue;
      c.table->claim(c);
      return i;
    }
  }
  self.throw_if_ended(result);
  return timed_;
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
    select_case& c = *cases[only];
    c.status = c.table->look(c);
    if (c.status != channel_status::not_ready) return only;
  }
  return select_among(cases, count, mode);
}

}  // namespace

constexpr case_table recv_case_table = {look_recv,
                                        lock_of_channel,
                                        poll_recv,
                                        enqueue_recv,
                                        retain_channel,
                                        release_channel,
                                        claim_channel,
                                        retract_recv};
constexpr case_table send_case_table = {look_send,
                                        lock_of_channel,
                                        poll_send,
                                        enqueue_send,
                                        retain_channel,
                                        release_channel,
                                        claim_channel,
                                        retract_send};

void throw_select_within() {
  throw std::logic_error(
      "vigil::select: the list of cases is being selected from already, by the select whose "
      "function is running; give the inner select a list of its own");
}

std::size_t select(select_case* const* cases, std::size_t count, choice mode) {
  return detail::select_one(cases, count, mode);
}

}  // namespace vigil::inline VIGIL_ABI::detail
