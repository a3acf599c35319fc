// wait_group: waits until a number of things are done.
//
//   vigil::wait_group warm;
//   vigil::group caches;  // after what its fibers use: it waits for them in any case
//   for (auto& c : all_caches) {
//     warm.add();
//     caches.go([&] { c.fill(); warm.done(); c.keep_fresh(); });
//   }
//   warm.wait(caches.context());
//
// sync.hpp has the rules for all locks and counters, and for how their waits end. A stop
// ends wait() while the fibers go on: those that are waited for to their end belong in a
// vigil::group.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/fiber.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace VIGIL_PUBLIC {

namespace detail {

// Counts one, until it is destroyed.
class counted {
 public:
  explicit counted(counter_core& added_to) noexcept : core_(&added_to) {}

  counted(counted&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}

  counted& operator=(counted&&) = delete;

  ~counted() {
    if (core_ != nullptr) add_to(*core_, -1);
  }

 private:
  counter_core* core_;
};

// The function of a fiber that counts.
template <class F>
struct counted_body {
  void operator()() { static_cast<void>(f()); }

  counted one;  // is destroyed last
  F f;
};

}  // namespace detail

// wait_group: a count of things that are not done yet. Any number of fibers may wait, and
// it may be used again after a wait. Throws std::logic_error below zero and beyond 2^63 -
// 1; from waits `stopped`, wrong_place, `cancelled` with a context, std::bad_alloc with a
// time; from go() what vigil::go throws. Thread safety: fibers of any runtime and plain
// threads; writes before a done() are visible after the wait() that it ends. Lifetime: it
// outlives the fibers that it counts, whose captures die too early to keep it, and may be
// destroyed right after the wait for them.
// Shutdown: ends a wait by `stopped`; the fibers of go() are unwound, and count. Cost: a
// short lock for each call, and no allocation. Behaviour: Go's sync.WaitGroup.
class wait_group {
 public:
  constexpr wait_group(const site& from = site::current()) noexcept : core_(from) {}

  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // Adds n to the count; a negative n says that so many are done. Throws
  // std::logic_error, with nothing changed, if the count would become negative or
  // overflow.
  void add(std::int64_t n = 1) { detail::add_to(core_, n); }

  void done() { detail::add_to(core_, -1); }

  std::int64_t count() const noexcept { return detail::count_of(core_); }

  // Whether the count is zero now.
  bool try_wait() const noexcept { return count() == 0; }

  // Waits until the count is zero; returns at once if it is. A waiter continues once the
  // count has been zero, whatever is added afterwards.
  void wait() { detail::wait(core_, false, detail::no_limit); }

  // The same; throws `cancelled` when ctx is done.
  void wait(const context& ctx) { detail::wait(core_, false, detail::cancelled_by(ctx)); }

  // Returns false if the timeout passed first.
  template <detail::duration_argument D>
  bool wait_for(const D& timeout) {
    return detail::wait(core_, false, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  bool wait_until(const Time& t) {
    return detail::wait(core_, false, detail::until(t));
  }

  // Runs f on a fiber that counts until f has returned or thrown and its captures are
  // destroyed. An exception of f goes to options::on_unhandled. Throws what vigil::go
  // throws, with nothing counted.
  template <class F>
  void go(F&& f, const site& from = site::current()) {
    static_assert(detail::checked_function<std::decay_t<F>&>::is_done);
    detail::refuse_empty("vigil::wait_group::go", f);
    add();
    using body = detail::counted_body<std::decay_t<F>>;
    detail::start_by({.name = "vigil::wait_group::go"},
                     {},
                     true,
                     from,
                     body{detail::counted(core_), std::forward<F>(f)});
  }

 private:
  friend struct detail::core_access;

  detail::counter_core core_;
};

}  // namespace VIGIL_PUBLIC
