// Groups: fibers that end together.
//
//   vigil::group g(ctx);
//   for (const auto& url : urls)
//     g.go([&, url](const vigil::context& ctx) { fetch(url, ctx); });
//   g.wait();  // throws the first error
//
// The first exception that leaves a fiber of the group cancels the group's context, with
// that error as its cause, and asks the others to stop; wait() throws it when all have
// ended. The destructor cancels, asks to stop and joins: even a scope that is unwound is
// not left while a fiber of its group runs.
#pragma once

#include <vigil/channel.hpp>
#include <vigil/clock.hpp>
#include <vigil/context.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/group_core.hpp>
#include <vigil/detail/mistakes.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/fiber.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace VIGIL_PUBLIC {

// group_options: how many may run at a time. Throws nothing. Thread safety: a plain
// value.
struct group_options {
  // The number of its fibers that may run at a time; 0 means any number.
  std::size_t limit = 0;
};

template <class T>
class group_of;

// group: fibers that end together. Throws the first error of its fibers from wait();
// `stopped`, wrong_place, `cancelled` with a context and std::bad_alloc with a time from
// waits; from go() what vigil::go throws, `stopped`, and std::logic_error after wait().
// Thread safety: it may be used by several fibers and threads at a time, including its
// own fibers, which must not wait for it or destroy it. Lifetime: no fiber of it outlives
// it, so functions may refer to what was declared before the group. Shutdown: its context
// is done as it begins, if the parent is; its fibers are unwound, and the destructor
// waits for them, which no stop ends. Cost: two allocations for a group; a fiber of it
// costs what vigil::go does. Behaviour: Go's errgroup, except that fibers still running
// are stopped, not leaked.
class group {
 public:
  using options = group_options;

  // Makes the group's context from the parent, by default background(). Throws
  // std::invalid_argument for a nil parent, and std::bad_alloc.
  group(const site& from = site::current()) : group(background(), {}, from) {}

  explicit group(options settings, const site& from = site::current())
      : group(background(), settings, from) {}

  explicit group(const vigil::context& parent,
                 options settings = {},
                 const site& from = site::current())
      : core_(detail::make_group(parent, settings.limit, from)) {}

  group(const group&) = delete;
  group& operator=(const group&) = delete;

  // Cancels the context, asks all fibers to stop and waits for them; nothing ends that
  // wait early. Errors that no wait() has thrown are dropped. Does nothing during
  // std::exit on a fiber of the group, because that fiber never ends.
  ~group() { end(); }

  // Starts f on a fiber. f takes the group's context (const context&), or nothing; its
  // result is dropped. If the limit is reached, waits for a free slot, first come, first
  // served. Once the context is done, even during that wait, it drops f; wait() then
  // throws the reason, unless cancel() has ended the group. Throws what vigil::go throws,
  // `stopped`, and std::logic_error after wait().
  template <class F>
  void go(F&& f, const site& from = site::current()) {
    constexpr const char* call = "vigil::group::go";
    if (detail::take_place(core_, call)) start(place(), call, std::forward<F>(f), from);
  }

  // The same without waiting: returns false, with f untouched, if no slot is free or the
  // context is done. In the latter case wait() throws the reason, as for go().
  template <class F>
  [[nodiscard]] bool try_go(F&& f, const site& from = site::current()) {
    constexpr const char* call = "vigil::group::try_go";
    if (!detail::try_take_place(core_, call)) return false;
    start(place(), call, std::forward<F>(f), from);
    return true;
  }

  // Waits until all fibers have ended, including those started meanwhile; then cancels
  // the context and throws the first error, and again if called again. A fiber that ends
  // because it was asked to stop is not an error; one that ends by `cancelled` is, as in
  // Go, unless cancel() brought about that end. If the wait itself is ended (by
  // `stopped`, or `cancelled` when ctx is done), the group continues.
  void wait() { detail::wait(core_, detail::no_limit, "group::wait"); }

  void wait(const vigil::context& ctx) {
    detail::wait(core_, detail::cancelled_by(ctx), "group::wait");
  }

