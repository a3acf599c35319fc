// select: waits for the first of several cases.
//
//   vigil::select(
//       vigil::on_recv(lines, [&](std::optional<std::string> s) { ... }),
//       vigil::on_send(replies, std::move(reply), [&] { ... }),
//       vigil::on_timeout(1s, [&] { ... }));
//
// Exactly one case is taken. Its function is called after the other cases have been
// undone; an exception of the function comes out of select(). If several cases are ready,
// one is drawn, each with the same chance; select_ordered() takes the first of them. A
// select looks at a single instant: it never finds nothing ready while some case is ready
// all the time.
//
// All arguments are evaluated once, before the select looks at anything. A nil channel is
// never ready, so assigning an empty handle switches a case off. The same channel may
// stand in several cases. A select in which no case can ever be taken waits until the
// fiber is stopped; if all fibers wait like that, it is reported as a deadlock.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

namespace VIGIL_PUBLIC {

// --- The cases. The function may be left out. A channel that is not a temporary must
// outlive the select; a case_list keeps the channels of its cases.

// Taken when a value can be received from ch, or when ch is closed. f takes a
// std::optional<T> (a bool for channel<void>), or nothing. Throws what moving f throws.
// Thread safety: that of the channel. Lifetime: a channel that is not a temporary must
// outlive the select; a case_list keeps it. Shutdown: a case that is ready is still
// taken. Cost: no allocation. Go: case v, ok := <-ch.
template <detail::receives C, class F = detail::nothing>
[[nodiscard]] auto on_recv(C&& ch, F f = {}) {
  return detail::recv_from(std::forward<C>(ch), std::move(f));
}

// Taken when the value can be sent. If ch is closed, select() throws channel_closed, and
// the value is untouched. Throws what a copy or conversion of the value throws. Thread
// safety: that of the channel. Shutdown: a case that is ready is still taken. Cost: no
// allocation. Go: case ch <- v.
//
// Lifetime: an rvalue stays in the caller's hand: it must outlive the select, and is
// moved from only if the case is taken. So does a T v given as std::ref(v), which in a
// case_list (which takes no rvalues) must outlive the list. Any other value, and any that
// is trivially copyable, is copied or converted at once.
template <detail::sends C, class U, class F = detail::nothing>
  requires detail::sendable<detail::element_of<C>, U>
[[nodiscard]] auto on_send(C&& ch, U&& value, F f = {}) {
  return detail::send_to(std::forward<C>(ch), std::forward<U>(value), std::move(f));
}

// An lvalue of a T that cannot be copied: the compiler says what to write.
template <detail::sends C, class write = detail::on_send_of_std_move>
  requires(!std::is_copy_constructible_v<detail::element_of<C>>)
void on_send(C&& ch, const std::type_identity_t<detail::element_of<C>>& value, ...)
    VIGIL_REFUSED("write on_send(ch, std::move(v), f)");

// The same with a value that is made at once: T(args...), or T{args...} for an aggregate.
// In a coroutine it is no temporary of the co_await expression, which g++ 12 may destroy
// twice (box in docs/guide/coroutines.md).
template <detail::sends C, class... Args>
[[nodiscard]] auto on_send(C&& ch, std::in_place_t, Args&&... args) {
  return detail::send_made_to(std::forward<C>(ch), detail::nothing(), std::forward<Args>(args)...);
}

template <detail::sends C, class F, class... Args>
  requires detail::takes<F>
[[nodiscard]] auto on_send(C&& ch, F f, std::in_place_t, Args&&... args) {
  return detail::send_made_to(std::forward<C>(ch), std::move(f), std::forward<Args>(args)...);
}

template <detail::sends C, class F = detail::nothing>
  requires std::is_void_v<detail::element_of<C>>
[[nodiscard]] auto on_send(C&& ch, F f = {}) {
  return detail::send_to(std::forward<C>(ch), detail::no_value{}, std::move(f));
}

// Taken when d has passed since the select began to wait and no other case was ready;
// with a zero or negative d, when no other case is ready. Costs no timer unless the
// select waits. It bounds this wait only: a loop over channels that may always be ready
// is ended by the channel of after(), which takes its turn among them. Throws
// std::invalid_argument for NaN; select() throws std::bad_alloc if it cannot be armed.
// Thread safety: a case belongs to one select at a time. Lifetime: the case owns f.
// Shutdown: ends the wait by `stopped`. Cost: a timer only if the select waits. Go: case
// <-time.After(d).
template <detail::duration_like D, class F = detail::nothing>
[[nodiscard]] auto on_timeout(const D& d, F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::timed, detail::within(d), std::move(f));
}

