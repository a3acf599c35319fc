#include "core/clocks/clock_hub.hpp"

#include "core/base/clock_source.hpp"
#include "core/sched/report/dump_writer.hpp"
#include "core/sched/worker/runtime_part.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <ctime>

namespace VIGIL_DETAIL {
namespace {

// The runtime's hold of its hub.
class clock_part final : public runtime_part {
 public:
  explicit clock_part(scheduler& s) : hub(std::make_shared<clock_hub>(s)) {}

  ~clock_part() override { hub->listener().is_over(); }

  void stop_all() noexcept override {}  // the waits are those of fibers and tasks

  void write(dump_writer& out) noexcept override { hub->write(out); }

  const std::shared_ptr<clock_hub> hub;
};

nanos read_kernel(clock_kind kind) noexcept {
  return read_clock(kind == clock_kind::wall ? CLOCK_REALTIME : CLOCK_BOOTTIME);
}

bool tell(void* hub) noexcept {
  return static_cast<clock_hub*>(hub)->tell_all();
}

}  // namespace

clock_hub::clock_hub(scheduler& s)
    : service_(service_of(s)),
      generation_(service_.generation()),
      virtual_(s.clock.is_virtual()),
      listener_(&tell, this) {}

const std::shared_ptr<clock_hub>& clock_hub::of(scheduler& s) {
  return s.parts_above
      .find_or_make<clock_part>(runtime_part::kind::clocks,
                                [&s] { return std::make_unique<clock_part>(s); })
      .hub;
}

nanos clock_hub::now_in(scheduler* s, clock_kind kind) noexcept {
  if (s == nullptr) return read_kernel(kind);
  if (runtime_part* const made = s->parts_above.find(runtime_part::kind::clocks))
    return static_cast<clock_part*>(made)->hub->now(kind);
  return s->clock.is_virtual() ? s->clock.now() : read_kernel(kind);
}

nanos clock_hub::runtime_now() const noexcept {
  return virtual_ ? service_.now_in(generation_) : monotonic_now();
}

nanos clock_hub::now(clock_kind kind) const noexcept {
  const nanos unshifted = virtual_ ? runtime_now() : read_kernel(kind);
  return saturating_add(unshifted, shift_[static_cast<std::size_t>(kind)].load());
}

// The clock is read before the runtime's, so the time between the two readings makes the
// image late, never early. The thread may lose the processor in between, so they are read
// again if that took long.
nanos clock_hub::image(clock_kind kind, nanos when) const noexcept {
  constexpr nanos quick = 1'000;
  nanos best = never;
  nanos earliest = never - 1;
  for (int tries = 0; tries < 4 && best > quick; ++tries) {
    const nanos before = runtime_now();
    const nanos of_clock = now(kind);
    const nanos after = runtime_now();
    const nanos instant = saturating_add(after, distance(of_clock, when));
    if (after - before < best) {
      best = after - before;
      earliest = instant;
    }
  }
  return std::min(earliest, never - 1);
}

void clock_hub::begin_pending() {
  if (!virtual_) listener_.begin();
  pending_.fetch_add(1);
}

void clock_hub::end_pending() noexcept {
  pending_.fetch_sub(1);
  if (!virtual_) listener_.end();
}

void clock_hub::add(clock_follower& f) noexcept {
  const lock_guard guard(lock_);
  if (f.among_followers.linked) return;
  f.told = changes_;
  followers_.push_back(f);
}

void clock_hub::remove(clock_follower& f) noexcept {
  const lock_guard guard(lock_);
  if (f.among_followers.linked) followers_.remove(f);
}

bool clock_hub::tell_all() noexcept {
  {
    const lock_guard guard(lock_);
    ++changes_;
  }
  bool all_told = true;
  for (;;) {
    clock_follower* kept = nullptr;
    {
      const lock_guard guard(lock_);
      clock_follower* const f = followers_.front();
      if (f == nullptr || f->told == changes_) return all_told;
      followers_.remove(*f);
      f->told = changes_;
      followers_.push_back(*f);
      if (f->keep()) kept = f;
    }
    if (kept != nullptr && !kept->clock_changed()) all_told = false;
  }
}

std::uint64_t clock_hub::changes() const noexcept {
  const lock_guard guard(lock_);
  return changes_;
}

void clock_hub::shift(clock_kind kind, nanos by) noexcept {
  atomic<nanos>& shift = shift_[static_cast<std::size_t>(kind)];
  shift.store(saturating_add(shift.load(), by));
}

void clock_hub::write(dump_writer& out) noexcept {
  const std::size_t pending = pending_.load();
  if (pending == 0) return;
  out.text("on wall or boot time: ").number(pending).text(" pending");
  if (lock_.try_lock()) {
    out.text(", ").number(followers_.size()).text(" filed; ");
    out.number(changes_).text(" steps and resumes heard");
    lock_.unlock();
  }
  out.text("\n");
}

}  // namespace VIGIL_DETAIL
