// Covers: src/core/idle_timeouts/expire_now.cpp src/core/idle_timeouts/on_expire.cpp
// Covers: src/core/idle_timeouts/timeout_core.cpp
// Covers: src/core/idle_timeouts/timeout_order.cpp
// Covers: src/core/idle_timeouts/timeout_table.cpp
//
// Lists of idle timeouts on virtual time, beside a model that knows of each entry the
// list, the last touch and whether its on_expire runs. So it knows the instant of each
// expiry. An entry that comes due while it runs is put off, as if it were touched then.
// If the run ends in that very instant, last_touch() says which of the two came first.
#include "fuzz/input.hpp"
#include "fuzz/timeout_crowd.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/context.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/mutex.hpp>
#include <vigil/options.hpp>
#include <vigil/testing.hpp>
#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

using namespace fuzz;

constexpr std::size_t lists = 2;  // and one timeout_lists, whose number is this
constexpr std::size_t nowhere = lists + 1;

enum class deed : std::uint8_t {
  none,
  sleep,
  add_self,
  add_self_and_sleep,
  sleep_and_add_self,
  remove_self,
  destroy_self,
  touch_other,
  add_other,
  remove_other,
  end_list,
  throw_error,
  throw_cancelled,
  throw_deadlock,
  sleep_under_root,  // cancelled by the end of the run
  lock_and_unlock,
};

constexpr std::uint8_t deeds = 16;
constexpr std::uint8_t common_deeds = 13;  // the others have a few bytes
constexpr int most_deeds = 6;              // of one connection, so that no program is endless

struct plan {
  deed what = deed::none;
  std::size_t other = 0;
  std::size_t list = 0;
  nanos length = unit;
};

// A connection, its entry, and what the model knows of it.
struct connection {
  plan planned;
  int runs = 0;

  std::size_t home = nowhere;
  nanos last = 0;
  nanos duration = 0;
  bool is_running = false;
  std::size_t runs_for = nowhere;
  bool is_in_batch = false;      // of an expire_now: called when its turn comes
  bool may_be_in_batch = false;  // of that of all lists, since the turn of its list may come
  bool is_touched = false;       // since that began
  bool is_leaving = false;       // it is being removed or destroyed, which may wait

  vigil::timeout_list::entry entry;

  [[nodiscard]] bool is_linked() const { return home != nowhere; }

  [[nodiscard]] nanos due() const { return saturated(last, duration); }

  void unlink() {
    home = nowhere;
    is_in_batch = may_be_in_batch = false;
  }

  // Brings the model to the present: it has been put off each time that it came due in a
  // run.
  void observe() {
    while (is_linked() && is_running && !is_in_batch && due() < now())
      last = due();
    const nanos seen = entry.last_touch().time_since_epoch().count();
    const bool by_batch = is_in_batch || may_be_in_batch;
    const bool may_be_put_off = is_running && (by_batch || due() == now());
    if (is_linked() && may_be_put_off && seen > last && seen <= now()) {
      expect(by_batch || seen == now(), "an entry is put off when it comes due");
      last = seen;
      is_in_batch = false;
    }
    expect(entry.is_linked() == is_linked(), "is_linked()");
    expect(!is_linked() || seen == last, "last_touch()");
  }
};

class program {
 public:
  explicit program(input& in) : in_(in) {}

  void main() {
    for (auto& c : all_)
      c = std::make_unique<connection>();
    for (std::size_t i = 0; i < lists; ++i)
      make_list(i);
    make_list(lists);
    while (!in_.ended() && !is_over_) {
      step();
      check();
    }
  }

  void note_unhandled() noexcept { ++unhandled_; }

  // Whether an on_expire has waited for a lock as nothing else could happen.
  [[nodiscard]] bool is_stuck() const noexcept { return is_stuck_; }

  void check_gone() {
    expect(thrown_ == unhandled_, "each exception is reported once");
    for (const auto& c : all_) {
      expect(!c->entry.is_linked(), "no entry outlives the run");
      expect(!c->entry.touch(), "nor can it be touched");
    }
    for (const auto& l : lists_) {
      if (l == nullptr) continue;
      expect(throws<vigil::runtime_gone>([&] { l->add(all_[0]->entry); }), "add() after the run");
    }
    if (table_ != nullptr) {
      for (const nanos d : {unit, nanos{1}}) {  // perhaps a list of it, and none of it
        expect(throws<vigil::runtime_gone>([&] { table_->add(all_[0]->entry, nanoseconds(d)); }),
               "add() to lists after the run");
      }
    }
    const auto nothing = [](vigil::timeout_list::entry&) {};
    expect(throws<vigil::wrong_place>([&] { vigil::timeout_list l(nanoseconds(1), nothing); }),
           "a list on a plain thread");
    expect(throws<vigil::wrong_place>([&] { vigil::timeout_lists l(nothing); }),
           "lists on a plain thread");
  }

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

