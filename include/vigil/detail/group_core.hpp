// The untyped group that the templates of group.hpp call, and the places and results of
// its fibers.
#pragma once

#include <vigil/context.hpp>
#include <vigil/detail/callable.hpp>
#include <vigil/detail/channel_core.hpp>
#include <vigil/detail/config.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <cstddef>
#include <exception>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {

class group_core;

// A result in the order of completion.
struct done_result {
  done_result* next_done = nullptr;
};

VIGIL_API group_core* make_group(const context& parent, std::size_t limit, const site& from);
// Also destroys the group. Returns false, having done nothing, during std::exit on one of
// its fibers, which run on. Waits: throws nothing.
VIGIL_API bool stop_and_join(group_core* g) noexcept;
VIGIL_API const context& context_of(const group_core* g) noexcept;
// Takes a place within the limit for a fiber. Returns false if the context is done and
// nothing is to be started. `call` is the name that errors use.
// Waits on a fiber (the group's context): throws stopped, wrong_place, std::logic_error.
VIGIL_API bool take_place(group_core* g, const char* call);
// Returns false even if only the place is missing.
VIGIL_API bool try_take_place(group_core* g, const char* call);
VIGIL_API void give_place(group_core* g, bool has_run) noexcept;
VIGIL_API void run_in_group(group_core* g, call_ref f) noexcept;
// Returns true if all have ended, false if the limit has come.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait_for_end(group_core* g, const wait_limit& limit, const char* call);
// The same without a time. Afterwards nothing more starts, and the context is done.
// Waits: throws stopped, wrong_place, the first error.
VIGIL_API void wait(group_core* g, const wait_limit& limit, const char* call);
// The end of wait(), once all have ended.
// Throws: the first error.
VIGIL_API void finish(group_core* g);
VIGIL_API void hand_in(group_core* g, done_result& r) noexcept;
// Returns ok and a done_result, closed if all have ended and no result is left, or
// timeout.
// Waits: throws stopped, wrong_place.
VIGIL_API channel_status next_result(group_core* g, const wait_limit& limit, void*& result);
// Called once no result is left. `is_whole`: none is missing.
// Throws: the first error, cancelled.
VIGIL_API void finish_results(group_core* g, bool is_whole);
// Throws: cancelled.
[[noreturn]] VIGIL_API void throw_unfinished(const group_core* g);
VIGIL_API void cancel(group_core* g, const std::exception_ptr& cause) noexcept;

// The place of a fiber, which is given back after its function has been destroyed.
class group_place {
 public:
  explicit group_place(group_core* taken) noexcept : core_(taken) {}

  group_place(group_place&& other) noexcept : core_(std::exchange(other.core_, nullptr)) {}

  group_place& operator=(group_place&&) = delete;

  ~group_place() {
    if (core_ != nullptr) give_place(core_, has_run_);
  }

  void run(call_ref f) noexcept {
    has_run_ = true;
    run_in_group(core_, f);
  }

  const context& ctx() const noexcept { return context_of(core_); }

 private:
  group_core* core_;
  bool has_run_ = false;
};

template <class F>
inline constexpr bool takes_context = std::is_invocable_v<F&, const context&>;

template <class F>
concept group_function = std::is_invocable_v<std::decay_t<F>&> || takes_context<std::decay_t<F>>;

// A function that returns an R.
template <class F, class R>
concept group_function_of = std::is_invocable_r_v<R, std::decay_t<F>&> ||
                            std::is_invocable_r_v<R, std::decay_t<F>&, const context&>;

// The function that a fiber of a group runs.
template <class F>
struct group_body {
  void operator()() {
    auto call = [this] {
      if constexpr (takes_context<F>) {
        static_cast<void>(f(place.ctx()));
      } else {
        static_cast<void>(f());
      }
    };
    place.run(call);
  }

  group_place place;  // is destroyed last
  F f;
};

template <class T>
struct result_slot : done_result {
  std::optional<T> result;
  bool is_refused = false;  // its function was not started, and the caller knows
  result_slot* before = nullptr;
  result_slot* next = nullptr;
};

// The results of a group_of. A result's slot does not move while others are added.
template <class T>
class result_list {
 public:
  using slot = result_slot<T>;

  result_list() = default;
  result_list(const result_list&) = delete;
  result_list& operator=(const result_list&) = delete;

  ~result_list() {
    if (!is_committed_) clear();
  }

  // The slots are then never destroyed.
  void commit() noexcept { is_committed_ = true; }

  slot& add() {
    slot* const made = new slot;
    made->before = last_;
    (last_ != nullptr ? last_->next : first_) = made;
    last_ = made;
    ++size_;
    return *made;
  }

  // Takes one result, and its slot away.
  std::optional<T> take(slot& s) {
    std::optional<T> result(std::move(s.result));
    (s.before != nullptr ? s.before->next : first_) = s.next;
    (s.next != nullptr ? s.next->before : last_) = s.before;
    --size_;
    delete &s;
    return result;
  }

  bool is_whole() const noexcept {
    for (const slot* s = first_; s != nullptr; s = s->next) {
      if (!s->result && !s->is_refused) return false;
    }
    return true;
  }

  // Caller: the list is whole.
  std::vector<T> take() {
    std::vector<T> all;
    all.reserve(size_);
    for (slot* s = first_; s != nullptr; s = s->next) {
      if (s->result) all.push_back(*std::move(s->result));
    }
    clear();
    return all;
  }

 private:
  void clear() noexcept {
    while (slot* const s = first_) {
      first_ = s->next;
      delete s;
    }
    last_ = nullptr;
    size_ = 0;
  }

  slot* first_ = nullptr;
  slot* last_ = nullptr;
  std::size_t size_ = 0;
  bool is_committed_ = false;
};

}  // namespace VIGIL_DETAIL
