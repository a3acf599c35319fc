// select: waits for the first of several things.
//
//   vigil::select(
//       vigil::on_recv(lines, [&](std::optional<std::string> s) { ... }),
//       vigil::on_send(replies, std::move(reply), [&] { ... }),
//       vigil::on_timeout(1s, [&] { ... }));
//
// Exactly one case is taken, and its function is called after everything else
// of the select has been undone; what it throws comes out of select(). If
// several cases are ready, one of them is drawn, each with the same chance:
// select_ordered() takes the first instead. A select looks at one instant: it
// never says that nothing is ready while something is all the time.
//
// All arguments are evaluated once, in the order of C++, before the select
// looks at anything. A nil channel is never ready, so a case can be switched
// off by assigning an empty handle. The same channel may stand in several
// cases. A select without a case that can ever be taken waits until the fiber
// is stopped; if all fibers do, that is reported as a deadlock.
//
// Behaviour: Go's select, with timeouts. Thread safety: as the channels.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace vigil::inline VIGIL_ABI {

// --- the cases; the function may be left out. A channel that is not a
// temporary must outlive the select; a case_list keeps the channels of its cases.

// Taken when something can be received from ch, or ch is closed. f takes a
// std::optional<T> (a bool for channel<void>), or nothing.
template <detail::receives C, class F = detail::nothing>
[[nodiscard]] auto on_recv(C&& ch, F f = {}) {
  return detail::recv_from(std::forward<C>(ch), std::move(f));
}

// Taken when the value can be sent. An rvalue stays in the caller's hand: it
// must outlive the select, and is moved from only if the case is taken; any
// other value, and any that is trivially copyable, is copied or converted at
// once. With std::ref(v), of a T v, v stays in the caller's hand as an rvalue does;
// in a case_list, which takes no case of an rvalue, until the list is done with.
// If the case is taken because ch is closed, select() throws channel_closed, and the
// value is untouched.
template <detail::sends C, class U, class F = detail::nothing>
  requires detail::sendable<detail::element_of<C>, U>
[[nodiscard]] auto on_send(C&& ch, U&& value, F f = {}) {
  return detail::send_to(std::forward<C>(ch), std::forward<U>(value), std::move(f));
}

template <detail::sends C, class F = detail::nothing>
  requires std::is_void_v<detail::element_of<C>>
[[nodiscard]] auto on_send(C&& ch, F f = {}) {
  return detail::send_to(std::forward<C>(ch), detail::no_value{}, std::move(f));
}

// Taken when d has passed since the select began to wait, and nothing else came
// first; zero or negative: when nothing else is ready. Costs no timer unless
// the select waits. It bounds this wait only: to end a loop over channels that
// may always be ready, use a channel of after(), which has its turn among them.
template <detail::duration_like D, class F = detail::nothing>
[[nodiscard]] auto on_timeout(const D& d, F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::timed, detail::within(d), std::move(f));
}

// The same at a deadline, which the waits of several selects can share.
template <detail::time_point_like Time, class F = detail::nothing>
[[nodiscard]] auto on_deadline(const Time& t, F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::timed, detail::until(t), std::move(f));
}

// Taken when ctx is done; never taken for a context that cannot be cancelled.
template <class F = detail::nothing>
[[nodiscard]] auto on_done(const context& ctx, F f = {}) {
  return on_recv(receiver<void>(detail::channel_handle(detail::done_of(ctx))), std::move(f));
}

// Taken if nothing else is ready: the select does not wait. At most one.
template <class F = detail::nothing>
[[nodiscard]] auto otherwise(F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::otherwise, detail::no_limit, std::move(f));
}

// --- select

// Takes one case and returns its index. Without a case it waits for ever.
// Throws what the case's function throws, channel_closed (see on_send),
// `stopped`, wrong_place, std::bad_alloc (a deadline could not be armed), and
// std::invalid_argument for a second otherwise.
template <class... Cases>
std::size_t select(Cases&&... cases) {
  return detail::select_of(detail::choice::fair, cases...);
}

// The same, but of those that are ready the first is taken.
template <class... Cases>
std::size_t select_ordered(Cases&&... cases) {
  return detail::select_of(detail::choice::ordered, cases...);
}

// Any number of cases, known at run time. It may be selected from again and
// again: each on_send() of a std::ref(v) then sends what v is at that time, a
// moved-from one after it was taken; v must outlive the list. One thread or
// fiber at a time, and not from within one of its own functions
// (std::logic_error).
class case_list {
 public:
  case_list() noexcept = default;

  case_list(case_list&& other) noexcept
      : all_(std::exchange(other.all_, {})),
        cleared_(other.cleared_++),
        pointers_(std::exchange(other.pointers_, {})) {}

  case_list& operator=(case_list other) noexcept {
    std::swap(all_, other.all_);
    std::swap(pointers_, other.pointers_);
    ++cleared_;
    return *this;
  }

  ~case_list() { clear(); }

  // Returns the index of the case.
  template <class C>
    requires detail::is_case<C>
  std::size_t add(C one) {
    static_assert(!detail::ends_with_the_statement<C>,
                  "case_list::add(on_send(ch, rvalue)): a temporary would be gone when the list is "
                  "selected from. Hand over std::ref(v), with a v that outlives the list, which is "
                  "moved from when the case is taken; or an lvalue, which is copied");
    const std::size_t index = all_.size();
    auto* const given = new detail::held_case<C>(std::move(one));
    try {
      pointers_.push_back(given->core());
      all_.push_back(given);
    } catch (...) {
      pointers_.resize(index);
      delete given;
      throw;
    }
    return index;
  }

  std::size_t size() const noexcept { return all_.size(); }

  // No case is left. A case's function may call it, and add() others then.
  void clear() noexcept {
    ++cleared_;
    pointers_.clear();
    while (!all_.empty()) {
      delete all_.back();
      all_.pop_back();
    }
  }

  // The case is never ready from now on; the others keep their indices. A case's
  // function may call it, for itself too. Throws std::out_of_range.
  void switch_off(std::size_t index) {
    detail::select_case& c = *pointers_.at(index);
    c.what = detail::select_case::kind::waits;
    c.object = nullptr;
  }

 private:
  friend std::size_t select(case_list& cases);
  friend std::size_t select_ordered(case_list& cases);

  std::size_t choose(detail::choice how) {
    for (detail::any_case* const one : all_) {
      if (one == nullptr) detail::throw_select_within();
      one->prepare();
    }
    const std::size_t taken = detail::select(pointers_.data(), pointers_.size(), how);

    // Out of the list while its function runs, which may clear that.
    struct held_out {
      ~held_out() {
        if (list.cleared_ == cleared) {
          list.all_[index] = one;
        } else {
          delete one;
        }
      }

      case_list& list;
      std::size_t index;
      detail::any_case* one;
      std::uint64_t cleared;
    } const out{*this, taken, std::exchange(all_[taken], nullptr), cleared_};

    out.one->taken();
    return taken;
  }

  std::vector<detail::any_case*> all_;  // nullptr: its function is running
  std::uint64_t cleared_ = 0;
  std::vector<detail::select_case*> pointers_;
};

inline std::size_t select(case_list& cases) {
  return cases.choose(detail::choice::fair);
}

inline std::size_t select_ordered(case_list& cases) {
  return cases.choose(detail::choice::ordered);
}

}  // namespace vigil::inline VIGIL_ABI
