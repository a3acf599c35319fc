// Idle timeouts for many: one duration, one timer, any number of entries.
//
//   using client = vigil::expiring<connection>;
//   vigil::timeout_list idle(30s, [](vigil::timeout_list::entry& e) {
//     client::of(e)->close();
//   });
//   client c(socket);            // a connection and its entry
//   idle.add(c.entry());
//   c.entry().touch(now);        // at each activity: one word is changed
//
// A touch changes nothing but the entry's own word. The list learns of it when
// it would have expired the entry, and puts it where it belongs then.
//
// Behaviour: Node's timer lists, kept to the nanosecond; an entry is never
// expired early, and entries expire in the order of their last touch.
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

namespace vigil::inline VIGIL_ABI {

class timeout_list;
class timeout_lists;

// Entries that expire one duration after they were last touched.
//
// on_expire(entry) runs on a fiber of the list's runtime, never on the timer
// fiber. The entry is in no list then; on_expire may add it again, to this list
// or another, touch or destroy any entry, destroy the list, and wait. Expiries
// begin in the order of the last touch. One that takes long or waits does not
// hold up the others: on several workers, calls for different entries may
// overlap. There are never two for one entry at once: an entry that comes due
// while its earlier on_expire still runs is put off by one more duration, as if
// it were touched then. (So while an on_expire goes on that has added its own entry
// again, the list's timer rings once in each duration.) An exception that leaves
// on_expire goes to options::on_unhandled.
//
// One timer serves all entries; it never keeps a program alive (exit_when). A
// list without entries has none. When the timer rings and the entries were
// touched meanwhile, it is set to the oldest touch there is now: with entries
// that are each touched within any t, it rings once in duration - t.
//
// When a run ends, its entries are removed: on_expire is not called for them, and
// each is as after remove(), in no list. The list stays: entries that are added in
// the next run of the same runtime expire there.
//
// Thread safety: add, remove, touch, is_linked, size from any fiber or thread,
// on the same entry too. Neither the list nor an entry has to outlive the other:
// entries that are in a list when it is destroyed are in none after that.
class timeout_list {
 public:
  // Stands for a connection in a list. 40 bytes. Neither copied nor moved. In at
  // most one list at a time.
  //
  // Its destructor waits for a running on_expire, which may use the connection: so
  // nothing of the connection may have been destroyed before. expiring<T> holds the
  // two in that order. As a member of the connection itself the entry is the last
  // one (members die from the last to the first), and a destructor of the connection
  // that does work calls timeout_list::remove() on it first. It is no base: a base
  // dies after all members; a class that derives from it all the same calls remove()
  // in its destructor.
  class entry : detail::timeout_node {
   public:
    entry() noexcept = default;
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;

    // Removes it, as remove() does: waits for an on_expire of it that is
    // running, unless called inside that. A stop does not cut that wait short.
    // Where it must not wait it ends the program, as the list's destructor.
    ~entry() { detail::forget(*this); }

    // Whether it is in a list. False from the moment its expiry begins.
    bool is_linked() const noexcept { return touched.load() > 0; }

    // Its timeout counts from `now` on. One load and one compare-exchange of
    // one word (more only if others touch it at the same moment): no lock, no
    // allocation, no clock. A `now` older than the last touch changes nothing
    // and is a success; one in the future is believed: the entry expires a
    // duration after it. False if its expiry has begun, or if it is in no list.
    // After true, on_expire is not called before now + duration.
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

    // The same, by the clock of the caller (vigil::clock).
    bool touch() noexcept { return touch(clock::now()); }

    // When it was touched last, or added; time_point::min() if it is in no list.
    clock::time_point last_touch() const noexcept {
      const std::int64_t last = touched.load();
      return last > 0 ? clock::time_point(clock::duration(last)) : clock::time_point::min();
    }

   private:
    friend class timeout_list;
    friend class timeout_lists;
  };

  // Throws std::invalid_argument for a duration of zero or less and for an
  // empty function, wrong_place on a thread without a runtime, std::bad_alloc.
  // Durations beyond the clock's range: nothing ever expires.
  template <detail::duration_like D, class F>
    requires std::is_invocable_v<std::decay_t<F>&, entry&>
  timeout_list(const D& d, F&& on_expire, const site& from = site::current())
      : core_(make(detail::to_nanos(d), std::forward<F>(on_expire), from)) {}

  // One that was moved from has nothing: add() and expire_now() throw
  // std::logic_error, size() and duration() are zero.
  timeout_list(timeout_list&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}

  // Swaps the two: what this one was ends with `other`.
  timeout_list& operator=(timeout_list&& other) noexcept {
    std::swap(core_, other.core_);
    return *this;
  }

  // Takes all entries out; none expires any more. Waits for on_expires that are
  // running, but not for one that it is called in. They may go on adding: what is
  // added from now on is in no list after that. on_expire has been destroyed then,
  // unless the destructor runs inside it. A stop does not cut the wait short; where
  // it must not wait (this_fiber::no_park; a handler on the only worker's own
  // stack) it ends the program.
  ~timeout_list() {
    if (core_ != nullptr) detail::end_timeouts(core_);
  }