template <class write = detail::write_a_duration_such_as_5ms>
void on_timeout(...) VIGIL_REFUSED(VIGIL_WANTS_DURATION);

// on_timeout with a deadline, which several selects can share. Throws as on_timeout does.
// Thread safety: that of on_timeout. Lifetime: that of on_timeout. Shutdown: that of
// on_timeout. Cost: that of on_timeout.
template <detail::time_point_like Time, class F = detail::nothing>
[[nodiscard]] auto on_deadline(const Time& t, F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::timed, detail::until(t), std::move(f));
}

// Taken when ctx is done; never taken for a context that cannot be cancelled. Throws
// std::invalid_argument for a nil context. Thread safety: that of context. Lifetime: the
// case keeps ctx. Shutdown: under background() it is taken as soon as the shutdown
// begins. Cost: no allocation. Go: case <-ctx.Done().
template <class F = detail::nothing>
[[nodiscard]] auto on_done(const context& ctx, F f = {}) {
  return on_recv(receiver<void>(detail::channel_handle(detail::done_of(ctx))), std::move(f));
}

// Taken if no other case is ready, so that the select does not wait. At most one. The
// select is a call that may wait even so: in a loop it lets other fibers go first now and
// then (options::turn_budget). Throws what moving f throws. Thread safety: that of
// on_timeout. Lifetime: that of on_timeout. Shutdown: the select does not wait, and so is
// not stopped. Cost: no allocation. Go: default.
template <class F = detail::nothing>
[[nodiscard]] auto otherwise(F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::otherwise, detail::no_limit, std::move(f));
}

// --- select

// Takes one case and returns its index. Without cases it waits for ever. Throws the
// exception of the case's function, channel_closed (see on_send), `stopped`, wrong_place,
// std::bad_alloc (a deadline could not be armed), and std::invalid_argument for a second
// otherwise(). Thread safety: any fiber or thread. Lifetime: cases and their objects
// outlive the call. Shutdown: takes a case that is ready, and otherwise throws `stopped`.
// Cost: a look at each case; no allocation for up to eight. Behaviour: Go's select, with
// timeouts.
template <class... Cases>
std::size_t select(Cases&&... cases) {
  return detail::select_of(detail::choice::fair, cases...);
}

// Takes the first of the cases that are ready, and returns its index; otherwise as
// select(). Throws what select throws. Thread safety: that of select. Lifetime: that of
// select. Shutdown: that of select. Cost: that of select.
template <class... Cases>
std::size_t select_ordered(Cases&&... cases) {
  return detail::select_of(detail::choice::ordered, cases...);
}

// case_list: any number of cases, known at run time, which may be selected from again and
// again. Each on_send() of a std::ref(v) sends the value that v has at that time: a
// moved-from one once the case has been taken.
//
// Throws std::logic_error from a select inside one of its own functions; add() throws
// std::bad_alloc. Thread safety: one thread or fiber may use it at a time. Lifetime: it
// keeps its channels, functions and contexts; values given as std::ref outlive it.
// Shutdown: that of select. Cost: an allocation for each case, none for a select of up to
// eight. Go: reflect.Select.
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

  // Adds a case and returns its index.
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

  // Removes all cases. A case's function may call it, and may then add() others.
  void clear() noexcept {
    ++cleared_;
    pointers_.clear();
    while (!all_.empty()) {
      delete all_.back();
      all_.pop_back();
    }
  }

  // Makes the case never ready; the others keep their indices. A case's function may call
  // it, even for itself. Throws std::out_of_range.
  void switch_off(std::size_t index) {
    detail::select_case& c = *pointers_.at(index);
    c.type = detail::select_case::kind::waits;
    c.table = nullptr;
    c.object = nullptr;
  }

 private:
  friend std::size_t select(case_list& cases);
  friend std::size_t select_ordered(case_list& cases);

  std::size_t choose(detail::choice mode) {
    for (detail::any_case* const one : all_) {
      if (one == nullptr) detail::throw_select_within();
      one->prepare();
    }
    const std::size_t taken = detail::select(pointers_.data(), pointers_.size(), mode);

    // Keeps the case out of the list while its function runs, which may clear the list.
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

}  // namespace VIGIL_PUBLIC
