// Idle timeouts for many connections: one duration, one timer, any number of entries.
//
//   using client = vigil::expiring<connection>;
//   vigil::timeout_list idle(30s, [](vigil::timeout_list::entry& e) {
//     client::of(e)->close();
//   });
//   client c(socket);            // a connection and its entry
//   idle.add(c.entry());
//   c.entry().touch(now);        // at each activity: changes one word
//
// A touch changes only the entry's own word. The list notices it when it would have
// expired the entry, and moves the entry to its new place.
//
// Behaviour: Node's timer lists, to the nanosecond: an entry never expires early, and
// entries expire in the order of their last touch.
#pragma once

#include <vigil/clock.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/duration.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/timeout_core.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

class timeout_list;
class timeout_lists;

// timeout_list: entries that expire one duration after they were last touched.
//
// on_expire(entry) runs on a fiber of the list's runtime. The entry is then in no list.
// on_expire may add it again, to this list or another, touch or destroy any entry,
// destroy the list, and wait. Expiries begin in the order of the last touch, and a slow
// one does not delay the others: with several workers, calls for different entries may
// overlap, but never two for the same entry. An entry that comes due while its earlier
// on_expire still runs is put off by one more duration, as if it were touched then.
// (While an on_expire that has added its own entry again is running, the list's timer
// fires once in each duration.) An exception that leaves on_expire goes to
// options::on_unhandled.
//
// Cost: one timer serves all entries; it never keeps a program alive (exit_when), and an
// empty list has none. When it fires although the entries were touched, it is set for the
// entry that is now the oldest: if each entry is touched within any t, it fires once in
// duration - t.
//
// Shutdown: on_expires begin during options::grace; when the run ends, entries are
// removed without a call (expire_now() calls it before that). The list stays: entries
// added in the next run of the same runtime expire there.
//
// Thread safety: add, remove, touch, is_linked and size may be called from any fiber or
// thread, even on the same entry.
//
// Lifetime: the list and its entries may be destroyed in any order; an entry whose list
// is destroyed is in no list. Objects that on_expire uses must outlive the list. It may
// outlive its runtime; add() then throws runtime_gone.
class timeout_list {
 public:
  // entry: stands for a connection in a list. 40 bytes; cannot be copied or moved; in at
  // most one list at a time.
  //
  // Lifetime: the destructor waits for a running on_expire, which may use the connection,
  // so no part of the connection may be destroyed before its entry. expiring<T> ensures
  // that. If the entry is a member of the connection, it must be the last one (members
  // die from the last to the first), and a destructor of the connection that does work
  // must first call timeout_list::remove(). Do not derive from it: a base dies after all
  // members. A class that does must call remove() in its destructor.
  class entry : detail::timeout_node {
   public:
    entry() noexcept = default;
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;

    // Removes the entry as remove() does.
    ~entry() { detail::forget(*this); }

    // Whether it is in a list; false from the moment its expiry begins.
    bool is_linked() const noexcept { return touched.load() > 0; }

    // Restarts the timeout at `now`. Cost: one load and one compare-exchange of one word
    // (more only if others touch it at the same moment); no lock, no allocation, no
    // clock.
    //
    // Returns false if the expiry has begun or the entry is in no list. After true,
    // on_expire is not called before now + duration. A `now` older than the last touch
    // changes nothing and is a success; one in the future is accepted.
    bool touch(clock::time_point now) noexcept {
      __builtin_prefetch(&touched, 1);
      const std::int64_t time = now.time_since_epoch().count();
      std::int64_t last = touched.load();
      while (last > 0) {
        if (time <= last) return true;
        if (touched.compare_exchange_strong(last, time)) return true;
      }
      return false;
    }

    // The same at vigil::clock::now().
    bool touch() noexcept { return touch(clock::now()); }

    // When it was last touched or added; time_point::min() if it is in no list.
    clock::time_point last_touch() const noexcept {
      const std::int64_t last = touched.load();
      return last > 0 ? clock::time_point(clock::duration(last)) : clock::time_point::min();
    }

   private:
    friend class timeout_list;
    friend class timeout_lists;
  };

  // With a duration beyond the clock's range nothing ever expires. Throws
  // std::invalid_argument for a duration of zero or less and for an empty function,
  // wrong_place on a thread without a runtime, and std::bad_alloc.
  template <detail::duration_argument D, class F>
    requires std::is_invocable_v<std::decay_t<F>&, entry&>
  timeout_list(const D& d, F&& on_expire, const site& from = site::current())
      : core_(make(detail::to_nanos(d), std::forward<F>(on_expire), from)) {}

