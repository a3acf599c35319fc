#include "core/idle_timeouts/timeout_core.hpp"

#include "core/idle_timeouts/spare_rooms.hpp"
#include "core/sched/call/caller.hpp"

#include <vigil/error.hpp>

#include <algorithm>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace VIGIL_DETAIL {

namespace {

// Lists that no handle uses now. Never freed (TL4).
struct spare_lists {
  std::mutex lock;
  timeout_core* first = nullptr;
};

spare_lists& list_spares() {
  static auto& made = *new spare_lists;
  return made;
}

}  // namespace

// The function that the timer calls. Owns a use of the list.
class timeout_callback {
 public:
  explicit timeout_callback(timeout_core& list) noexcept : list_(&list) { list.retain(); }

  timeout_callback(timeout_callback&& other) noexcept
      : list_(std::exchange(other.list_, nullptr)) {}

  timeout_callback& operator=(timeout_callback&&) = delete;

  ~timeout_callback() {
    if (list_ != nullptr) list_->release();
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
  return current_service(call,
                         "make the list on a fiber. Entries may be added, touched and "
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
    spare_lists& spare = list_spares();
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
    // If this throws, the callback's use is already gone.
    c->timer_ = service.make_record(callback(timeout_callback(*c)), 0, false, from);
    c->generation_ = c->timer_->generation;
    if (c->generation_ != run) {
      c->timer_->release();
      throw runtime_gone("vigil::timeout_lists::add: the runtime of the lists has ended");
    }
  } catch (...) {
    c->release();
    throw;
  }
  // ordering: nobody else has the timer yet.
  c->timer_->referenced.store(false, order::relaxed);
  c->function_ = f;
  {
    const lock_guard guard(c->lock_);  // against a caller that read an entry's home long ago (TL4)
    c->closed_ = false;
    c->armed_ = never;
  }
  service.listeners().add(*c);
  return *c;
}

void timeout_core::retain() noexcept {
  uses_.fetch_add(1);
}

void timeout_core::release() noexcept {
  if (uses_.fetch_sub(1) != 1) return;
  if (function_ != nullptr) drop_function(std::exchange(function_, nullptr));
  one_of_many_ = true;
  {
    const lock_guard guard(lock_);
    spare_room();
  }
  spare_lists& spare = list_spares();
  const std::lock_guard guard(spare.lock);
  next_spare = std::exchange(spare.first, this);
}

// TL8. Nothing expires any more: no on_expire runs, and no callback will.
void timeout_core::run_ends() noexcept {
  take_all_out();
}

void timeout_core::close() noexcept {
  {
    const lock_guard guard(lock_);
    closed_ = true;
  }
  service_->listeners().remove(*this);  // not before: the run's end takes out late additions (TL8)
  take_all_out();
}

bool timeout_core::is_unused() const noexcept {
  const lock_guard guard(lock_);
  return size_.load() == 0 && runs_.empty();
}

// --- the timer

void timeout_core::arm(nanos deadline) {
  if (deadline >= runtime_timer::latest) {
    disarm();
    return;
  }
  if (deadline == armed_) return;
  service_->reset_at(*timer_, deadline);
  armed_ = deadline;
}

// Arms the timer. Without memory for that it queues the callback again instead, which
// takes none: late, never lost.
void timeout_core::arm_surely(nanos deadline) noexcept {
  try {
    arm(deadline);
  } catch (const std::bad_alloc&) {
    arm(at_once);
  }
}

void timeout_core::disarm() noexcept {
  // Stops the timer whatever armed_ says: a callback on its way to the lock clears that,
  // and the timer may have been armed since it rang.
  // The timer holds no program, so stopping it notifies nobody under this lock.
  service_->stop(static_cast<runtime_timer&>(*timer_));
  armed_ = never;
}

// --- in and out

void timeout_core::need_room() {
  if (!order_.has_room()) order_.give_room(detail::rooms().take());
}

// Gives the room back if the last entry has left (TL7).
void timeout_core::spare_room() noexcept {
  if (one_of_many_ && size_.load() == 0 && order_.has_room())
    detail::rooms().give(order_.take_room());
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
    if (closed_) return;  // TL6
    need_room();
    timeout_core* nobody = nullptr;
    if (!n.home.compare_exchange_strong(nobody, this)) continue;  // another caller has added it
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
    if (n.home.load() != c) continue;  // TL4
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

// Returns true if no entry is left. Caller: nothing comes in any more.
bool timeout_core::take_some_out() noexcept {
  for (unsigned i = 0; i < moves_at_once; ++i) {
    timeout_node* n = order_.any();
    for (batch* b = batches_.front(); n == nullptr && b != nullptr; b = batch_list::next(*b))
      n = b->any();
    if (n == nullptr) return true;
    take_out_here(*n);
  }
  return false;
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

std::size_t expire_now(timeout_core* list) {
  return checked(list, "expire_now").expire_now();
}

std::size_t size_of(const timeout_core* list) noexcept {
  return list != nullptr ? list->size() : 0;
}

std::int64_t duration_of(const timeout_core* list) noexcept {
  return list != nullptr ? list->duration() : 0;
}

}  // namespace VIGIL_DETAIL
