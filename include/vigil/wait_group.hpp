// wait_group: waits until a number of things are done.
//
//   vigil::wait_group all;
//   for (auto& part : parts) all.go([&part] { work_on(part); });
//   all.wait();
//
// sync.hpp has the rules for all locks and counters, and for the ends of their waits.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/fiber.hpp>

#include <cstdint>
#include <type_traits>
#include <utility>

namespace vigil::inline VIGIL_ABI {

namespace detail {

// One that counts, until it dies.
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

  counted one;  // the last to die
  F f;
};

}  // namespace detail

// Waits until a number of things are done. It may be used again after a wait,
// and any number may wait. Writes before a done() are visible after the wait() that it
// ends. Behaviour: Go's sync.WaitGroup.
class wait_group {
 public:
  constexpr wait_group() noexcept = default;
  wait_group(const wait_group&) = delete;
  wait_group& operator=(const wait_group&) = delete;

  // n more to wait for; negative: that many are done. Throws std::logic_error,
  // with nothing changed, if fewer than none would be left or the count would
  // overflow.
  void add(std::int64_t n = 1) { detail::add_to(core_, n); }

  void done() { detail::add_to(core_, -1); }

  std::int64_t count() const noexcept { return detail::count_of(core_); }

  // Whether the count is zero now.
  bool try_wait() const noexcept { return count() == 0; }

  // Until the count is zero; at once if it is. A waiter goes on once it has been
  // zero, whatever is added afterwards.
  void wait() { detail::wait(core_, false, detail::no_limit); }

  // At most until ctx is done: then throws `cancelled`.
  void wait(const context& ctx) { detail::wait(core_, false, detail::cancelled_by(ctx)); }

  // False if the timeout passed first.
  template <detail::duration_like D>
  bool wait_for(const D& timeout) {
    return detail::wait(core_, false, detail::within(timeout));
  }

  template <detail::time_point_like Time>
  bool wait_until(const Time& t) {
    return detail::wait(core_, false, detail::until(t));
  }

  // Runs f on a fiber of its own that counts until f has returned or thrown, and
  // its captures are gone. An exception of f goes to options::on_unhandled, as for
  // vigil::go; that function's errors, with nothing counted.
  template <class F>
  void go(F&& f, const site& from = site::current()) {
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
  detail::counter_core core_;
};

}  // namespace vigil::inline VIGIL_ABI
