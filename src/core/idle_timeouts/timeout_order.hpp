// timeout_order: finds the entry that was touched longest ago.
//
// The danger. A touch changes the entry's word and nothing else, so an entry's place here
// tells when it was touched *once*. The earliest must be found all the same, without
// moving entries about for each touch.
//
// The rule. A radix heap, that is, a timing wheel without ticks. Each level has sixteen
// slots for one digit (four bits) of the time; no entry is before `base_`. An entry
// stands at the highest digit in which its time differs from base_, in the slot of its
// own digit: so a lower level comes before a higher one, and within a level the slots are
// in order. The first slot that is not empty holds the earliest. If it has more than one
// entry, base_ moves up to the earliest that was ever put there, and they go down to
// lower levels. An entry that is looked at goes where the time in its word says.
//
// TO1 An entry stands at or before its time's place: touches only move it later. So the
//     first one whose place is its time's is the earliest.
// TO2 base_ only moves up, and never beyond `now` as the caller knows it, so later
//     additions are not before it.
// TO3 `breaking_` is the slot that is being taken apart; nothing is put into it, and
//     nothing else is looked at until it is empty.
//
// After each touch an entry is moved at most once for each level, and mostly once: a
// touch saves all steps of the way down but the last. Each call moves at most as many as
// it is allowed to. The order has no lock, clock or timer: the list guards it.
#pragma once

#include "core/base/nanos.hpp"

#include <vigil/timeout_list.hpp>

#include <bit>
#include <cstdint>

namespace VIGIL_DETAIL {

class timeout_order {
  static constexpr unsigned digit = 4;
  static constexpr unsigned slots = 1U << digit;
  static constexpr unsigned levels = 64 / digit;

 public:
  // The slots in which entries stand: 6 KiB. One order at a time uses a room.
  class room {
   public:
    room() noexcept;
    room(const room&) = delete;
    room& operator=(const room&) = delete;

    room* next = nullptr;  // among rooms that no order uses

   private:
    friend class timeout_order;

    timeout_links heads_[levels][slots];
    nanos earliest_[levels][slots];  // that was put there since the slot was empty
  };

  // Without a room the order is empty, and nothing can be inserted.
  timeout_order() noexcept = default;

  timeout_order(const timeout_order&) = delete;
  timeout_order& operator=(const timeout_order&) = delete;

  struct found {
    timeout_node* first;  // the earliest, or none
    bool more;            // the moves did not suffice: ask again
    // The time with which `first` was found. Without a first: a time that nothing is
    // before, `never` if nothing is there. No entry is before it, however the first is
    // touched.
    nanos time;
  };

  // Looks for the earliest, moving at most `moves` entries. `now`: see TO2.
  found first(nanos now, unsigned& moves) noexcept;

  // `time` is what the entry's word says, or will say.
  void insert(timeout_node& n, nanos time) noexcept;

  // Takes n out of whatever list of links it stands in.
  static void unlink(timeout_links& n) noexcept;
  static void append(timeout_links& head, timeout_links& n) noexcept;

  static void make_empty(timeout_links& head) noexcept { head.before = head.after = &head; }

  static bool is_empty(const timeout_links& head) noexcept { return head.after == &head; }

  // Returns some entry, nullptr if there is none.
  timeout_node* any() noexcept;

  // Caller: the order is empty, and nothing before `time` will come.
  void begin_at(nanos time) noexcept;

  bool has_room() const noexcept { return room_ != nullptr; }

  // Caller: the order has no room.
  void give_room(room& r) noexcept { room_ = &r; }

  // Caller: the order is empty.
  room* take_room() noexcept;

  // Exchanges all entries, and the rooms in which they stand.
  void swap(timeout_order& other) noexcept;

 private:
  struct place {
    unsigned level;
    unsigned slot;
    bool operator==(const place&) const noexcept = default;
  };

  place place_of(nanos time) const noexcept;
  void put(timeout_node& n, nanos time, place p) noexcept;
  void note_empty(unsigned level, unsigned slot) noexcept;

  room* room_ = nullptr;
  std::uint16_t filled_[levels] = {};  // a bit for each slot that is not known to be empty
  std::uint16_t levels_ = 0;           // a bit for each level with such a slot
  timeout_links* breaking_ = nullptr;
  nanos base_ = 0;
};

}  // namespace VIGIL_DETAIL
