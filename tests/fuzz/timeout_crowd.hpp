// More entries than a list of idle timeouts moves under one hold of its lock, and more
// lists than a table counts under one of its own.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/testing.hpp>
#include <vigil/timeout_list.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace fuzz {

class timeout_crowd {
 public:
  explicit timeout_crowd(input& in)
      : in_(in), length_(nanos{1} << (15 + in.below(16))), all_(150 + in.below(100)) {
    dice_ = in.number<std::uint16_t>();
  }

  void main() {
    what_ = static_cast<end>(in_.below(8));
    turn_ = 1 + in_.below(all_.size());
    if (what_ == end::of_many_lists) return many_lists();
    make_list();
    fill();
    touch();
    switch (what_) {
      case end::expiry:
      case end::expiry_of_running:
        return rest();
      case end::of_list:
        return list_.reset();
      case end::of_list_in_order:
        return end_in_order();
      case end::expire_now:
      case end::expire_now_ends_list:
        return expire_now();
      case end::expire_now_stopped:
        return expire_stopped();
      case end::of_list_in_expiry:
      case end::of_many_lists:
        return;
    }
  }

 private:
  enum class end : std::uint8_t {
    expiry,
    of_list,
    expire_now,
    expire_now_stopped,
    expire_now_ends_list,
    of_list_in_order,   // while it brings its entries into order
    expiry_of_running,  // all come due again while their on_expire runs
    of_many_lists,
    of_list_in_expiry,  // by the first on_expire; a way of of_list_in_order
  };

  struct member {
    vigil::timeout_list::entry entry;
    nanos last = 0;
    nanos length = 0;
    int runs = 0;
  };

  static member& of(vigil::timeout_list::entry& e) { return vigil::owner_of<&member::entry>(e); }

  std::size_t next() { return (dice_ = dice_ * 1'103'515'245 + 12'345) >> 16; }

  void make_list() {
    list_ = std::make_unique<vigil::timeout_list>(
        nanoseconds(length_), [this](vigil::timeout_list::entry& e) { expire(of(e)); });
  }

  void fill() {
    for (member& m : all_) {
      list_->add(m.entry);
      m.last = now();
      m.length = length_;
      if (next() % 4 == 0) vigil::sleep_for(nanoseconds(next() % 8));
    }
  }

  void touch() {
    const bool at_random = next() % 2 == 0;
    vigil::sleep_for(nanoseconds(next() % 64));
    for (std::size_t i = 0; i < all_.size(); ++i) {
      member& m = all_[at_random ? next() % all_.size() : i];
      if (m.entry.touch()) m.last = now();
      if (at_random && next() % 8 == 0) vigil::sleep_for(nanoseconds(next() % 64));
    }
  }

  void expire(member& m) {
    const bool is_early = what_ == end::expire_now || what_ == end::expire_now_ends_list ||
                          (what_ == end::expire_now_stopped && !is_stopped_);
    expect(is_early || now() == m.last + m.length, "when one of a crowd expires");
    const bool has_order = what_ != end::expiry_of_running && what_ != end::of_many_lists;
    expect(!has_order || m.last >= before_, "a crowd expires in the order of the last touch");
    before_ = m.last;
    ++m.runs;
    const bool has_turn = ++expired_ == turn_;
    const bool ends = what_ == end::expire_now_ends_list || what_ == end::of_list_in_expiry;
    if (has_turn && ends) list_.reset();
    if (has_turn && what_ == end::expire_now_stopped) vigil::sleep_for(nanoseconds(2));
    if (what_ != end::expiry_of_running || m.runs != 1) return;
    list_->add(m.entry);
    m.last = now() + length_;  // it is put off then
    vigil::sleep_for(nanoseconds(length_ + length_ / 2));
  }

  void expect_runs(int n) const {
    for (const member& m : all_)
      expect(m.runs == n && !m.entry.is_linked(), "one of a crowd does not expire");
  }

  void rest() {
    const bool twice = what_ == end::expiry_of_running;
    vigil::sleep_for(nanoseconds(twice ? 3 * length_ : length_));
    vigil::testing::settle();
    expect_runs(twice ? 2 : 1);
  }

  void end_in_order() {
    const std::size_t drawn = next() % 16;
    drawn < 8 ? end_while_ordering(drawn) : end_while_breaking();
    for (const member& m : all_)
      expect(!m.entry.is_linked(), "the end of a list");
  }

  void end_while_ordering(std::size_t turns) {
    vigil::sleep_for(nanoseconds(all_[0].last + length_ - now()));
    for (; turns > 0; --turns)
      vigil::this_fiber::yield();
    list_.reset();
  }

  // One expires while the slot of all others, whose time is the same, is taken apart.
  void end_while_breaking() {
    what_ = end::of_list_in_expiry;
    turn_ = 1;
    make_list();
    for (member& m : all_) {
      list_->add(m.entry);
      m.last = now();
      if (&m == &all_[0]) vigil::sleep_for(nanoseconds(64));
    }
    vigil::sleep_for(nanoseconds(length_));
    vigil::testing::settle();
    expect(all_[0].runs == 1 && expired_ == 1, "the first expiry ends the list");
  }

  void expire_now() {
    const std::size_t called = list_->expire_now();
    const bool ends = what_ == end::expire_now_ends_list;
    expect(called == (ends ? turn_ : all_.size()) && called == expired_, "what it returns");
    if (!ends) return expect_runs(1);
    for (const member& m : all_)
      expect(!m.entry.is_linked(), "the end of a list in expire_now()");
  }

  // Those that are left are put off.
  void expire_stopped() {
    vigil::fiber<> f = vigil::spawn([this] {
      try {
        list_->expire_now();
        expect(false, "a stop ends expire_now()");
      } catch (const vigil::stopped&) {
      }
    });
    vigil::sleep_for(nanoseconds(1));
    f.request_stop();
    f.join();
    is_stopped_ = true;
    expect(expired_ == turn_, "the calls before a stop");
    before_ = 0;
    for (member& m : all_) {
      if (m.runs != 0) continue;
      m.last = now();
      expect(m.entry.last_touch() == at(m.last), "those left by a stop are put off");
    }
    rest();
  }

  void many_lists() {
    vigil::timeout_lists lists([this](vigil::timeout_list::entry& e) { expire(of(e)); });
    for (member& m : all_) {
      m.last = now();
      m.length = length_ + (&m - all_.data());
      lists.add(m.entry, nanoseconds(m.length));
    }
    expect(lists.size() == all_.size() && lists.lists() == all_.size(), "many lists");
    vigil::sleep_for(nanoseconds(length_) + nanoseconds(all_.size()));
    vigil::testing::settle();
    expect_runs(1);
    expect(lists.size() == 0, "many lists");
  }

  input& in_;
  const nanos length_;  // none expires before all are in
  std::vector<member> all_;
  std::uint32_t dice_ = 0;
  end what_ = end::expiry;
  std::unique_ptr<vigil::timeout_list> list_;
  nanos before_ = 0;
  std::size_t turn_ = 0;  // that of the expiry which ends or is stopped
  std::size_t expired_ = 0;
  bool is_stopped_ = false;
};

}  // namespace fuzz
