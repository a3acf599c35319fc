// once: runs a function once.
//
//   vigil::once opened;
//   opened.call([&] { connection = open(); });
//
// sync.hpp has the rules for all locks and counters, and for how their waits end.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <atomic>
#include <utility>

namespace VIGIL_PUBLIC {

// once: runs the function of the first caller; the others wait until it has returned. If
// it throws (even `stopped`), its caller gets the exception, and the next caller runs its
// own function.
//
// Throws what f throws; `stopped`, wrong_place, `cancelled` with a context while it
// waits; std::logic_error from a call inside f. Thread safety: fibers of any runtime and
// plain threads; what f wrote is visible to all callers. Lifetime: it may be destroyed
// when nothing calls it any more. Shutdown: ends a wait by `stopped`; an f that is
// unwound is not done. Cost: one load, once f has returned. Behaviour: std::call_once.
// (Go's Once counts a panic as done.)
class once {
 public:
  constexpr once(const site& from = site::current()) noexcept : core_(from) {}

  once(const once&) = delete;
  once& operator=(const once&) = delete;

  // Throws the exception of f; `stopped` while it waits for another caller;
  // std::logic_error if f itself calls it again.
  template <class F, class... Args>
    requires requires(F&& f, Args&&... args) { std::forward<F>(f)(std::forward<Args>(args)...); }
  void call(F&& f, Args&&... args) {
    call_within(detail::no_limit, std::forward<F>(f), std::forward<Args>(args)...);
  }

  // The same; throws `cancelled` when ctx is done while it waits for another caller. ctx
  // does not limit f, unless f passes it on itself.
  template <class F, class... Args>
    requires requires(F&& f, Args&&... args) { std::forward<F>(f)(std::forward<Args>(args)...); }
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

}  // namespace VIGIL_PUBLIC