  // Leaves `other` empty: its add() and expire_now() throw std::logic_error, its size()
  // and duration() are zero.
  timeout_list(timeout_list&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}

  // Swaps the two; the former list of this object ends with `other`.
  timeout_list& operator=(timeout_list&& other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }

  // Removes all entries; none expires any more. Waits for running on_expires, but not for
  // one that it is called in; a stop does not end that wait. Entries that an on_expire
  // adds meanwhile are in no list afterwards. The function on_expire has then been
  // destroyed, unless the destructor runs inside it. Where it must not wait
  // (this_fiber::no_park; a handler on the only worker's own stack) it ends the program.
  ~timeout_list() {
    if (core_ != nullptr) detail::end_timeouts(core_);
  }

  // Adds e, touched now, and removes it from the list it is in; once the list's
  // destructor has begun, it only removes it. Allocates only if the list was empty.
  // Throws runtime_gone outside a run of the list's runtime, and std::bad_alloc if the
  // list was empty and its timer cannot be armed; e is then in no list.
  void add(entry& e) { detail::add(core_, e); }

  // Removes e from whichever list it is in. Returns true if that prevented its expiry.
  // When it returns, on_expire is not running for e and will not start: it waits for a
  // running one, on a fiber or a plain thread, and a stop does not end that wait. Inside
  // on_expire for e it does not wait. Where it must not wait it ends the program, as the
  // destructor does. Two on_expires that each remove the other's entry wait for each
  // other for ever.
  static bool remove(entry& e) noexcept { return detail::remove(e); }

  // For a shutdown: calls on_expire for each entry now in the list, however recently it
  // was touched, in the order of the last touch, one after another on the calling fiber.
  // Returns their number. Entries added from now on stay. An entry whose earlier
  // on_expire is still running is put off. If `stopped` leaves an on_expire, it leaves
  // expire_now; the remaining entries stay in the list and are put off. Throws
  // wrong_place outside a fiber, and std::bad_alloc before the first call.
  std::size_t expire_now() { return detail::expire_now(core_); }

  // The number of entries.
  std::size_t size() const noexcept { return detail::size_of(core_); }

  clock::duration duration() const noexcept { return clock::duration(detail::duration_of(core_)); }

 private:
  friend class timeout_lists;
  friend struct detail::timeout_access;

  void add_surely(entry& e) { detail::add_surely(core_, e); }

  // home is loaded before run: an entry leaves its list only after its expiry is marked
  // as running.
  static bool is_away(const entry& e) noexcept {
    return e.home.load() == nullptr && e.run.load() == nullptr;
  }

  template <class F>
  struct function final : detail::timeout_function {
    template <class G>
    explicit function(G&& g) : f(std::forward<G>(g)) {}

    void call(detail::timeout_node& n) override { static_cast<void>(f(static_cast<entry&>(n))); }

    F f;
  };

  // A separate function, so that the duration is known to be one before the function is
  // moved.
  template <class F>
  static detail::timeout_core* make(std::int64_t duration, F&& f, const site& from) {
    return detail::make_timeouts(
        duration, function_of("vigil::timeout_list", std::forward<F>(f)), from);
  }

  template <class F>
  static detail::timeout_function* function_of(const char* call, F&& f) {
    using target = std::decay_t<F>;
    detail::refuse_empty(call, f);
    return new function<target>(std::forward<F>(f));
  }

  detail::timeout_core* core_;
};

// timeout_lists: a list for each duration, with one on_expire for all. The first entry of
// a duration makes its list; empty lists are dropped when others are made. Entries and
// on_expire are those of timeout_list. Thread safety: that of timeout_list. Lifetime:
// that of timeout_list. Shutdown: that of timeout_list. Cost: a list takes 7 KiB while it
// has entries, and less than 1 KiB while it has none.
class timeout_lists {
 public:
  using entry = timeout_list::entry;

  // Throws std::invalid_argument for an empty function, wrong_place on a thread without a
  // runtime, and std::bad_alloc.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&, entry&>
  explicit timeout_lists(F&& on_expire, const site& from = site::current())
      : table_(detail::make_table(
            timeout_list::function_of("vigil::timeout_lists", std::forward<F>(on_expire)), from)) {}

  // Leaves `other` empty, as for timeout_list; its lists() is zero.
  timeout_lists(timeout_lists&& other) noexcept : table_(std::exchange(other.table_, nullptr)) {}

