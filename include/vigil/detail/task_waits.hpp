// The waits of tasks, which the functions of co.hpp make.
#pragma once

#include <vigil/cases.hpp>
#include <vigil/channel.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/task_core.hpp>
#include <vigil/select.hpp>
#include <vigil/task.hpp>

#include <array>
#include <coroutine>
#include <cstddef>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace VIGIL_PUBLIC {
namespace detail {

// A wait for one case, which Derived has.
template <class Derived>
class one_case_wait : public task_wait {
 public:
  using task_wait::task_wait;

  bool await_ready() noexcept { return this->look(one()); }

  bool await_suspend(running_task& t, std::coroutine_handle<> h) {
    return this->begin(t, h, &one());
  }

 protected:
  // True if the case was taken, false if the time has come.
  bool end_one() { return this->end(&one()); }

 private:
  select_case& one() noexcept { return static_cast<Derived*>(this)->one_case(); }
};

class sleep_wait : public task_wait {
 public:
  using task_wait::task_wait;

  bool await_ready() const noexcept { return false; }

  bool await_suspend(running_task& t, std::coroutine_handle<> h) { return begin(t, h, nullptr); }

  void await_resume() { static_cast<void>(end(nullptr)); }
};

template <class T, bool timed>
class recv_wait : public one_case_wait<recv_wait<T, timed>> {
 public:
  recv_wait(const receiver<T>& from, const wait_limit& limit)
      : one_case_wait<recv_wait>(limit),
        kept_(from.handle()),
        case_(recv_case_table, from.core()) {}

  select_case& one_case() noexcept {
    case_.value = room_.room();
    return case_;
  }

  auto await_resume() {
    const bool in_time = this->end_one();
    if constexpr (timed) {
      const channel_status status = in_time ? case_.status : channel_status::timeout;
      return recv_result<T>(room_.take(status), status);
    } else {
      return room_.take(case_.status);
    }
  }

 private:
  const channel_handle kept_;
  select_case case_;
  [[no_unique_address]] value_room<T> room_;
};

template <class Value, bool timed>
class send_wait : public one_case_wait<send_wait<Value, timed>> {
 public:
  send_wait(channel_handle to, Value given, const wait_limit& limit)
      : one_case_wait<send_wait>(limit),
        kept_(std::move(to)),
        value_(static_cast<Value&&>(given)),
        case_(send_case_table, kept_.get()) {}

  select_case& one_case() noexcept {
    case_.value = std::addressof(value_);
    return case_;
  }

  auto await_resume() {
    const bool in_time = this->end_one();
    if constexpr (timed) {
      return send_result(in_time ? case_.status : channel_status::timeout);
    } else if (case_.status == channel_status::closed) {
      throw_send_on_closed();
    }
  }

 private:
  const channel_handle kept_;
  Value value_;
  select_case case_;
};

// An rvalue stays in the caller's hand: it lives as long as the co_await.
template <bool timed, class C, class U>
auto send_by_task(const C& to, U&& value, const wait_limit& limit) {
  using T = element_of<C>;
  static_assert(!std::is_same_v<std::remove_cvref_t<U>, T> || std::is_constructible_v<T, U>,
                "co::send(to, v): a value of this type cannot be copied: write std::move(v)");
  if constexpr (std::is_same_v<U&&, T&&> && !std::is_trivially_copyable_v<T>) {
    return send_wait<T&, timed>(to.handle(), value, limit);
  } else {
    return send_wait<T, timed>(to.handle(), T(std::forward<U>(value)), limit);
  }
}

template <bool timed, class C, class... Args>
auto send_made_by_task(const C& to, const wait_limit& limit, Args&&... args) {
  using T = element_of<C>;
  return send_wait<T, timed>(to.handle(), made_of<T>(std::forward<Args>(args)...), limit);
}

// The case of on_join() for a task.
template <class T, class F>
class task_join_case : public select_case {
  static_assert(takes<F> || (!std::is_void_v<T> && takes<F, T>),
                "on_join(task_handle, f): f takes the task's result, or nothing");

 public:
  task_join_case(task_handle<T>& of, F f)
      : select_case(task_join_table, of.core()), of_(&of), f_(std::move(f)) {
    check_task_join(of.core());
  }

  void prepare() noexcept {
    if (table != nullptr) object = of_->core();
  }

  void taken() {
    if constexpr (std::is_void_v<T>) {
      of_->take();
      static_cast<void>(f_());
    } else {
      detail::hand_to(f_, [this] { return of_->take(); });
    }
  }

 private:
  task_handle<T>* of_;
  [[no_unique_address]] F f_;
};

// A wait for the end of a task.
template <class T, bool timed>
class join_task_wait : public one_case_wait<join_task_wait<T, timed>> {
 public:
  join_task_wait(task_handle<T>& of, const wait_limit& limit)
      : one_case_wait<join_task_wait>(limit), of_(of), case_(task_join_table, of.core()) {
    check_task_join(of.core());
  }

  // The handle may have been joined since.
  bool await_ready() {
    case_.object = of_.core();
    if (of_.core() == nullptr) throw_empty_task();
    return one_case_wait<join_task_wait>::await_ready();
  }

  select_case& one_case() noexcept { return case_; }

  auto await_resume() {
    const bool in_time = this->end_one();
    if constexpr (timed) {
      return in_time;
    } else {
      return of_.take();
    }
  }

 private:
  task_handle<T>& of_;
  select_case case_;
};

// Keeps the value that a case hands to its function.
template <class T>
struct put_into {
  void operator()(T value) const { room->emplace(std::move(value)); }

