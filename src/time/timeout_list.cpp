#include "sched/caller.hpp"
#include "sched/process.hpp"
#include "time/timeout_core.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace vigil {
inline namespace VIGIL_ABI {
namespace detail {

using internal::lock_guard;
using internal::nanos;
using internal::never;
using internal::outcome;
using internal::saturating_add;
using internal::spinlock;
using internal::timeout_order;
using internal::timer_service;

namespace {

// The run locks.
struct alignas(internal::cache_line) run_lock {
  spinlock lock{internal::lock_rank::timeout_run};
};

spinlock& lock_of(const timeout_node& n) noexcept {
  static constinit run_lock locks[16];
  const auto address = reinterpret_cast<std::uintptr_t>(&n);
  return locks[(address >> 5 ^ address >> 12) % 16].lock;
}

// What is to wait for r. On the stack of the only worker it would wait for ever.
void check_may_wait(const timeout_run& r) noexcept {
  if (const internal::fiber* const f = internal::current_fiber()) {
    internal::check_may_park(*f);
    return;
  }
  const internal::worker* const w = internal::current_worker();
  if (w == nullptr || &w->sched != r.on->sched || w->sched.workers().size() > 1) return;
  internal::fatal(
      "an entry is removed or destroyed, or its timeout list destroyed, inside a handler on the "
      "only worker's own stack, while an on_expire runs: it would be waited for for ever; do it on "
      "a fiber (go), or give the runtime more workers");
}

// Lists that no handle uses now. Never freed (C4).
struct spare_lists {
  std::mutex lock;
  timeout_core* first = nullptr;
};

spare_lists& spares() {
  static auto& made = *new spare_lists;
  return made;
}

// Rooms that no list uses now: a few are kept, for lists by duration that are
// empty by turns.
class spare_rooms {
 public:
  using room = timeout_order::room;

  // Throws std::bad_alloc.
  room& take() {
    {
      const lock_guard guard(lock_);
      if (room* const r = first_) {
        first_ = r->next;
        --many_;
        return *r;
      }
    }
    return *new room;
  }

  void give(room* r) noexcept {
    {
      const lock_guard guard(lock_);
      if (many_ < most) {
        r->next = std::exchange(first_, r);
        ++many_;
        return;
      }
    }
    delete r;
  }

 private:
  static constexpr unsigned most = 32;

  spinlock lock_{internal::lock_rank::timeout_rooms};
  room* first_ VIGIL_GUARDED_BY(lock_) = nullptr;
  unsigned many_ VIGIL_GUARDED_BY(lock_) = 0;
};

spare_rooms& rooms() {
  static auto& made = *new spare_rooms;
  return made;
}

}  // namespace

// What the timer calls. Owns a use of the list.
class timeout_callback {
 public:
  explicit timeout_callback(timeout_core& list) noexcept : list_(&list) { list.keep(); }

  timeout_callback(timeout_callback&& other) noexcept
      : list_(std::exchange(other.list_, nullptr)) {}

  timeout_callback& operator=(timeout_callback&&) = delete;

  ~timeout_callback() {
    if (list_ != nullptr) list_->let_go();
  }

  void operator()() { list_->run_due(); }

 private:
  timeout_core* list_;
};

// --- the list's life

void timeout_core::drop_function(timeout_function* f) noexcept {
  if (f->uses.fetch_sub(1) == 1) delete f;
}

timer_service& timeout_core::service_here(const char* call) {
  return internal::current_service(
      call,
      "this thread has no runtime; make the list on a fiber. Entries may be added, touched and "
      "removed from any thread");
}

timeout_core& timeout_core::make(const char* call,
                                 timer_service& service,
                                 std::uint32_t run,
                                 nanos duration,
                                 timeout_function* f,
                                 const site& from,
                                 bool one_of_many) {
  if (duration <= 0) {
    throw std::invalid_argument(std::string("vigil::") + call +
                                ": the duration must be longer than zero");
  }
  timeout_core* c = nullptr;
  {
    spare_lists& spare = spares();
    const std::lock_guard guard(spare.lock);
    c = spare.first;
    if (c != nullptr) spare.first = c->next_spare;
  }
  if (c == nullptr) c = new timeout_core;
  c->service_ = &service;
  c->uses_.store(1);
  c->duration_ = duration;
  c->one_of_many_ = one_of_many;
  try {
    if (!one_of_many) {
      const lock_guard guard(c->lock_);
      c->need_room();
    }
    // If this throws, the callback's use has gone already.
    c->timer_ = service.make_record(callback(timeout_callback(*c)), 0, false, from);
    c->generation_ = c->timer_->generation;
    if (c->generation_ != run) {
      timer_service::drop_handle(*c->timer_);
      throw runtime_gone("vigil::timeout_lists::add: the runtime of the lists has ended");
    }
  } catch (...) {
    c->let_go();
    throw;
  }
  // ordering: nobody else has the timer yet.
  c->timer_->referenced.store(false, internal::relaxed);
  c->function_ = f;
  {
    const lock_guard guard(c->lock_);  // against one who has read an entry's home long ago (C4)
    c->closed_ = false;
    c->armed_ = never;
  }
  service.add_listener(*c);
  return *c;
}

void timeout_core::keep() noexcept {
  uses_.fetch_add(1);
}

void timeout_core::let_go() noexcept {
  if (uses_.fetch_sub(1) != 1) return;
  if (function_ != nullptr) drop_function(std::exchange(function_, nullptr));
  one_of_many_ = true;
  {
    const lock_guard guard(lock_);
    spare_room();
  }
  spare_lists& spare = spares();
  const std::lock_guard guard(spare.lock);
  next_spare = std::exchange(spare.first, this);
}

// C8. Nothing expires any more: no on_expire runs, and no callback will.
void timeout_core::run_ends() noexcept {
  take_all_out();
}

void timeout_core::close() noexcept {
  {
    const lock_guard guard(lock_);
    closed_ = true;
  }
  service_->remove_listener(*this);  // no sooner: what comes in is taken out (C8)
  take_all_out();
}

bool timeout_core::is_unused() const noexcept {
  const lock_guard guard(lock_);
  return size_.load() == 0 && runs_.empty();
}

void timeout_core::end_closed() noexcept {
  const internal::fiber* const self = internal::current_fiber();
  timeout_function* function = nullptr;
  for (;;) {
    internal::caller caller;
    lock_.lock();
    timeout_run* r = runs_.front();
    while (r != nullptr && r->on == self)
      r = run_list::next(*r);
    if (r == nullptr) {
      if (runs_.empty()) function = std::exchange(function_, nullptr);
      lock_.unlock();
      break;
    }
    check_may_wait(*r);
    spinlock& held = *r->lock;
    held.lock();  // r is in runs_, so it has not told its waiters yet
    timeout_run::waiting mine{&caller.self(), caller.open(), r->waiters};
    r->waiters = &mine;
    lock_.unlock();
    caller.wait(mine.which, internal::wait_reason::on_expire, held);
  }
  if (function != nullptr) drop_function(function);  // C5
  timer_service::drop_handle(*timer_);
  let_go();
}

// --- the timer

void timeout_core::arm(nanos deadline) {
  if (deadline >= internal::runtime_timer::latest) {
    disarm();
    return;
  }
  if (deadline == armed_) return;
  service_->reset_at(*timer_, deadline);
  armed_ = deadline;
}

// Without memory for it the callback is queued again instead, which takes none:
// late, never lost.
void timeout_core::arm_surely(nanos deadline) noexcept {
  try {
    arm(deadline);
  } catch (const std::bad_alloc&) {
    arm(at_once);
  }
}

void timeout_core::disarm() noexcept {
  // Whatever armed_ says: a callback on its way to the lock clears that, and the
  // timer may have been armed since it rang.
  // Never referenced: it holds no program, and nobody is to be told, under this lock.
  service_->stop(static_cast<internal::runtime_timer&>(*timer_));
  armed_ = never;
}

// --- in and out

void timeout_core::need_room() {
  if (!order_.has_room()) order_.give_room(rooms().take());
}

// C7. Wherever the last entry has left it.
void timeout_core::spare_room() noexcept {
  if (one_of_many_ && size_.load() == 0 && order_.has_room()) rooms().give(order_.take_room());
}

void timeout_core::add(timeout_node& n, bool surely) {
  for (;;) {
    take_out(n);
    const lock_guard guard(lock_);
    if (!service_->is_in_run(generation_)) {
      throw runtime_gone(
          "vigil::timeout_list::add: no run of the list's runtime is under way, so nothing would "
          "expire; add entries while run() runs, and again in the next run");
    }
    if (closed_) return;  // C6
    need_room();
    timeout_core* none = nullptr;
    if (!n.home.compare_exchange_strong(none, this)) continue;  // somebody else has added it
    const nanos time = std::max<nanos>(1, now());
    const nanos deadline = saturating_add(time, duration_);
    if (surely && deadline < armed_) arm_surely(deadline);
    if (deadline < armed_) {
      try {
        arm(deadline);
      } catch (...) {
        n.home.store(nullptr);
        throw;
      }
    }
    if (size_.load() == 0) order_.begin_at(time);
    size_.store(size_.load() + 1);
    order_.insert(n, time);
    n.touched.store(time);
    return;
  }
}

void timeout_core::take_out_here(timeout_node& n) noexcept {
  n.touched.store(0);
  timeout_order::unlink(n);
  size_.store(size_.load() - 1);
  n.home.store(nullptr);
}

bool timeout_core::take_out(timeout_node& n) noexcept {
  while (timeout_core* const c = n.home.load()) {
    const lock_guard guard(c->lock_);
    if (n.home.load() != c) continue;  // C4
    c->take_out_here(n);
    if (c->size_.load() == 0) c->disarm();
    c->spare_room();
    return true;
  }
  return false;
}

void timeout_core::take_all_out() noexcept {
  for (bool is_done = false; !is_done;) {
    const lock_guard guard(lock_);
    is_done = take_some_out();
    if (!is_done) continue;
    disarm();
    spare_room();
  }
}

// True if none is left. Caller: nothing comes in any more.
bool timeout_core::take_some_out() noexcept {
  for (unsigned i = 0; i < moves_at_once; ++i) {
    timeout_node* n = order_.any();
    for (batch* b = batches_.front(); n == nullptr && b != nullptr; b = batch_list::next(*b))
      n = b->first();
    if (n == nullptr) return true;
    take_out_here(*n);
  }
  return false;
}

// --- expiring

// The first entry, if it is due. Otherwise arms the timer for it.
timeout_node* timeout_core::due(nanos now, unsigned& moves) noexcept {
  const timeout_order::found f = order_.first(now, moves);
  if (f.more) {
    arm_surely(at_once);
    return nullptr;
  }
  // Not what its word says by now: it may not be the first any more.
  const nanos deadline = saturating_add(f.time, duration_);
  if (f.first != nullptr && deadline <= now) return f.first;
  arm_surely(deadline);
  return nullptr;
}

// The claim. False if n was touched meanwhile, or is put off (C2).
bool timeout_core::begin(timeout_run& r, timeout_node& n, nanos touched) noexcept {
  r.lock = &lock_of(n);
  {
    const lock_guard guard(*r.lock);
    if (n.run.load() == nullptr) {
      if (!n.touched.compare_exchange_strong(touched, 0)) return false;
      r.entry = &n;
      n.run.store(&r);  // C1
    }
  }
  if (r.entry == nullptr) {
    put_off(n);
    return false;
  }
  timeout_order::unlink(n);
  size_.store(size_.load() - 1);
  n.home.store(nullptr);
  runs_.push_back(r);
  keep();
  return true;
}

// On a runner.
void timeout_core::run_due() {
  timeout_run r(this, internal::current_fiber());
  {
    const lock_guard guard(lock_);
    armed_ = never;
    if (closed_) return;
    const nanos time = now();
    unsigned moves = moves_at_once;
    for (;;) {
      timeout_node* const n = due(time, moves);
      if (n == nullptr) return;
      const nanos touched = n->touched.load();
      if (saturating_add(touched, duration_) <= time && begin(r, *n, touched)) break;
      if (moves == 0) {
        arm_surely(at_once);
        return;
      }
      --moves;
    }
    if (due(time, moves) != nullptr) arm_surely(at_once);
    spare_room();
  }
  call(r);
}

void timeout_core::call(timeout_run& r) {
  struct guard {
    timeout_run& r;

    ~guard() { r.list->finish(r); }
  };

  const guard at_the_end{r};
  function_->call(*r.entry);
}

void timeout_core::finish(timeout_run& r) noexcept {
  {
    const lock_guard guard(lock_);
    runs_.remove(r);
  }
  timeout_run::waiting* w = nullptr;
  {
    const lock_guard guard(*r.lock);
    if (r.entry != nullptr) r.entry->run.store(nullptr);
    w = r.waiters;  // the entry may be gone once the run lock is free
  }
  while (w != nullptr) {
    timeout_run::waiting& done = *w;
    w = w->next;
    if (done.who->claim(done.which, outcome::value)) done.who->deliver();
  }
  let_go();
}

// As if it were touched now. Into order_, even out of a batch.
void timeout_core::put_off(timeout_node& n) noexcept {
  const nanos time = now();
  nanos last = n.touched.load();
  while (last < time && !n.touched.compare_exchange_strong(last, time)) {
  }
  timeout_order::unlink(n);
  order_.insert(n, std::max(last, time));
  const nanos deadline = saturating_add(time, duration_);
  if (deadline < armed_) arm_surely(deadline);
}

void timeout_core::await_run(timeout_node& n, bool gone) noexcept {
  while (n.run.load() != nullptr) {
    internal::caller caller;
    spinlock& lock = lock_of(n);
    lock.lock();
    timeout_run* const r = n.run.load();
    if (r == nullptr || r->on == internal::current_fiber()) {
      if (r != nullptr && gone) r->entry = nullptr;  // C2
      lock.unlock();
      return;
    }
    check_may_wait(*r);
    timeout_run::waiting mine{&caller.self(), caller.open(), r->waiters};
    r->waiters = &mine;
    caller.wait(mine.which, internal::wait_reason::on_expire, lock);
  }
}

// False if nothing is left to be moved.
bool timeout_core::move_some(batch& to, std::size_t& left) noexcept {
  for (unsigned moves = moves_at_once; left > 0; --left) {
    if (moves == 0) return true;
    const timeout_order::found f = order_.first(now(), moves);
    if (f.more) return true;
    // Those that were touched in the future come last.
    timeout_node* const n = f.first != nullptr ? f.first : order_.any();
    if (n == nullptr) return false;
    timeout_order::unlink(*n);
    timeout_order::append(to.entries, *n);
    if (moves > 0) --moves;
  }
  return false;
}

timeout_core::batch::batch(timeout_core& of) noexcept : list(of) {
  timeout_order::make_empty(entries);
  list.keep();
  {
    const lock_guard guard(list.lock_);
    list.batches_.push_back(*this);
  }
  std::size_t left = list.size_.load();
  for (bool is_done = false; !is_done;) {
    const lock_guard guard(list.lock_);
    is_done = list.closed_ || !list.move_some(*this, left);
  }
}

timeout_core::batch::~batch() {
  for (bool is_done = false; !is_done;) {
    const lock_guard guard(list.lock_);
    for (unsigned i = 0; i < moves_at_once && !is_done; ++i) {
      timeout_node* const n = first();
      is_done = n == nullptr;
      if (is_done) {
        list.batches_.remove(*this);
      } else if (list.closed_) {
        list.take_out_here(*n);  // C6
      } else {
        list.put_off(*n);
      }
    }
  }
  list.let_go();
}

std::size_t timeout_core::expire_now() {
  internal::fiber& self = internal::require_fiber("timeout_list::expire_now");
  batch now_due(*this);
  for (std::size_t called = 0;;) {
    timeout_run r(this, &self);
    {
      const lock_guard guard(lock_);
      timeout_node* const n = now_due.first();
      if (closed_ || n == nullptr) return called;
      if (!begin(r, *n, n->touched.load())) continue;
      if (size_.load() == 0) disarm();
      spare_room();
    }
    ++called;
    try {
      call(r);
    } catch (const stopped&) {
      throw;
    } catch (const cancelled& e) {
      if (!self.sched->ends_silently(self, e))
        internal::scheduler::report_unhandled(self, std::current_exception());
    } catch (const deadlock& e) {
      if (!self.sched->ends_silently(e))
        internal::scheduler::report_unhandled(self, std::current_exception());
    } catch (...) {
      internal::scheduler::report_unhandled(self, std::current_exception());
    }
  }
}

// --- the public functions

timeout_core* make_timeouts(std::int64_t duration, timeout_function* f, const site& from) {
  try {
    timer_service& service = timeout_core::service_here("timeout_list");
    return &timeout_core::make(
        "timeout_list", service, service.generation(), duration, f, from, false);
  } catch (...) {
    timeout_core::drop_function(f);
    throw;
  }
}

void end_timeouts(timeout_core* list) noexcept {
  list->end();
}

namespace {

timeout_core& checked(timeout_core* list, const char* call) {
  if (list == nullptr) {
    throw std::logic_error(std::string("vigil::timeout_list::") + call +
                           ": the list has been moved from");
  }
  return *list;
}

}  // namespace

void add(timeout_core* list, timeout_node& n) {
  checked(list, "add").add(n);
}

void add_surely(timeout_core* list, timeout_node& n) {
  checked(list, "add").add(n, true);
}

namespace {

// Exact: while the run lock is held no expiry of it begins or ends.
bool is_known(timeout_node& n) noexcept {
  const lock_guard guard(lock_of(n));
  const timeout_run* const r = n.run.load();
  return n.home.load() != nullptr || (r != nullptr && r->on != internal::current_fiber());
}

}  // namespace

bool remove(timeout_node& n) noexcept {
  bool prevented = false;
  // Again, should the on_expire have added it before it ended.
  do {
    prevented = timeout_core::take_out(n) || prevented;
    timeout_core::await_run(n, false);
  } while (is_known(n));
  return prevented;
}

void forget(timeout_node& n) noexcept {
  do {
    timeout_core::take_out(n);
    timeout_core::await_run(n, true);
  } while (is_known(n));
}

std::size_t expire_now(timeout_core* list) {
  return checked(list, "expire_now").expire_now();
}

std::size_t size_of(const timeout_core* list) noexcept {
  return list != nullptr ? list->size() : 0;
}

std::int64_t duration_of(const timeout_core* list) noexcept {
  return list != nullptr ? list->duration() : 0;
}

}  // namespace detail
}  // namespace VIGIL_ABI
}  // namespace vigil
