#include "sched/worker/slow_fiber.hpp"

#include "base/assert.hpp"
#include "base/clock_source.hpp"
#include "sched/fiber/fiber_words.hpp"

#include <cstring>

namespace VIGIL_DETAIL {

slow_fibers::slow_fibers(nanos limit, std::size_t workers)
    : limit_(limit), workers_(workers), stretches_(std::make_unique<stretch[]>(workers)) {}

void slow_fibers::begins(std::size_t worker, fiber& f) noexcept {
  stretch& s = stretches_[worker];
  report r{};
  bool slow = false;
  {
    const nanos now = monotonic_now();
    const lock_guard guard(s.lock);
    slow = look(s, now, false, r);
    s.of = f.role == fiber_role::timer ? nullptr : &f;
    s.since = now;
    s.named = f.turns.named_slow;
    s.callback = f.role == fiber_role::runner;
    s.id = f.identity.id;
    s.file = f.identity.file;
    s.line = f.identity.line;
    std::memcpy(s.name, f.identity.name, sizeof s.name);
  }
  if (slow) name(r);
}

void slow_fibers::ends(std::size_t worker) noexcept {
  stretch& s = stretches_[worker];
  report r{};
  bool slow = false;
  {
    const nanos now = monotonic_now();
    const lock_guard guard(s.lock);
    slow = look(s, now, false, r);
    s.of = nullptr;
  }
  if (slow) name(r);
}

// True if the fiber is to be named, which happens once.
bool slow_fibers::look(stretch& s, nanos now, bool goes_on, report& r) noexcept {
  if (s.of == nullptr) return false;
  const bool slow = !s.named && now - s.since > limit_;
  s.named = s.named || slow;
  // The fiber belongs to its worker until the stretch has ended here.
  if (!goes_on && s.named && !s.callback) s.of->turns.named_slow = true;
  if (!slow) return false;
  r = {now - s.since, goes_on, s.callback, s.id, s.file, s.line, {}};
  std::memcpy(r.name, s.name, sizeof r.name);
  return true;
}

void slow_fibers::name(const report& r) noexcept {
  if (r.callback) {
    const lock_guard guard(sites_lock_);
    for (std::size_t i = 0; i < site_count_; ++i) {
      if (sites_[i].file == r.file && sites_[i].line == r.line) return;
    }
    if (site_count_ < sites_kept) sites_[site_count_++] = {r.file, r.line};
  }
  warn(
      "slow_fiber: %s, started at %s, %s its worker %.3f ms without a switch%s; "
      "options::slow_fiber is %.3f ms. What blocks its thread (std::mutex, "
      "std::this_thread::sleep_for, read()) keeps others waiting: use vigil's own, or "
      "vigil::blocking; in a long computation call this_fiber::yield now and then",
      fiber_words(r.id, r.name).text(),
      place_in_words(r.file, r.line).text,
      r.goes_on ? "has held" : "held",
      static_cast<double>(r.held) / 1e6,
      r.goes_on ? ", and still does" : "",
      static_cast<double>(limit_) / 1e6);
}

// A stretch is seen no later than when it is twice as long as allowed.
nanos slow_fibers::look_at_all(nanos now) noexcept {
  if (now < next_look_) return next_look_;
  for (std::size_t i = 0; i < workers_; ++i) {
    stretch& s = stretches_[i];
    report r{};
    bool slow = false;
    {
      const lock_guard guard(s.lock);
      slow = look(s, monotonic_now(), true, r);
    }
    if (slow) name(r);
  }
  next_look_ = saturating_add(now, limit_);
  return next_look_;
}

}  // namespace VIGIL_DETAIL