  std::optional<T>* room;
};

// A wait for a case that hands over a T; make(f) makes it.
template <class T, class Make>
class value_wait : public one_case_wait<value_wait<T, Make>> {
 public:
  value_wait(const Make& make, const wait_limit& limit)
      : one_case_wait<value_wait>(limit), case_(make(put_into<T>{&value_})) {}

  bool await_ready() {
    case_.prepare();
    return one_case_wait<value_wait>::await_ready();
  }

  T await_resume() {
    this->end_one();
    case_.taken();
    return *std::move(value_);
  }

  select_case& one_case() noexcept { return case_; }

 private:
  std::optional<T> value_;
  std::invoke_result_t<const Make&, put_into<T>> case_;
};

// The same for a case that hands over nothing.
template <class Case>
class event_wait : public one_case_wait<event_wait<Case>> {
 public:
  event_wait(Case&& one, const wait_limit& limit)
      : one_case_wait<event_wait>(limit), case_(std::move(one)) {}

  bool await_ready() {
    case_.prepare();
    return one_case_wait<event_wait>::await_ready();
  }

  void await_resume() {
    this->end_one();
    case_.taken();
  }

  select_case& one_case() noexcept { return case_; }

 private:
  Case case_;
};

template <class T, class Make>
auto wait_for_value(const Make& make, const wait_limit& limit = no_limit) {
  return value_wait<T, Make>(make, limit);
}

template <class Case>
auto wait_for_event(Case one, const wait_limit& limit = no_limit) {
  return event_wait<Case>(std::move(one), limit);
}

// A wait for the first of several cases.
template <class... Cases>
class select_wait : public task_wait {
  static_assert((is_case<Cases> && ...),
                "co::select(...) takes cases, no channels: write on_recv(ch, f), "
                "on_send(ch, v, f), on_timeout(d, f), on_deadline(t, f), on_done(ctx, f), "
                "otherwise(f)");

 public:
  select_wait(choice mode, Cases&&... given) : mode_(mode), cases_(std::move(given)...) {}

  ~select_wait() { leave_cases(); }

  bool await_ready() {
    std::apply(
        [this](auto&... each) {
          std::size_t i = 0;
          ((each.prepare(), all_[i++] = &each), ...);
        },
        cases_);
    return false;
  }

  bool await_suspend(running_task& t, std::coroutine_handle<> h) {
    return begin(t, h, all_.data(), sizeof...(Cases), mode_);
  }

  std::size_t await_resume() {
    const std::size_t taken = end_several();
    std::apply(
        [taken](auto&... each) {
          std::size_t i = 0;
          static_cast<void>(((i++ == taken ? (each.taken(), true) : false) || ...));
        },
        cases_);
    return taken;
  }

 private:
  const choice mode_;
  std::tuple<Cases...> cases_;
  std::array<select_case*, sizeof...(Cases) + 1> all_{};
};

// A wait for the first of several ends, which stay to be joined.
template <bool timed, handles... Handles>
class any_end_wait : public task_wait {
 public:
  any_end_wait(const wait_limit& limit, Handles&... all) : limit_(limit), all_(all...) {}

  ~any_end_wait() { leave_cases(); }

  bool await_ready() {
    std::apply([this](auto&... all) { cases_.emplace(ends_of(all...), limit_.limit); }, all_);
    return false;
  }

  bool await_suspend(running_task& t, std::coroutine_handle<> h) {
    return begin(t, h, cases_->data(), cases_->size(), choice::fair);
  }

  auto await_resume() {
    const std::optional<std::size_t> ended = cases_->taken(end_several());
    if constexpr (timed) {
      return ended;
    } else {
      return *ended;
    }
  }

 private:
  const kept_limit limit_;
  const std::tuple<Handles&...> all_;
  std::optional<end_cases> cases_;
};

// Each end in turn. False if the limit has come.
// Waits: throws stopped, wrong_place.
VIGIL_API task<bool> wait_for_all(std::vector<any_end> ends, wait_limit limit);

// A wait for all of several ends, which stay to be joined.
template <bool timed, handles... Handles>
class all_ends_wait {
 public:
  all_ends_wait(const wait_limit& limit, Handles&... all) : limit_(limit), all_(all...) {}

  bool await_ready() const noexcept { return false; }

  bool await_suspend(running_task& t, std::coroutine_handle<> h) {
    std::apply(
        [this, &t](auto&... all) {
          wait_.emplace(wait_for_all(ends_of(all...), limit_.limit), &t);
        },
        all_);
    wait_->await_suspend(h);
    return true;
  }

  auto await_resume() {
    const bool have_ended = wait_->await_resume();
    if constexpr (timed) return have_ended;
  }

 private:
  const kept_limit limit_;
  const std::tuple<Handles&...> all_;
  std::optional<await_task<bool>> wait_;
};

struct yield_wait {
  bool await_ready() const noexcept { return false; }

  bool await_suspend(running_task& t, std::coroutine_handle<> h) const {
    if (must_stop(t)) throw_task_stopped(t);
    t.next = h;
    yield_task(t);
    return true;
  }

  void await_resume() const noexcept {}
};

struct ask_stop {
  bool await_ready() const noexcept { return false; }

  bool await_suspend(running_task& t, std::coroutine_handle<>) noexcept {
    is_asked = must_stop(t);
    return false;
  }

  bool await_resume() const noexcept { return is_asked; }

  bool is_asked = false;
};

}  // namespace detail
}  // namespace VIGIL_PUBLIC
