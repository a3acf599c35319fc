// The typed cases of a select, which on_recv() and the others make.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {

template <class F, class... Args>
inline constexpr bool takes = std::is_invocable_v<F&, Args...>;

// Calls f with the value that take() returns. If f takes none, the value is gone before
// the call: it may hold what f waits for.
template <class F, class Take>
void hand_to(F& f, Take take) {
  if constexpr (takes<F, decltype(take())>) {
    static_cast<void>(f(take()));
  } else {
    static_cast<void>(take());
    static_cast<void>(f());
  }
}

template <class C>
using element_of = typename std::remove_cvref_t<C>::value_type;

// A channel<T>, or the half of one.
template <class C>
concept receives = std::is_convertible_v<C, receiver<element_of<C>>>;
template <class C>
concept sends = std::is_convertible_v<C, sender<element_of<C>>>;

// Stands for a handle that the caller keeps. A case keeps only a temporary handle.
struct borrowed_handle {
  explicit borrowed_handle(const channel_handle&) noexcept {}
};

template <class C>
using kept_handle =
    std::conditional_t<std::is_lvalue_reference_v<C>, borrowed_handle, channel_handle>;

template <class T, class Kept, class F>
class recv_case : public select_case {
  static_assert(takes<F, received<T>> || takes<F>,
                "on_recv(channel, f): f takes what recv() returns, a std::optional<T> (a bool for "
                "channel<void>) that is empty (false) when the channel is closed and drained, or "
                "nothing");

 public:
  recv_case(channel_core* from, Kept kept, F f)
      : select_case(recv_case_table, from), kept_(std::move(kept)), f_(std::move(f)) {}

  void prepare() noexcept { value = room_.room(); }

  void taken() {
    detail::hand_to(f_, [this] { return room_.take(status); });
  }

 private:
  [[no_unique_address]] Kept kept_;
  [[no_unique_address]] F f_;
  [[no_unique_address]] value_room<T> room_;
};

// The case of on_send(). Value is T& for a value that stays in the caller's hand until
// the case is taken, T for a copy, and no_value for none.
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

// The case of an rvalue, which lives only as long as the statement; a case_list refuses
// it.
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

// The function of a case that was given none.
struct nothing {
  void operator()() const noexcept {}
};

template <class C, class F>
auto recv_from(C&& ch, F f) {
  using kept = kept_handle<C>;
  channel_core* const core = ch.core();
  return recv_case<element_of<C>, kept, F>(core, kept(std::forward<C>(ch).handle()), std::move(f));
}

// Converts as an argument is converted: implicitly, with the compiler's warnings.
template <class T>
T converted(std::type_identity_t<T> value) {
  return value;
}

// A std::reference_wrapper<T>, recognised by its members because <functional> is large.
template <class T, class U>
concept is_ref_to = std::is_same_v<typename std::remove_cvref_t<U>::type, T> &&
                    requires(const std::remove_cvref_t<U>& wrapper) {
                      { wrapper.get() } -> std::same_as<T&>;
                    };

// Anything but std::in_place, which announces what a value is made of.
template <class U>
concept is_value = !std::is_same_v<std::remove_cvref_t<U>, std::in_place_t>;

template <class T, class U>
concept sendable = is_value<U> && (std::is_convertible_v<U&&, T> || is_ref_to<T, U>);

template <class T, class... Args>
concept braces_make = requires { T{std::declval<Args>()...}; };

// Makes the value that std::in_place announces.
template <class T, class... Args>
T made_of(Args&&... args) {
  if constexpr (std::is_aggregate_v<T> && braces_make<T, Args...>) {
    return T{std::forward<Args>(args)...};
  } else if constexpr (!std::is_aggregate_v<T> && std::is_constructible_v<T, Args...>) {
    return T(std::forward<Args>(args)...);
  } else {
    static_assert(!sizeof(T*),
                  "std::in_place: what follows makes no value of the channel's type T: it is what "
                  "would stand in T(...), or in T{...} if T is an aggregate, where each number "
                  "must be of its member's type, such as 1u for an unsigned");
  }
}

template <class C, class U, class F>
auto send_to(C&& ch, U&& value, F f) {
  using T = element_of<C>;
  using kept = kept_handle<C>;
  channel_core* const core = ch.core();
  kept handle(std::forward<C>(ch).handle());
  if constexpr (std::is_void_v<T>) {
    return send_case<no_value, kept, F>(core, std::move(handle), {}, std::move(f));
  } else if constexpr (is_ref_to<T, U>) {
    return send_case<T&, kept, F>(core, std::move(handle), value.get(), std::move(f));
  } else if constexpr (std::is_same_v<U&&, T&&> && !std::is_trivially_copyable_v<T>) {
    return send_rvalue_case<T, kept, F>(core, std::move(handle), value, std::move(f));
  } else {  // a copy loses nothing
    return send_case<T, kept, F>(
        core, std::move(handle), converted<T>(std::forward<U>(value)), std::move(f));
  }
}

template <class C, class F, class... Args>
auto send_made_to(C&& ch, F f, Args&&... args) {
  using T = element_of<C>;
  using kept = kept_handle<C>;
  channel_core* const core = ch.core();
  return send_case<T, kept, F>(core,
                               kept(std::forward<C>(ch).handle()),
                               made_of<T>(std::forward<Args>(args)...),
                               std::move(f));
}

template <class... Cases>
std::size_t select_of(choice mode, Cases&... cases) {
  static_assert((is_case<Cases> && ...),
                "select(...) takes cases, no channels: write on_recv(ch, f), on_send(ch, v, f), "
                "on_timeout(d, f), on_deadline(t, f), on_done(ctx, f), otherwise(f)");
  constexpr std::size_t count = sizeof...(Cases);
  (cases.prepare(), ...);
  select_case* const all[count + 1] = {&cases..., nullptr};
  const std::size_t taken = select(all, count, mode);
  std::size_t i = 0;
  static_cast<void>(((i++ == taken ? (cases.taken(), true) : false) || ...));
  return taken;
}

// A handle for a case that outlives the statement in which it was made.
inline channel_handle keep_channel(const select_case& c) noexcept {
  if (c.table != &recv_case_table && c.table != &send_case_table) return {};
  return channel_handle::to(static_cast<channel_core*>(c.object));
}

// A case of a case_list.
struct any_case {
  virtual ~any_case() = default;
  virtual select_case* core() noexcept = 0;
  virtual void prepare() = 0;
  virtual void taken() = 0;
};

template <class C>
struct held_case final : any_case {
  explicit held_case(C&& given) : one(std::move(given)), kept(keep_channel(one)) {}

  select_case* core() noexcept override { return &one; }

  void prepare() override { one.prepare(); }

  void taken() override { one.taken(); }

  C one;
  channel_handle kept;
};

}  // namespace VIGIL_DETAIL