  // Returns true if all have ended, so that wait() will not wait unless more are started
  // first. A zero or negative timeout only looks.
  template <detail::duration_argument D>
  [[nodiscard]] bool wait_for(const D& timeout) {
    return detail::wait_for_end(core_, detail::within(timeout), "group::wait_for");
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool wait_until(const Time& t) {
    return detail::wait_for_end(core_, detail::until(t), "group::wait_until");
  }

  // Cancels the context and asks all fibers to stop, even those that have not begun, and
  // returns at once. This is not an error: wait() throws the errors of their functions,
  // but neither `stopped` nor this context's `cancelled`, nor an error for functions that
  // are not started afterwards.
  void cancel(const std::exception_ptr& cause = nullptr) noexcept { detail::cancel(core_, cause); }

  // The context for the fibers' waits; done with the first error.
  const vigil::context& context() const noexcept { return detail::context_of(core_); }

 private:
  friend struct detail::core_access;

  // Takes over the place that the caller has just taken.
  detail::group_place place() noexcept { return detail::group_place(core_); }

  template <class F>
  static void start(detail::group_place place, const char* call, F&& f, const site& from) {
    static_assert(detail::group_function<F>,
                  VIGIL_WANTS_PLAIN_FUNCTION ", or [](const vigil::context& ctx) { ... }");
    detail::refuse_empty(call, f);
    detail::start_by({.name = call},
                     {},
                     true,
                     from,
                     detail::group_body<std::decay_t<F>>{std::move(place), std::forward<F>(f)});
  }

  template <class T>
  friend class group_of;

  // Returns false if the fibers still run and may use the group.
  bool end() noexcept {
    if (core_ != nullptr && !detail::stop_and_join(core_)) return false;
    core_ = nullptr;
    return true;
  }

  detail::group_core* core_;
};

// group_of<T>: a group whose functions each return a T. wait() returns them in the order
// of go().
//
//   vigil::group_of<int> g({.limit = 4});
//   for (const auto& x : xs) g.go([&x] { return cost(x); });
//   std::vector<int> costs = g.wait();
//
// A group has all its results or none: if a function was stopped before it had one (after
// cancel(), without an error), wait() throws `cancelled` with the cause.
//
// Throws what group throws, and what the moves of results throw. Thread safety: it may be
// used by one fiber or thread at a time. Lifetime: that of group; it keeps the results
// until they are taken. Shutdown: that of group. Cost: that of group, and room for each
// result.
template <class T>
class group_of {
 public:
  using options = group_options;

  group_of(const site& from = site::current()) : group_(from) {}

  explicit group_of(options settings, const site& from = site::current())
      : group_(settings, from) {}

  explicit group_of(const vigil::context& parent,
                    options settings = {},
                    const site& from = site::current())
      : group_(parent, settings, from) {}

  group_of(const group_of&) = delete;
  group_of& operator=(const group_of&) = delete;

  // Does what ~group does. Where that does nothing, the results stay as well.
  ~group_of() {
    if (!group_.end()) results_.commit();
  }

  // Like group::go; f returns a T, or a value that converts to one.
  template <class F>
  void go(F&& f, const site& from = site::current()) {
    constexpr const char* call = "vigil::group_of::go";
    detail::refuse_empty(call, f);
    if (detail::take_place(group_.core_, call)) {
      start(call, std::forward<F>(f), from);
    } else {
      results_.add();  // stays empty: a result is missing
    }
  }

  // Like group::try_go. If it returns false, f is untouched and no result is missing.
  template <class F>
  [[nodiscard]] bool try_go(F&& f, const site& from = site::current()) {
    constexpr const char* call = "vigil::group_of::try_go";
    detail::refuse_empty(call, f);
    if (!detail::try_take_place(group_.core_, call)) return false;
    start(call, std::forward<F>(f), from);
    return true;
  }

  // Like group::wait, and returns the results. After an error, and when called again,
  // there are none.
  std::vector<T> wait() { return wait_within(detail::no_limit); }