  // Puts e in, touched now; takes it out of the list it is in. Once the list's
  // destructor has begun it does only the latter. Throws runtime_gone if no run of
  // the list's runtime is under way, and std::bad_alloc if the list was empty and
  // its timer cannot be armed; then e is in no list. No allocation otherwise.
  void add(entry& e) { detail::add(core_, e); }

  // Takes e out of the list it is in, whichever that is. True if that prevented
  // its expiry. After it has returned, on_expire is neither running for e nor
  // will it start: it waits for one that runs, from a fiber or a plain thread,
  // and a stop does not end that wait. Inside on_expire for e it does not wait.
  // Where it must not wait it ends the program, as the destructor.
  // Two on_expires that each remove the other's entry wait for each other.
  static bool remove(entry& e) noexcept { return detail::remove(e); }

  // For a shutdown: calls on_expire for each entry that is in the list now, in
  // the order of their last touch before now, one after another on the calling
  // fiber, however recently they were touched. An entry that is added from now on
  // stays, even if others leave meanwhile. An entry whose earlier on_expire is still
  // running is put off. Returns how many there were. `stopped` leaves it if the fiber
  // is stopped in on_expire; the rest stays in the list and is put off. Throws
  // wrong_place outside a fiber, and std::bad_alloc before the first call.
  std::size_t expire_now() { return detail::expire_now(core_); }

  // How many entries are in it.
  std::size_t size() const noexcept { return detail::size_of(core_); }

  clock::duration duration() const noexcept { return clock::duration(detail::duration_of(core_)); }

 private:
  friend class timeout_lists;
  friend struct detail::timeout_access;

  void add_surely(entry& e) { detail::add_surely(core_, e); }

  // The list is left after the expiry has said that it runs, so it is asked for first.
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

  // Apart, so that the duration is known to be one before the function is moved.
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

// Lists for many durations: the first entry of a duration makes its list, and
// those that have become empty are dropped as others are made. A list takes 7 KiB
// while it has entries and less than one while it has none. One on_expire for
// all. Entries, their thread safety and on_expire are timeout_list's.
class timeout_lists {
 public:
  using entry = timeout_list::entry;

  // Throws std::invalid_argument for an empty function, wrong_place on a thread
  // without a runtime, std::bad_alloc.
  template <class F>
    requires std::is_invocable_v<std::decay_t<F>&, entry&>
  explicit timeout_lists(F&& on_expire, const site& from = site::current())
      : table_(detail::make_table(
            timeout_list::function_of("vigil::timeout_lists", std::forward<F>(on_expire)), from)) {}

  // One that was moved from: as timeout_list's, and lists() is zero.
  timeout_lists(timeout_lists&& other) noexcept : table_(std::exchange(other.table_, nullptr)) {}

  // Swaps the two: what these were ends with `other`.
  timeout_lists& operator=(timeout_lists&& other) noexcept {
    std::swap(table_, other.table_);
    return *this;
  }

  // As ~timeout_list, for each of them.
  ~timeout_lists() {
    if (table_ != nullptr) detail::end_table(table_);
  }

  // Puts e into the list of d, touched now; takes it out of the one it is in.
  // Throws std::invalid_argument for a duration of zero or less (e is where it
  // was), otherwise as timeout_list::add.
  template <detail::duration_like D>
  void add(entry& e, const D& d) {
    detail::add(table_, e, detail::to_nanos(d));
  }

  static bool remove(entry& e) noexcept { return detail::remove(e); }

  // timeout_list::expire_now for each list, the shortest duration first. If it throws
  // std::bad_alloc, the lists before have expired.
  std::size_t expire_now() { return detail::expire_now(table_); }

  // The number of entries in all lists; an entry that moves meanwhile may be
  // counted twice or not at all.
  std::size_t size() const noexcept { return detail::size_of(table_); }

  // Lists there are, empty ones that are not dropped yet among them.
  std::size_t lists() const noexcept { return detail::count_of(table_); }

 private:
  detail::timeout_table* table_;
};

namespace detail {

struct timeout_access {
  // add() without bad_alloc: as long as there is no memory for the timer its callback
  // is queued again and again instead. Late, never lost.
  static void add_surely(timeout_list& list, timeout_list::entry& e) { list.add_surely(e); }

  // In no list, nor in an on_expire. It may be in one by the time this returns.
  static bool is_away(const timeout_list::entry& e) noexcept { return timeout_list::is_away(e); }
};

template <auto Member>
struct member_of;

template <class T, class M, M T::*Member>
struct member_of<Member> {
  using owner = T;
};

}  // namespace detail

// A T and its entry, in an order that is safe: the entry dies first, and waits for an
// on_expire that is running, before the destructor of T begins. Neither copied nor
// moved.
template <class T>
class expiring final {
 public:
  // The T from these: T(args...), or T{args...} for an aggregate.
  template <class... Args>
    requires(std::is_constructible_v<T, Args...> || requires(Args&&... a) { T{std::move(a)...}; })
  explicit expiring(Args&&... args) : value_(make(std::forward<Args>(args)...)) {}

  expiring(const expiring&) = delete;
  expiring& operator=(const expiring&) = delete;

  // Whose entry e is. Only for the entry of an expiring<T>.
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
  timeout_list::entry entry_;  // the last: it dies before value_ does
};

// The object whose member e is: owner_of<&connection::idle>(e). For members of
// classes without virtual bases above them.
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

}  // namespace vigil::inline VIGIL_ABI
