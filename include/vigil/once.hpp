// once: runs a function once.
//
//   vigil::once opened;
//   opened.call([&] { connection = open(); });
//
// sync.hpp has the rules for all locks and counters, and for the ends of their waits.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <atomic>
#include <type_traits>
#include <utility>

namespace vigil::inline VIGIL_ABI {

// Runs the function of the first caller; the others wait until it has returned. If it
// throws (a stop included), the exception goes to the caller that ran it, and the next
// one runs its own: the rule of std::call_once. Not Go's, whose Once counts a panic as
// done.
class once {
 public:
  constexpr once() noexcept = default;
  once(const once&) = delete;
  once& operator=(const once&) = delete;

  // Throws what f throws, `stopped` while it waits for another, and
  // std::logic_error if f calls it (directly) again. Cost afterwards: one load.
  template <class F, class... Args>
    requires std::is_invocable_v<F, Args...>
  void call(F&& f, Args&&... args) {
    call_within(detail::no_limit, std::forward<F>(f), std::forward<Args>(args)...);
  }

  // The same, but waits for another at most until ctx is done: then throws
  // `cancelled`. f is not bounded by ctx, unless it hands ctx on itself.
  template <class F, class... Args>
  void call(const context& ctx, F&& f, Args&&... args) {
    call_within(detail::cancelled_by(ctx), std::forward<F>(f), std::forward<Args>(args)...);
  }

  // If true, the writes of the function are visible.
  bool is_done() const noexcept {
    // Pairs with the release in end_once().
    return core_.state.load(std::memory_order_acquire) == detail::once_core::done;
  }

 private:
  template <class F, class... Args>
  void call_within(const detail::wait_limit& limit, F&& f, Args&&... args) {
    if (is_done() || !detail::begin_once(core_, limit)) return;

    struct run_of_mine {
      detail::once_core& core;
      bool done = false;

      ~run_of_mine() { detail::end_once(core, done); }
    } mine{core_};

    static_cast<void>(std::forward<F>(f)(std::forward<Args>(args)...));
    mine.done = true;
  }

  detail::once_core core_;
};

}  // namespace vigil::inline VIGIL_ABI
