// The typed cases of a select that wait for no channel, which cases.hpp makes.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/select_case.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/typed_cases.hpp>
#include <vigil/fiber.hpp>
#include <vigil/group.hpp>
#include <vigil/mutex.hpp>
#include <vigil/semaphore.hpp>
#include <vigil/shared_mutex.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace VIGIL_DETAIL {

// Lets cases into the objects that they wait for.
struct core_access {
  template <class T>
  static auto& of(T& object) noexcept {
    return object.core_;
  }

  template <class T>
  static group_core* of(group_of<T>& g) noexcept {
    return g.group_.core_;
  }

  template <class T>
  static std::vector<T> take_all(group_of<T>& g) {
    return g.take_all();
  }

  template <class T>
  static std::optional<T> take_next(group_of<T>& g, void* result) {
    return g.take_next(result);
  }

  template <class R>
  static R take_result(vigil::fiber<R>& h) {
    return h.take_result();
  }
};

// The case of on_join().
template <class R, class F>
class join_case : public select_case {
  static_assert(takes<F> || (!std::is_void_v<R> && takes<F, R>),
                "on_join(fiber, f): f takes the fiber's result, or nothing");

 public:
  join_case(vigil::fiber<R>& h, F f)
      : select_case(join_case_table, core_access::of(h)), handle_(&h), f_(std::move(f)) {
    check_join(core_access::of(h));
  }

  void prepare() {
    if (table == nullptr) return;  // switched off
    object = core_access::of(*handle_);
    if (object != nullptr) check_join(core_access::of(*handle_));
  }

  void taken() {
    if constexpr (std::is_void_v<R>) {
      core_access::take_result(*handle_);
      static_cast<void>(f_());
    } else {
      detail::hand_to(f_, [this] { return core_access::take_result(*handle_); });
    }
  }

 private:
  vigil::fiber<R>* handle_;
  [[no_unique_address]] F f_;
};

// The case of on_lock() and on_lock_shared(). Lock: the std lock that f may take.
template <template <class> class Lock, class Mutex, class F>
class lock_case : public select_case {
  static_assert(takes<F> || takes<F, Lock<Mutex>>,
                "on_lock(mutex, f): f takes a std::unique_lock, which then owns the mutex (a "
                "std::shared_lock for on_lock_shared), or nothing");

 public:
  lock_case(const case_table& of, Mutex& m, F f)
      : select_case(of, &core_access::of(m)), mutex_(&m), f_(std::move(f)) {}

  void prepare() noexcept {}

  void taken() {
    if (table != &read_case_table) holder_came(core_access::of(*mutex_).holder);
    Lock<Mutex> own(*mutex_, std::adopt_lock);
    if constexpr (takes<F, Lock<Mutex>>) {
      static_cast<void>(f_(std::move(own)));
    } else {
      static_cast<void>(f_());
      own.release();
    }
  }

 private:
  Mutex* mutex_;
  [[no_unique_address]] F f_;
};

// The case of on_acquire().
template <class F>
class permit_case : public select_case {
  static_assert(takes<F> || takes<F, scoped_permit>,
                "on_acquire(semaphore, n, f): f takes a scoped_permit, which then owns the "
                "permits, or nothing");

 public:
  permit_case(semaphore& s, std::int64_t n, F f)
      : select_case(permit_case_table, &core_access::of(s), n), semaphore_(&s), f_(std::move(f)) {
    refuse_negative("vigil::on_acquire: the number of permits", n);
  }

  void prepare() noexcept {}

  void taken() {
    if constexpr (takes<F, scoped_permit>) {
      static_cast<void>(f_(scoped_permit(*semaphore_, adopt_permit, amount)));
    } else {
      try {
        static_cast<void>(f_());
      } catch (...) {
        semaphore_->release(amount);
        throw;
      }
    }
  }

 private:
  semaphore* semaphore_;
  [[no_unique_address]] F f_;
};

// A case for an event that leaves nothing to take.
template <class F>
class event_case : public select_case {
  static_assert(takes<F>, "on_wait(object, f): f takes nothing");

 public:
  event_case(const case_table& of, void* waits_for, F f)
      : select_case(of, waits_for), f_(std::move(f)) {}

  void prepare() noexcept {}

  void taken() { static_cast<void>(f_()); }

 private:
  [[no_unique_address]] F f_;
};

// The case of on_wait() for a group.
template <class F>
class group_case : public select_case {
  static_assert(takes<F>, "on_wait(group, f): f takes nothing");