  // Swaps the two; the former lists of this object end with `other`.
  timeout_lists& operator=(timeout_lists&& other) noexcept {
    std::swap(table_, other.table_);
    return *this;
  }

  // Does what ~timeout_list does, for each list.
  ~timeout_lists() {
    if (table_ != nullptr) detail::end_table(table_);
  }

  // Adds e to the list of duration d, touched now, and removes it from the one it is in.
  // Throws std::invalid_argument for a duration of zero or less (e then stays where it
  // was), otherwise what timeout_list::add throws.
  template <detail::duration_argument D>
  void add(entry& e, const D& d) {
    detail::add(table_, e, detail::to_nanos(d));
  }

  static bool remove(entry& e) noexcept { return detail::remove(e); }

  // Calls timeout_list::expire_now for each list, the shortest duration first. If that
  // throws std::bad_alloc, the earlier lists have expired.
  std::size_t expire_now() { return detail::expire_now(table_); }

  // The number of entries in all lists. An entry that moves meanwhile may be counted
  // twice or not at all.
  std::size_t size() const noexcept { return detail::size_of(table_); }

  // The number of lists, including empty ones that are not dropped yet.
  std::size_t lists() const noexcept { return detail::count_of(table_); }

 private:
  detail::timeout_table* table_;
};

namespace detail {

struct timeout_access {
  // Like add(), but never throws std::bad_alloc: without memory for the timer, its
  // callback is queued again and again instead. The expiry may then be late, but is never
  // lost.
  static void add_surely(timeout_list& list, timeout_list::entry& e) { list.add_surely(e); }

  // Whether e is in no list and in no on_expire. It may be in one by the time this
  // returns.
  static bool is_away(const timeout_list::entry& e) noexcept { return timeout_list::is_away(e); }
};

template <auto Member>
struct member_of;

template <class T, class M, M T::*Member>
struct member_of<Member> {
  using owner = T;
};

}  // namespace detail

// expiring<T>: a T and its entry, in a safe order: the entry dies first, and waits for a
// running on_expire before the destructor of T begins. Cannot be copied or moved. Throws
// what the constructor of T throws. Thread safety: that of T; the entry has its own.
// Lifetime: the destructor may wait, as that of timeout_list::entry. Shutdown: that of
// timeout_list. Cost: T and 40 bytes.
template <class T>
class expiring final {
 public:
  // Makes the T as T(args...), or as T{args...} if it is an aggregate.
  template <class... Args>
    requires(std::is_constructible_v<T, Args...> || requires(Args&&... a) { T{std::move(a)...}; })
  explicit expiring(Args&&... args) : value_(make(std::forward<Args>(args)...)) {}

  expiring(const expiring&) = delete;
  expiring& operator=(const expiring&) = delete;

  // The object that e belongs to. e must be the entry of an expiring<T>.
  static expiring& of(timeout_list::entry& e) noexcept;

  timeout_list::entry& entry() noexcept { return entry_; }

  const timeout_list::entry& entry() const noexcept { return entry_; }

  T& operator*() noexcept { return value_; }

  const T& operator*() const noexcept { return value_; }

  T* operator->() noexcept { return &value_; }

  const T* operator->() const noexcept { return &value_; }

 private:
  template <class... Args>
  static T make(Args&&... args) {
    if constexpr (std::is_constructible_v<T, Args...>) {
      return T(std::forward<Args>(args)...);
    } else {
      return T{std::forward<Args>(args)...};
    }
  }

  T value_;
  timeout_list::entry entry_;  // dies before value_, since it is the last member
};

// Returns the object of which e is the member: owner_of<&connection::idle>(e). The class
// of the member must have no virtual base. Throws nothing. Thread safety: any thread; it
// reads nothing. Lifetime: the object is alive as long as its entry. Cost: one
// subtraction.
template <auto Member>
auto& owner_of(timeout_list::entry& e) noexcept {
  using owner = typename detail::member_of<Member>::owner;
  // A pointer to a data member is its offset (Itanium C++ ABI).
  return *reinterpret_cast<owner*>(reinterpret_cast<std::byte*>(&e) -
                                   __builtin_bit_cast(std::ptrdiff_t, Member));
}

template <class T>
expiring<T>& expiring<T>::of(timeout_list::entry& e) noexcept {
  return owner_of<&expiring::entry_>(e);
}

}  // namespace VIGIL_PUBLIC
