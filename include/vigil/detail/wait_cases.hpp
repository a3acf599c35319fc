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
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace vigil::inline VIGIL_ABI::detail {

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
    } else if constexpr (takes<F, R>) {
      static_cast<void>(f_(core_access::take_result(*handle_)));
    } else {
      static_cast<void>(core_access::take_result(*handle_));
      static_cast<void>(f_());
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
  static_assert(takes<F>, "on_wait(wait_group, f): f takes nothing");

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
    std::vector<T> all = core_access::take_all(*group_);
    if constexpr (takes<F, std::vector<T>>) {
      static_cast<void>(f_(std::move(all)));
    } else {
      static_cast<void>(f_());
    }
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
    std::optional<T> next = core_access::take_next(*group_, value);
    if constexpr (takes<F, std::optional<T>>) {
      static_cast<void>(f_(std::move(next)));
    } else {
      static_cast<void>(f_());
    }
  }

 private:
  group_of<T>* group_;
  [[no_unique_address]] F f_;
};

// --- wait_any(), wait_all()

template <class T>
inline constexpr bool is_fiber = false;
template <class R>
inline constexpr bool is_fiber<vigil::fiber<R>> = true;

// A handle, or a range of handles.
template <class T>
concept fibers = is_fiber<std::remove_cv_t<T>> || requires(T& range) {
  range.end();
  requires is_fiber<std::remove_cvref_t<decltype(*range.begin())>>;
};

template <fibers... Fibers>
std::vector<fiber_core*> cores_of(Fibers&... all) {
  std::vector<fiber_core*> cores;
  const auto add = [&cores]<class T>(T& some) {
    if constexpr (is_fiber<std::remove_cv_t<T>>) {
      cores.push_back(core_access::of(some));
    } else {
      for (auto& one : some)
        cores.push_back(core_access::of(one));
    }
  };
  (add(all), ...);
  return cores;
}

template <fibers... Fibers>
std::optional<std::size_t> wait_any_within(const wait_limit& limit, Fibers&... all) {
  const std::vector<fiber_core*> cores = cores_of(all...);
  const std::size_t ended = detail::wait_any(cores.data(), cores.size(), limit);
  return ended != cores.size() ? std::optional(ended) : std::nullopt;
}

template <fibers... Fibers>
bool wait_all_within(const wait_limit& limit, Fibers&... all) {
  const std::vector<fiber_core*> cores = cores_of(all...);
  return detail::wait_all(cores.data(), cores.size(), limit);
}

}  // namespace vigil::inline VIGIL_ABI::detail