 public:
  group_case(group& g, F f) : select_case(group_case_table, core_access::of(g)), f_(std::move(f)) {}

  void prepare() noexcept {}

  void taken() {
    finish(static_cast<group_core*>(object));
    static_cast<void>(f_());
  }

 private:
  [[no_unique_address]] F f_;
};

// The case of on_wait() for a group_of<T>.
template <class T, class F>
class results_case : public select_case {
  static_assert(takes<F> || takes<F, std::vector<T>>,
                "on_wait(group_of<T>, f): f takes a std::vector<T>, or nothing");

 public:
  results_case(group_of<T>& g, F f)
      : select_case(group_case_table, core_access::of(g)), group_(&g), f_(std::move(f)) {}

  void prepare() noexcept {}

  void taken() {
    finish(static_cast<group_core*>(object));
    detail::hand_to(f_, [this] { return core_access::take_all(*group_); });
  }

 private:
  group_of<T>* group_;
  [[no_unique_address]] F f_;
};

// The case of on_next().
template <class T, class F>
class next_case : public select_case {
  static_assert(takes<F> || takes<F, std::optional<T>>,
                "on_next(group_of<T>, f): f takes a std::optional<T>, which is empty when all have "
                "ended, or nothing");

 public:
  next_case(group_of<T>& g, F f)
      : select_case(next_case_table, core_access::of(g)), group_(&g), f_(std::move(f)) {}

  void prepare() noexcept {}

  void taken() {
    detail::hand_to(f_, [this] { return core_access::take_next(*group_, value); });
  }

 private:
  group_of<T>* group_;
  [[no_unique_address]] F f_;
};

// --- wait_any(), wait_all()

template <class R>
struct ends_of_handle<vigil::fiber<R>> {
  static any_end end_of(vigil::fiber<R>& h) noexcept { return {&end_of_fiber, core_access::of(h)}; }
};

template <class T>
concept handle_of_end = requires(T& h) { ends_of_handle<std::remove_cv_t<T>>::end_of(h); };

// A handle, or a range of handles.
template <class T>
concept handles = handle_of_end<T> || requires(T& range) {
  std::end(range);
  requires handle_of_end<std::remove_reference_t<decltype(*std::begin(range))>>;
};

template <handles... Handles>
std::vector<any_end> ends_of(Handles&... all) {
  std::vector<any_end> ends;
  const auto add_one = [&ends]<class H>(H& h) {
    ends.push_back(ends_of_handle<std::remove_cv_t<H>>::end_of(h));
  };
  const auto add = [&add_one]<class T>(T& some) {
    if constexpr (handle_of_end<T>) {
      add_one(some);
    } else {
      for (auto& one : some)
        add_one(one);
    }
  };
  (add(all), ...);
  return ends;
}

// Throws wrong_place if the caller's own fiber or task is among them.
VIGIL_API void check_ends(const std::vector<any_end>& ends);

// The cases of a select for the first of several ends.
class VIGIL_API end_cases {
 public:
  // Throws wrong_place, and std::invalid_argument if all handles are empty.
  end_cases(std::vector<any_end> ends, const wait_limit& limit);
  end_cases(const end_cases&) = delete;
  end_cases& operator=(const end_cases&) = delete;

  select_case* const* data() const noexcept { return pointers_.data(); }

  std::size_t size() const noexcept { return pointers_.size(); }

  // Called with the case that was taken. Returns the index of the end, or nullopt if the
  // limit has come.
  std::optional<std::size_t> taken(std::size_t index) const noexcept;

 private:
  const std::vector<any_end> ends_;
  std::vector<select_case> cases_;
  std::vector<select_case*> pointers_;
};

// Returns the index of one that has ended, or nullopt if the limit has come.
// Waits: throws stopped, wrong_place, std::invalid_argument.
VIGIL_API std::optional<std::size_t> wait_any(std::vector<any_end> ends, const wait_limit& limit);
// Returns false if the limit has come.
// Waits: throws stopped, wrong_place.
VIGIL_API bool wait_all(const std::vector<any_end>& ends, const wait_limit& limit);

template <handles... Handles>
std::optional<std::size_t> wait_any_within(const wait_limit& limit, Handles&... all) {
  return detail::wait_any(ends_of(all...), limit);
}

template <handles... Handles>
bool wait_all_within(const wait_limit& limit, Handles&... all) {
  return detail::wait_all(ends_of(all...), limit);
}

}  // namespace VIGIL_DETAIL