  void rest() {
    vigil::testing::settle();
    for (const auto& c : all_) {
      c->observe();
      const bool is_overdue = c->is_linked() && !c->is_running && c->due() <= now();
      expect(!is_overdue, "an expiry is missing");
    }
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

  // --- the lists

  void make_list(std::size_t i) {
    end_list(i, nullptr);
    if (is_ending_[i]) return;
    const auto on_expire = [this](vigil::timeout_list::entry& e) { expire(e); };
    if (i == lists) {
      table_ = std::make_unique<vigil::timeout_lists>(on_expire);
      return;
    }
    durations_[i] = in_.byte() == 0xff ? INT64_MAX : some_period(in_);
    lists_[i] = std::make_unique<vigil::timeout_list>(nanoseconds(durations_[i]), on_expire);
    expect(lists_[i]->duration().count() == durations_[i], "duration()");
  }

  [[nodiscard]] bool is_there(std::size_t i) const {
    return !is_ending_[i] && (i == lists ? table_ != nullptr : lists_[i] != nullptr);
  }

  // Waits for the calls of on_expire under way, but not for that of `self`.
  void end_list(std::size_t i, const connection* self) {
    if (!is_there(i)) return;
    for (const auto& c : all_) {
      c->observe();
      if (c->home == i) c->unlink();
    }
    is_ending_[i] = true;
    // It stays in its place meanwhile: an on_expire may still add to it.
    if (i == lists) {
      delete table_.get();
      static_cast<void>(table_.release());
    } else {
      delete lists_[i].get();
      static_cast<void>(lists_[i].release());
    }
    is_ending_[i] = false;
    for (const auto& c : all_)
      expect(c->runs_for != i || c.get() == self, "the end waits for each on_expire");
  }

  void expire_some() {
    const std::uint8_t drawn = in_.byte();
    const std::size_t i = drawn % (lists + 1);
    if (drawn < 0xf0) return expire_now(i);
    is_over_ = true;
    drawn < 0xf8 ? end_in_expiry(i) : get_stuck_in_expiry(i);
  }

  void expire_now(std::size_t i) {
    if (!is_there(i)) return;
    bool is_known = i != lists;  // how many it calls
    for (const auto& c : all_) {
      c->observe();
      if (c->home != i) continue;
      c->is_in_batch = true;
      c->is_touched = c->last > now();
      if (c->is_running) is_known = false;
    }
    begun_ = 0;
    batch_ = i;
    last_in_batch_ = INT64_MIN;
    const std::size_t called = i == lists ? table_->expire_now() : lists_[i]->expire_now();
    expect(is_known ? called == begun_ : called <= begun_, "what expire_now() returns");
    batch_ = nowhere;
    for (const auto& c : all_) {
      c->observe();
      expect(!c->is_in_batch || c->is_running, "expire_now() leaves an entry out");
      c->is_in_batch = c->may_be_in_batch = false;
    }
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
    f.request_stop();
    f.join();
    if (!is_stopped) return;
    batch_ = nowhere;
    for (const auto& c : all_) {
      if (c->is_in_batch) c->last = std::max(c->last, now());
      c->is_in_batch = false;
      c->observe();
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

  // --- the entries

  void add(connection& c) {
    const std::size_t i = in_.below(lists + 1);
    add(c, i, some_period(in_));
  }

  void add(connection& c, std::size_t i, nanos duration) {
    if (!is_there(i) && !is_ending_[i]) return;
    c.observe();
    c.unlink();
    if (!is_ending_[i]) {
      c.home = i;
      c.may_be_in_batch = i == lists && batch_ == lists;
      c.last = now();
      c.duration = i == lists ? duration : durations_[i];
    }
    if (i == lists) {
      table_->add(c.entry, nanoseconds(duration));
    } else {
      // By half of the durations as io does it, which cannot fail for want of memory.
      const bool surely = duration / unit % 2 == 0;
      surely ? vigil::detail::timeout_access::add_surely(*lists_[i], c.entry)
             : lists_[i]->add(c.entry);
    }
  }

  void touch(connection& c) {
    c.observe();
    expect(c.entry.touch() == c.is_linked(), "what touch() returns");
    c.last = std::max(c.last, now());
    c.is_touched = true;
  }

  void touch_at(connection& c) {
    c.observe();
    const nanos time = saturated(now(), nanos{in_.number<std::int16_t>()} << in_.below(32));
    expect(c.entry.touch(at(time)) == c.is_linked(), "what touch() at a time returns");
    c.last = std::max(c.last, time);
    c.is_touched = true;
  }

  // In an on_expire: of the caller's own entry, or of one that does not run.
  void remove(connection& c, bool in_its_run) {
    c.observe();
    const bool was_linked = c.is_linked();
    c.unlink();
    c.is_leaving = true;
    ++leaving_;
    const bool prevented = vigil::timeout_list::remove(c.entry);
    --leaving_;
    c.is_leaving = false;
    expect(prevented == (was_linked || c.is_linked()), "what remove() returns");
    c.unlink();
    expect(!c.is_running || in_its_run, "remove() waits for on_expire");
  }

  void destroy(std::size_t i) {
    const auto gone = std::exchange(all_[i], std::make_unique<connection>());
    gone->is_leaving = true;
    gone->unlink();
    ++leaving_;
    gone->entry.~entry();
    --leaving_;
    std::construct_at(&gone->entry);
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

  static connection& of(vigil::timeout_list::entry& e) {
    return vigil::owner_of<&connection::entry>(e);
  }

  void expire(vigil::timeout_list::entry& e) {
    connection& c = of(e);
    begin(c);
    // Its place may go: the model of the run must not outlive it.
    bool is_destroyed = false;
    const end_of_run at_the_end{*this, c, is_destroyed};
    check();
    if (++c.runs <= most_deeds) act(c, is_destroyed);
  }

  void begin(connection& c) {
    expect(c.is_linked(), "an entry expires that is in no list");
    expect(!c.is_running, "two calls for one entry at a time");
    const bool may_be_early = c.is_in_batch || (batch_ == lists && c.home == lists);
    expect(may_be_early || now() == c.due(), "an entry expires at its time");
    if (c.home == batch_ && may_be_early) ++begun_;
    if (c.is_in_batch && batch_ != lists && !c.is_touched) {
      expect(c.last >= last_in_batch_, "a batch has the order of the last touch");
      last_in_batch_ = c.last;
    }
    c.runs_for = c.home;
    c.is_running = true;
    c.unlink();
  }

  struct end_of_run {
    program& of;
    connection& c;
    const bool& is_destroyed;

    ~end_of_run() {
      if (is_destroyed) return;
      if (!c.is_leaving) c.observe();
      c.is_running = false;
      c.runs_for = nowhere;
    }
  };

  void act(connection& c, bool& is_destroyed) {
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

  void check() {
    if (leaving_ != 0) return;  // an entry may be in or out
    std::array<std::size_t, lists + 1> sizes = {};
    for (const auto& c : all_) {
      c->observe();
      if (c->is_linked()) ++sizes[c->home];
    }
    for (std::size_t i = 0; i < lists; ++i)
      expect(!is_there(i) || lists_[i]->size() == sizes[i], "size()");
    expect(!is_there(lists) || table_->size() == sizes[lists], "size() of all");
    expect(!is_there(lists) || sizes[lists] == 0 || table_->lists() > 0, "lists()");
    expect(thrown_ == unhandled_, "each exception is reported once");
  }

  input& in_;
  std::array<std::unique_ptr<connection>, 6> all_;
  std::array<std::unique_ptr<vigil::timeout_list>, lists> lists_;
  std::array<nanos, lists> durations_ = {};
  std::unique_ptr<vigil::timeout_lists> table_;
  std::array<bool, lists + 1> is_ending_ = {};
  vigil::mutex mutex_;
  bool is_over_ = false;
  bool is_stuck_ = false;
  bool had_crowd_ = false;
  std::size_t leaving_ = 0;
  std::size_t batch_ = nowhere;  // the list of the expire_now under way
  std::size_t begun_ = 0;        // by it
  nanos last_in_batch_ = 0;
  std::size_t thrown_ = 0;
  std::size_t unhandled_ = 0;
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