  std::vector<T> wait(const vigil::context& ctx) { return wait_within(detail::cancelled_by(ctx)); }

  // Like group's: true if wait() will not wait.
  template <detail::duration_argument D>
  [[nodiscard]] bool wait_for(const D& timeout) {
    return group_.wait_for(timeout);
  }

  template <detail::time_point_like Time>
  [[nodiscard]] bool wait_until(const Time& t) {
    return group_.wait_until(t);
  }

  // Waits for the next result, in the order in which the functions return, and takes it;
  // wait() returns those that are left. nullopt if all fibers have ended and no result is
  // left: the group can be used again. Throws what wait() throws, once the results that
  // there are have been taken and all fibers have ended.
  //
  //   while (std::optional<page> p = pages.next()) show(*p);
  std::optional<T> next() { return take_next(next_within(detail::no_limit)); }

  // The same; throws `cancelled` when ctx is done. The group continues.
  std::optional<T> next(const vigil::context& ctx) {
    return take_next(next_within(detail::cancelled_by(ctx)));
  }

  // The same; is_timeout() if the timeout passes first, is_closed() if no result is left.
  // A zero or negative timeout only looks.
  template <detail::duration_argument D>
  recv_result<T> next_for(const D& timeout) {
    return timed(next_within(detail::within(timeout)));
  }

  template <detail::time_point_like Time>
  recv_result<T> next_until(const Time& t) {
    return timed(next_within(detail::until(t)));
  }

  void cancel(const std::exception_ptr& cause = nullptr) noexcept { group_.cancel(cause); }

  const vigil::context& context() const noexcept { return group_.context(); }

 private:
  friend struct detail::core_access;

  // Starts f in the place that the caller has just taken.
  template <class F>
  void start(const char* call, F&& f, const site& from) {
    static_assert(detail::group_function_of<F, T>,
                  "vigil: f is called without arguments, or with the group's context, and returns "
                  "the group's T: write [] { return ...; }, or [](const vigil::context& ctx) "
                  "{ return ...; }");
    detail::group_place place = group_.place();
    detail::result_slot<T>& s = results_.add();
    try {
      group::start(
          std::move(place),
          call,
          [&s, core = group_.core_, own = std::decay_t<F>(std::forward<F>(f))](
              const vigil::context& ctx) mutable {
            if constexpr (detail::takes_context<std::decay_t<F>>) {
              s.result.emplace(own(ctx));
            } else {
              static_cast<void>(ctx);
              s.result.emplace(own());
            }
            detail::hand_in(core, s);
          },
          from);
    } catch (...) {
      s.is_refused = true;  // the caller knows: no result is missing
      throw;
    }
  }

  std::vector<T> wait_within(const detail::wait_limit& limit) {
    detail::wait(group_.core_, limit, "group_of::wait");
    return take_all();
  }

  // Caller: all have ended, and wait() would throw no error.
  std::vector<T> take_all() {
    if (!results_.is_whole()) detail::throw_unfinished(group_.core_);
    return results_.take();
  }

  struct next_found {
    channel_status status;
    void* result = nullptr;
  };

  next_found next_within(const detail::wait_limit& limit) {
    next_found found{channel_status::ok};
    found.status = detail::next_result(group_.core_, limit, found.result);
    return found;
  }

  std::optional<T> take_next(const next_found& found) { return take_next(found.result); }

  // `result`: of a next_result(), nullptr if none is left.
  std::optional<T> take_next(void* result) {
    if (result != nullptr) {
      auto& done = *static_cast<detail::done_result*>(result);
      return results_.take(static_cast<detail::result_slot<T>&>(done));
    }
    detail::finish_results(group_.core_, results_.is_whole());
    return std::nullopt;
  }

  recv_result<T> timed(const next_found& found) {
    if (found.status == channel_status::timeout) return {std::nullopt, found.status};
    return {take_next(found), found.status};
  }

  detail::result_list<T> results_;  // dies after the group has joined
  group group_;
};

}  // namespace VIGIL_PUBLIC
