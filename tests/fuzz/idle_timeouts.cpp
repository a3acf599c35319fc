// Covers: src/core/idle_timeouts/expire_now.cpp src/core/idle_timeouts/on_expire.cpp
// Covers: src/core/idle_timeouts/timeout_core.cpp
// Covers: src/core/idle_timeouts/timeout_order.cpp
// Covers: src/core/idle_timeouts/timeout_table.cpp
//
// Programs of lists of idle timeouts on virtual time, beside the model of
// timeout_model.hpp.
#include "fuzz/input.hpp"
#include "fuzz/timeout_crowd.hpp"
#include "fuzz/timeout_model.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/context.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/mutex.hpp>
#include <vigil/options.hpp>
#include <vigil/testing.hpp>
#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <utility>

namespace {

using namespace fuzz;

class program final : public timeout_model {
 public:
  using timeout_model::timeout_model;

  void main() {
    for (std::size_t i = 0; i < lists; ++i)
      make_list(i);
    make_list(lists);
    while (!in_.ended() && !is_over_) {
      step();
      check();
    }
  }

  // Whether an on_expire has waited for a lock as nothing else could happen.
  [[nodiscard]] bool is_stuck() const noexcept { return is_stuck_; }

 private:
  connection& some() { return *all_[in_.below(all_.size())]; }

  void step() {
    switch (in_.below(15)) {
      case 0:
        return advance(nanos{in_.byte()} * unit);
      case 1:
        return advance(nanos{in_.byte()} << in_.below(48));
      case 2:
        return add(some());
      case 3:
        return touch(some());
      case 4:
        return touch_at(some());
      case 5:
        return remove(some(), false);
      case 6:
        return destroy(in_.below(all_.size()));
      case 7:
        return expire_some();
      case 8:
        return end_list(in_.below(lists + 1), nullptr);
      case 9:
        return make_list(in_.below(lists + 1));
      case 10:
        return plan_for(some());
      case 11:
        return mistakes();
      case 12:
        return crowd();
      case 13:
        return expire_stopped(in_.below(lists));
      default:
        return rest();
    }
  }

  void advance(nanos length) {
    vigil::sleep_for(nanoseconds(length));
    rest();
  }

  void plan_for(connection& c) {
    plan& p = c.planned;
    const std::uint8_t drawn = in_.byte();
    const bool is_rare = drawn >= 0xf8;
    p.what = static_cast<deed>(is_rare ? common_deeds + drawn % (deeds - common_deeds)
                                       : drawn % common_deeds);
    p.other = in_.below(all_.size());
    p.list = in_.below(lists + 1);
    p.length = some_period(in_);
  }

  void expire_some() {
    const std::uint8_t drawn = in_.byte();
    const std::size_t i = drawn % (lists + 1);
    if (drawn < 0xf0) return expire_now(i);
    is_over_ = true;
    drawn < 0xf8 ? end_in_expiry(i) : get_stuck_in_expiry(i);
  }

  // The fiber that calls expire_now is stopped in the middle of it, in an on_expire that
  // sleeps: the entries that are left are put off.
  void expire_stopped(std::size_t i) {
    bool is_stopped = false;
    vigil::fiber<> f = vigil::spawn([&] {
      try {
        expire_now(i);
      } catch (const vigil::stopped&) {
        is_stopped = true;
      }
    });
    vigil::sleep_for(nanoseconds(some_period(in_)));
    for (const auto& c : all_)
      c->is_let_go = c->is_in_batch;
    f.request_stop();
    f.join();
    if (!is_stopped) return;
    batch_ = nowhere;
    for (const auto& c : all_) {
      // One that ran may have been put off before, and by the list's timer since.
      if (c->is_in_batch && !c->ran_before_batch) c->last = std::max(c->last, now());
      c->observe();
      const bool may_stay = c->last >= now() || c->may_be_past_batch(batch_begun_);
      expect(!c->is_in_batch || may_stay, "a stop puts off all that are left");
      c->is_in_batch = false;
    }
  }

  // The run ends while a fiber calls expire_now.
  void end_in_expiry(std::size_t i) {
    vigil::go([this, i] { expire_now(i); });
    vigil::sleep_for(nanoseconds(some_period(in_)));
  }

  // A deadlock ends the run if an on_expire locks the mutex.
  void get_stuck_in_expiry(std::size_t i) {
    vigil::fiber<> f;
    const std::lock_guard held(mutex_);  // until a deadlock, and no longer: f may lock again
    f = vigil::spawn([this, i] { expire_now(i); });
    f.join();
  }

