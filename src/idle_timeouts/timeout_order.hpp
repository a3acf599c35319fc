// timeout_order: which entry was touched longest ago.
//
// The danger. A touch changes the entry's word and nothing else, so where an
// entry stands here tells when it was touched *once*. The earliest must be found
// all the same, without moving entries about for each touch.
//
// The rule: a radix heap, that is a timing wheel without ticks. Each level has
// sixteen slots for one digit (four bits) of the time; `base_` is a time that no
// entry is before. An entry stands at the highest digit in which its time
// differs from base_, in the slot of its own digit: so all of a lower level
// come before all of a higher one, and in a level slot after slot. The first
// slot that is not empty holds the earliest; with more than one entry in it,
// base_ moves up to the earliest that was ever put there, and they go down to
// lower levels.
// Whoever is looked at is looked at with the time in its word, and goes to
// where that says.
//
// O1  An entry stands at or before its time's place: touches only move it
//     later. So the first one whose place is its time's is the earliest.
// O2  base_ only moves up, and never beyond `now` as the caller knows it, so
//     what is added later is not before it.
// O3  `breaking_` is the slot that is being taken apart; nothing is put into
//     it, and nothing else is looked at until it is empty.
//
// An entry is moved at most once for each level after each touch, and mostly
// once: all steps but the last of its way down are saved when it was touched.
// Each call moves at most as many as it is allowed to.
//
// No lock, no clock, no timer: the list guards it.
#pragma once

#include "base/nanos.hpp"

#include <vigil/timeout_list.hpp>

#include <bit>
#include <cstdint>

namespace vigil::inline VIGIL_ABI::detail {

using detail::timeout_links;
using detail::timeout_node;

class timeout_order {
  static constexpr unsigned digit = 4;
  static constexpr unsigned slots = 1U << digit;
  static constexpr unsigned levels = 64 / digit;

 public:
  // Where its entries stand: 6 KiB. One order at a time uses it.
  class room {
   public:
    room() noexcept;
    room(const room&) = delete;
    room& operator=(const room&) = delete;

    room* next = nullptr;  // of those that no order uses

   private:
    friend class timeout_order;

    timeout_links heads_[levels][slots];
    nanos earliest_[levels][slots];  // of what was put there since it was empty
  };

  // Without a room it is empty, and nothing can be inserted.
  timeout_order() noexcept = default;

  timeout_order(const timeout_order&) = delete;
  timeout_order& operator=(const timeout_order&) = delete;

  struct found {
    timeout_node* first;  // the earliest, or none
    bool more;            // the moves did not suffice: ask again
    // The time it was found with; without one, nothing is before this, `never`
    // if nothing is there. No entry is before it, however the first is touched.
    nanos time;
  };

  // Moves at most `moves` entries. `now`: see O2.
  found first(nanos now, unsigned& moves) noexcept;

  // `time` is what the entry's word says, or will say.
  void insert(timeout_node& n, nanos time) noexcept;

  // Wherever it stands, in whatever list of links.
  static void unlink(timeout_links& n) noexcept;
  static void append(timeout_links& head, timeout_links& n) noexcept;

  static void make_empty(timeout_links& head) noexcept { head.before = head.after = &head; }

  static bool is_empty(const timeout_links& head) noexcept { return head.after == &head; }

  // Some entry, nullptr if there is none.
  timeout_node* any() noexcept;

  // Caller: nothing is in it, and nothing before `time` will come.
  void begin_at(nanos time) noexcept;

  bool has_room() const noexcept { return room_ != nullptr; }

  // Caller: it has none.
  void give_room(room& r) noexcept { room_ = &r; }

  // Caller: nothing is in it.
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

}  // namespace vigil::inline VIGIL_ABI::detail
