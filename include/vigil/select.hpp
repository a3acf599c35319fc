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
#include <vigil/detail/select_case.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace vigil {
inline namespace VIGIL_ABI {

namespace detail {

template <class F, class... Args>
inline constexpr bool takes = std::is_invocable_v<F&, Args...>;

// What a case does with the handle that it was given: keeps a temporary one,
// and only looks at one that the caller keeps.
struct borrowed_handle {};

template <class T, class Kept, class F>
class recv_case : public select_case {
  static_assert(takes<F, std::optional<T>> || takes<F>,
                "on_recv(channel, f): f takes a std::optional<T>, empty when the channel is "
                "closed and drained, or nothing");

 public:
  recv_case(channel_core* from, Kept kept, F f)
      : select_case(recv_case_table, from), kept_(std::move(kept)), f_(std::move(f)) {}

  void prepare() noexcept { value = room_.room(); }
  void taken() {
    if constexpr (takes<F, std::optional<T>>) {
      static_cast<void>(f_(room_.take(status)));
    } else {
      static_cast<void>(room_.take(status));
      static_cast<void>(f_());
    }
  }

 private:
  [[no_unique_address]] Kept kept_;
  [[no_unique_address]] F f_;
  value_room<T> room_;
};

template <class Kept, class F>
class recv_case<void, Kept, F> : public select_case {
  static_assert(takes<F, bool> || takes<F>,
                "on_recv(channel, f): f takes a bool, false when the channel is closed and "
                "drained, or nothing");

 public:
  recv_case(channel_core* from, Kept kept, F f)
      : select_case(recv_case_table, from), kept_(std::move(kept)), f_(std::move(f)) {}

  void prepare() noexcept {}
  void taken() {
    if constexpr (takes<F, bool>) {
      static_cast<void>(f_(status == channel_status::ok));
    } else {
      static_cast<void>(f_());
    }
  }

 private:
  [[no_unique_address]] Kept kept_;
  [[no_unique_address]] F f_;
};

// Value: T& for one that stays in the caller's hand until the case is taken, T
// for a copy of our own, no_value for none.
template <class Value, class Kept, class F>
class send_case : public select_case {
  static_assert(takes<F>, "on_send(channel, value, f): f takes nothing");

 public:
  send_case(channel_core* to, Kept kept, Value given, F f)
      : select_case(send_case_table, to),
        kept_(std::move(kept)),
        value_(static_cast<Value&&>(given)),
        f_(std::move(f)) {}

  void prepare() noexcept { value = std::addressof(value_); }
  void taken() {
    if (status == channel_status::closed) throw_send_on_closed();
    static_cast<void>(f_());
  }

 private:
  [[no_unique_address]] Kept kept_;
  Value value_;
  [[no_unique_address]] F f_;
};

struct no_value {};

// Of an rvalue that somebody else keeps for as long as the statement: no case for a
// case_list.
template <class T, class Kept, class F>
class send_rvalue_case : public send_case<T&, Kept, F> {
 public:
  using send_case<T&, Kept, F>::send_case;
  static constexpr bool of_rvalue = true;
};

template <class C>
inline constexpr bool ends_with_the_statement = requires { C::of_rvalue; };

template <class F>
class time_case : public select_case {
  static_assert(takes<F>, "on_timeout(duration, f): f takes nothing");

 public:
  time_case(kind k, const wait_limit& l, F f) : select_case(k, l), f_(std::move(f)) {}

  void prepare() noexcept {}
  void taken() { static_cast<void>(f_()); }

 private:
  F f_;
};

template <class C>
inline constexpr bool is_case = std::is_base_of_v<select_case, C>;

// What a case without a function does.
struct nothing {
  void operator()() const noexcept {}
};

}  // namespace detail

namespace detail {

template <class T, class F>
auto recv_from(const channel_handle& kept_by_caller, F f) {
  return recv_case<T, borrowed_handle, F>(kept_by_caller.core(), {}, std::move(f));
}
template <class T, class F>
auto recv_from(channel_handle&& temporary, F f) {
  channel_core* const core = temporary.core();
  return recv_case<T, channel_handle, F>(core, std::move(temporary), std::move(f));
}

// As an argument is: implicitly, with the compiler's warnings.
template <class T>
T converted(std::type_identity_t<T> value) {
  return value;
}

// A std::reference_wrapper<T>, told by what it can do: <functional> is large.
template <class T, class U>
concept is_ref_to = std::is_same_v<typename std::remove_cvref_t<U>::type, T> &&
                    requires(const std::remove_cvref_t<U>& wrapper) {
                      { wrapper.get() } -> std::same_as<T&>;
                    };

template <class T, class Kept, class U, class F>
auto send_to(channel_core* core, Kept kept, U&& value, F f) {
  // What a copy cannot lose is copied.
  if constexpr (is_ref_to<T, U>) {
    return send_case<T&, Kept, F>(core, std::move(kept), value.get(), std::move(f));
  } else if constexpr (std::is_same_v<U&&, T&&> && !std::is_trivially_copyable_v<T>) {
    return send_rvalue_case<T, Kept, F>(core, std::move(kept), value, std::move(f));
  } else {
    return send_case<T, Kept, F>(core, std::move(kept), converted<T>(std::forward<U>(value)),
                                 std::move(f));
  }
}

template <class T, class U>
concept sendable = std::is_convertible_v<U&&, T> || is_ref_to<T, U>;

}  // namespace detail

// --- the cases; the function may be left out. A channel that is not a
// temporary must outlive the select; a case_list keeps the channels of its cases.

// Taken when something can be received from ch, or ch is closed. f takes a
// std::optional<T> (a bool for channel<void>), or nothing.
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_recv(const channel<T>& ch, F f = {}) {
  return detail::recv_from<T>(ch.handle(), std::move(f));
}
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_recv(channel<T>&& ch, F f = {}) {
  return detail::recv_from<T>(std::move(ch).handle(), std::move(f));
}
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_recv(const receiver<T>& ch, F f = {}) {
  return detail::recv_from<T>(ch.handle(), std::move(f));
}
template <class T, class F = detail::nothing>
[[nodiscard]] auto on_recv(receiver<T>&& ch, F f = {}) {
  return detail::recv_from<T>(std::move(ch).handle(), std::move(f));
}

// Taken when the value can be sent. An rvalue stays in the caller's hand: it
// must outlive the select, and is moved from only if the case is taken; any
// other value, and any that is trivially copyable, is copied or converted at
// once. With std::ref(v), of a T v, v stays in the caller's hand as an rvalue does;
// in a case_list, which takes no case of an rvalue, until the list is done with.
// If the case is taken because ch is closed, select() throws channel_closed, and the
// value is untouched.
template <class T, class U, class F = detail::nothing>
  requires detail::sendable<T, U>
[[nodiscard]] auto on_send(const channel<T>& ch, U&& value, F f = {}) {
  return detail::send_to<T>(ch.core(), detail::borrowed_handle{}, std::forward<U>(value),
                            std::move(f));
}
template <class T, class U, class F = detail::nothing>
  requires detail::sendable<T, U>
[[nodiscard]] auto on_send(channel<T>&& ch, U&& value, F f = {}) {
  return detail::send_to<T>(ch.core(), ch.handle(), std::forward<U>(value), std::move(f));
}
template <class T, class U, class F = detail::nothing>
  requires detail::sendable<T, U>
[[nodiscard]] auto on_send(const sender<T>& ch, U&& value, F f = {}) {
  return detail::send_to<T>(ch.core(), detail::borrowed_handle{}, std::forward<U>(value),
                            std::move(f));
}
template <class T, class U, class F = detail::nothing>
  requires detail::sendable<T, U>
[[nodiscard]] auto on_send(sender<T>&& ch, U&& value, F f = {}) {
  return detail::send_to<T>(ch.core(), ch.handle(), std::forward<U>(value), std::move(f));
}
template <class F = detail::nothing>
[[nodiscard]] auto on_send(const channel<void>& ch, F f = {}) {
  return detail::send_case<detail::no_value, detail::channel_handle, F>(ch.core(), ch.handle(), {},
                                                                        std::move(f));
}
template <class F = detail::nothing>
[[nodiscard]] auto on_send(const sender<void>& ch, F f = {}) {
  return detail::send_case<detail::no_value, detail::channel_handle, F>(ch.core(), ch.handle(), {},
                                                                        std::move(f));
}

// Taken when d has passed since the select began to wait, and nothing else came
// first; zero or negative: when nothing else is ready. Costs no timer unless
// the select waits. It bounds this wait only: to end a loop over channels that
// may always be ready, use a channel of after(), which has its turn among them.
template <detail::duration_like D, class F = detail::nothing>
[[nodiscard]] auto on_timeout(const D& d, F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::timed, detail::within(d),
                              std::move(f));
}