  void crowd() {
    if (std::exchange(had_crowd_, true)) return;  // it is slow
    timeout_crowd(in_).main();
  }

  void mistakes() {
    const auto nothing = [](vigil::timeout_list::entry&) {};
    const nanoseconds zero(0);
    expect(throws<std::invalid_argument>([&] { vigil::timeout_list l(zero, nothing); }), "of 0");
    vigil::timeout_list a(nanoseconds(unit), nothing);
    vigil::timeout_list b(std::move(a));
    a = std::move(b);
    connection c;
    expect(throws<std::logic_error>([&] { b.add(c.entry); }), "moved from");
    expect(throws<std::logic_error>([&] { b.expire_now(); }), "moved from");
    expect(b.size() == 0 && b.duration() == zero, "moved from");
    a.add(c.entry);
    if (!is_there(lists)) return;
    expect(throws<std::invalid_argument>([&] { table_->add(c.entry, zero); }), "of 0");
    expect(c.entry.is_linked(), "it stays where it was");
    vigil::timeout_lists moved(std::move(*table_));
    expect(throws<std::logic_error>([&] { table_->add(c.entry, nanoseconds(1)); }), "moved from");
    expect(throws<std::logic_error>([&] { table_->expire_now(); }), "moved from");
    expect(table_->size() == 0 && table_->lists() == 0, "moved from");
    *table_ = std::move(moved);
  }

  // --- on_expire

  void act(connection& c, bool& is_destroyed) override {
    const plan p = c.planned;
    connection& other = *all_[p.other];
    const bool is_free = !other.is_running && !other.is_leaving;
    switch (p.what) {
      case deed::none:
        return;
      case deed::sleep:
        return vigil::sleep_for(nanoseconds(p.length));
      case deed::add_self:
        return add(c, p.list, p.length);
      case deed::add_self_and_sleep:
        add(c, p.list, p.length);
        return vigil::sleep_for(nanoseconds(p.length));
      case deed::sleep_and_add_self:
        vigil::sleep_for(nanoseconds(p.length));
        return add(c, p.list, p.length);
      case deed::remove_self:
        return remove(c, true);
      case deed::destroy_self:
        if (c.is_leaving) return;
        is_destroyed = true;
        return destroy(index_of(c));
      case deed::touch_other:
        if (is_free) touch(other);
        return;
      case deed::add_other:
        if (is_free) add(other, p.list, p.length);
        return;
      case deed::remove_other:
        if (is_free) remove(other, false);
        return;
      case deed::end_list:
        return end_list(c.runs_for, &c);
      case deed::throw_error:
        ++thrown_;
        throw std::runtime_error("of an on_expire");
      case deed::throw_cancelled: {
        const auto ended = vigil::with_timeout(vigil::background(), nanoseconds(0));
        if (!ends_silently()) ++thrown_;
        return vigil::sleep_for(nanoseconds(p.length), ended.ctx);
      }
      case deed::throw_deadlock:
        if (!is_stuck_) ++thrown_;
        throw vigil::deadlock("of an on_expire");
      case deed::sleep_under_root:
        return vigil::sleep_for(nanoseconds(p.length), vigil::background());
      case deed::lock_and_unlock:
        return lock_and_unlock();
    }
  }

  // Whether a `cancelled` that leaves an on_expire of the calling fiber is not reported.
  static bool ends_silently() {
    return vigil::this_fiber::stop_requested() || vigil::background().is_done();
  }

  void lock_and_unlock() {
    try {
      mutex_.lock();
    } catch (const vigil::deadlock&) {
      is_stuck_ = true;
      throw;
    }
    mutex_.unlock();
  }

  [[nodiscard]] std::size_t index_of(const connection& c) const {
    std::size_t i = 0;
    while (all_[i].get() != &c)
      ++i;
    return i;
  }

  vigil::mutex mutex_;
  bool is_over_ = false;
  bool is_stuck_ = false;
  bool had_crowd_ = false;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  vigil::testing::virtual_options o;
  o.seed = 1 + std::uint64_t{in.byte()};
  program p(in);
  o.runtime.on_unhandled = [&p](const std::exception_ptr&) { p.note_unhandled(); };
  bool is_stuck = false;
  try {
    vigil::testing::run_virtual(o, [&p] { p.main(); });
  } catch (const vigil::deadlock&) {
    is_stuck = true;
  }
  expect(is_stuck == p.is_stuck(), "a deadlock ends the run that is stuck");
  p.check_gone();
  return 0;
}
