// last_users: the last eight that took from a named object, a channel or a semaphore, and
// the last eight that gave to it: a pool that runs empty names those that have its
// elements.
//
// The rule. An operation takes the place of the oldest of its kind, unless one is empty,
// and strikes out the newest of the other kind by the same user. So those that give back
// what they took leave the room to those that do not.
//
// LU1 Written under the object's lock. Those who look inside copy it meanwhile, maybe
//     when it is gone, and change nothing.
// LU2 An entry's serial number is never used again, and is 0 while the rest of the entry
//     is written and while the entry is empty. So an entry that two copies, one after
//     the other, have alike is whole.
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/nanos.hpp"
#include "core/sched/record/fiber_identity.hpp"

#include <vigil/detail/config.hpp>

#include <cstddef>
#include <cstdint>

namespace VIGIL_DETAIL {

class waiter;

enum class user_kind : std::uint32_t {
  of_fiber,
  of_thread,  // has no number: all threads are alike
  of_task,    // the same
};

// An operation and its user, whose name is copied, as the fiber may end. Each member is a
// word of its own, under LU1 and LU2.
struct object_user {
  static constexpr std::size_t name_words = fiber_identity::name_room / sizeof(std::uint64_t);

  atomic<std::uint64_t> serial{0};
  atomic<user_kind> kind{user_kind::of_fiber};
  atomic<std::uint32_t> line{0};  // where the fiber was started
  atomic<const char*> file{nullptr};
  atomic<std::uint64_t> runtime{0};  // of the fiber, by its number
  atomic<std::uint64_t> id{0};
  atomic<std::uint64_t> name[name_words] = {};
  atomic<std::int64_t> amount{0};       // values or permits, but for those given back
  atomic<nanos> when{0};                // on the clock of the runtime with the number clock_of
  atomic<std::uint64_t> clock_of{0};    // 0: monotonic
  atomic<std::uint32_t> is_virtual{0};  // that clock; no bool: a copy may hold any bits
};

class last_users {
 public:
  static constexpr std::size_t most = 8;

  // `object` as awaited::object has it.
  explicit last_users(const void* object) noexcept : key_(key_of(object)) {}

  last_users(const last_users&) = delete;
  last_users& operator=(const last_users&) = delete;

  // --- caller: holds the object's lock
  // `by`: the waiter of a user whose wait this ends; nullptr: the caller.
  void took(const waiter* by, std::int64_t n = 1) noexcept;
  void gave(const waiter* by, std::int64_t n = 1) noexcept;
  // The caller gives, but only its takes are of interest.
  void gave_back(std::int64_t n) noexcept;

  // --- for those who look inside, at a copy of the bytes
  bool is_of(const void* object) const noexcept { return key_ == key_of(object); }

  const object_user* takers() const noexcept { return takers_; }

  const object_user* givers() const noexcept { return givers_; }

  bool is_taken_from() const noexcept { return last_take_ != 0; }

  bool is_given_to() const noexcept { return last_gift_ != 0; }

 private:
  struct user;
  static user user_of(const waiter* by) noexcept;
  static void note(object_user (&among)[most],
                   std::uint64_t serial,
                   const user& u,
                   std::int64_t n) noexcept;
  static void strike_out(object_user (&among)[most], const user& u, std::int64_t n) noexcept;

  // No pointer, or a search for stuck fibers would take this for an owner of the object.
  static std::uintptr_t key_of(const void* object) noexcept {
    return ~reinterpret_cast<std::uintptr_t>(object);
  }

  const std::uintptr_t key_;
  std::uint64_t last_take_ = 0;
  std::uint64_t last_gift_ = 0;
  object_user takers_[most];
  object_user givers_[most];
};

}  // namespace VIGIL_DETAIL