// The same at a deadline, which the waits of several selects can share.
template <detail::time_point_like Time, class F = detail::nothing>
[[nodiscard]] auto on_deadline(const Time& t, F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::timed, detail::until(t),
                              std::move(f));
}

// Taken when ctx is done. Of one that never is: never.
template <class F = detail::nothing>
[[nodiscard]] auto on_done(const context& ctx, F f = {}) {
  return detail::recv_from<void>(detail::channel_handle(detail::done_of(ctx)), std::move(f));
}

// Taken if nothing else is ready: the select does not wait. At most one.
template <class F = detail::nothing>
[[nodiscard]] auto otherwise(F f = {}) {
  return detail::time_case<F>(detail::select_case::kind::otherwise, detail::no_limit,
                              std::move(f));
}

// --- select

namespace detail {

template <class... Cases>
std::size_t select_of(choice how, Cases&... cases) {
  static_assert((is_case<Cases> && ...),
                "select(...) takes cases: on_recv, on_send, on_timeout, on_deadline, otherwise");
  constexpr std::size_t count = sizeof...(Cases);
  (cases.prepare(), ...);
  select_case* const all[count + 1] = {&cases..., nullptr};
  const std::size_t taken = select(all, count, how);
  std::size_t i = 0;
  static_cast<void>(((i++ == taken ? (cases.taken(), true) : false) || ...));
  return taken;
}

}  // namespace detail

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
    auto* const given = new held<C>(std::move(one));
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

  struct any_case {
    virtual ~any_case() = default;
    virtual detail::select_case* core() noexcept = 0;
    virtual void prepare() noexcept = 0;
    virtual void taken() = 0;
  };

  template <class C>
  struct held final : any_case {
    explicit held(C&& given) : one(std::move(given)), kept(detail::keep_channel(one)) {}
    detail::select_case* core() noexcept override { return &one; }
    void prepare() noexcept override { one.prepare(); }
    void taken() override { one.taken(); }
    C one;
    detail::channel_handle kept;
  };

  std::size_t choose(detail::choice how) {
    for (any_case* const one : all_) {
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
      any_case* one;
      std::uint64_t cleared;
    } const out{*this, taken, std::exchange(all_[taken], nullptr), cleared_};
    out.one->taken();
    return taken;
  }

  std::vector<any_case*> all_;  // nullptr: its function is running
  std::uint64_t cleared_ = 0;
  std::vector<detail::select_case*> pointers_;
};

inline std::size_t select(case_list& cases) {
  return cases.choose(detail::choice::fair);
}

inline std::size_t select_ordered(case_list& cases) {
  return cases.choose(detail::choice::ordered);
}

}  // namespace VIGIL_ABI
}  // namespace vigil
