// Lists of idle timeouts, beside a model that knows of each entry the list, the last
// touch and whether its on_expire runs. So it knows the instant of each expiry. An entry
// that comes due while it runs is put off, as if it were touched then. If the run ends in
// that very instant, last_touch() says which of the two came first.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/error.hpp>
#include <vigil/testing.hpp>
#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace fuzz {

inline constexpr std::size_t lists = 2;  // and one timeout_lists, whose number is this
inline constexpr std::size_t nowhere = lists + 1;

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

inline constexpr std::uint8_t deeds = 16;
inline constexpr std::uint8_t common_deeds = 13;  // the others have a few bytes
inline constexpr int most_deeds = 6;  // of one connection, so that no program is endless

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
  bool is_in_batch = false;       // of an expire_now: called when its turn comes
  bool may_be_in_batch = false;   // of that of all lists, since the turn of its list may come
  bool is_touched = false;        // since that began
  bool ran_before_batch = false;  // so it is put off when its turn comes
  bool is_let_go = false;         // a stop ends the batch, and puts it off
  bool is_leaving = false;        // it is being removed or destroyed, which may wait

  vigil::timeout_list::entry entry;

  [[nodiscard]] bool is_linked() const { return home != nowhere; }

  [[nodiscard]] nanos due() const { return saturated(last, duration); }

  // Whether its turn may have come and shown nothing: an entry that is put off at the
  // time of its last touch, or before it, keeps that touch.
  [[nodiscard]] bool may_be_past_batch(nanos begun) const {
    return ran_before_batch && last >= begun;
  }

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
    const bool may_be_put_off =
        (is_in_batch && is_let_go) || (is_running && (by_batch || due() == now()));
    if (is_linked() && may_be_put_off && seen > last && seen <= now()) {
      expect(by_batch || seen == now(), "an entry is put off when it comes due");
      last = seen;
      is_in_batch = false;
    }
    expect(entry.is_linked() == is_linked(), "is_linked()");
    expect(!is_linked() || seen == last, "last_touch()");
  }
};

// The lists and the entries of a program.
class timeout_model {
 public:
  explicit timeout_model(input& in) : in_(in) {
    for (auto& c : all_)
      c = std::make_unique<connection>();
  }

  timeout_model(const timeout_model&) = delete;
  timeout_model& operator=(const timeout_model&) = delete;

  void note_unhandled() noexcept { ++unhandled_; }

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

 protected:
  ~timeout_model() = default;

  // Does what an on_expire does.
  virtual void act(connection& c, bool& is_destroyed) = 0;

  void rest() {
    vigil::testing::settle();
    for (const auto& c : all_) {
      c->observe();
      const bool is_overdue = c->is_linked() && !c->is_running && c->due() <= now();
      expect(!is_overdue, "an expiry is missing");
    }
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

  void expire_now(std::size_t i) {
    if (!is_there(i)) return;
    bool is_known = i != lists;  // how many it calls
    for (const auto& c : all_) {
      c->observe();
      if (c->home != i) continue;
      c->is_in_batch = true;
      c->is_touched = c->last > now();
      c->ran_before_batch = c->is_running;
      c->is_let_go = false;
      if (c->is_running) is_known = false;
    }
    begun_ = 0;
    batch_ = i;
    batch_begun_ = now();
    last_in_batch_ = INT64_MIN;
    const std::size_t called = i == lists ? table_->expire_now() : lists_[i]->expire_now();
    expect(is_known ? called == begun_ : called <= begun_, "what expire_now() returns");
    batch_ = nowhere;
    for (const auto& c : all_) {
      c->observe();
      expect(!c->is_in_batch || c->is_running || c->may_be_past_batch(batch_begun_),
             "expire_now() leaves an entry out");
      c->is_in_batch = c->may_be_in_batch = false;
    }
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

  input& in_;
  std::array<std::unique_ptr<connection>, 6> all_;
  std::array<std::unique_ptr<vigil::timeout_list>, lists> lists_;
  std::unique_ptr<vigil::timeout_lists> table_;
  std::size_t batch_ = nowhere;  // the list of the expire_now under way
  nanos batch_begun_ = 0;
  std::size_t thrown_ = 0;

 private:
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
    timeout_model& of;
    connection& c;
    const bool& is_destroyed;

    ~end_of_run() {
      if (is_destroyed) return;
      if (!c.is_leaving) c.observe();
      c.is_running = false;
      c.runs_for = nowhere;
    }
  };

  std::array<nanos, lists> durations_ = {};
  std::array<bool, lists + 1> is_ending_ = {};
  std::size_t leaving_ = 0;
  std::size_t begun_ = 0;  // by the expire_now under way
  nanos last_in_batch_ = 0;
  std::size_t unhandled_ = 0;
};

}  // namespace fuzz
