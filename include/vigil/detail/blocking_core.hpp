// The function that blocking() passes to a side pool, and how it gets there.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/site.hpp>
#include <vigil/detail/wait_limit.hpp>

#include <exception>
#include <optional>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {

class side_pool;

struct blocking_table {
  void (*run)(void* record) noexcept;      // calls f, keeps its result or exception, destroys f
  void (*destroy)(void* record) noexcept;  // destroys the record and its result
};

// Returns false on a plain thread, where f simply runs. Throws wrong_place on a worker
// that runs no fiber, and `cancelled` if the limit's context is done.
VIGIL_API bool goes_to_side_pool(const wait_limit& limit);
// Returns true if f has run; the caller then owns the record. Returns false if the limit
// came first; the record is then gone, as it is when this throws.
// Waits: throws stopped, wrong_place, std::invalid_argument, std::system_error,
// std::bad_alloc, what f throws.
VIGIL_API bool run_blocking(side_pool* pool,
                            const blocking_table& table,
                            void* record,
                            const wait_limit& limit,
                            const site& from);

// The record that the caller and the pool's thread share.
template <class F>
class blocking_record {
 public:
  using result = std::invoke_result_t<F>;

 private:
  void run() noexcept {
    try {
      if constexpr (std::is_void_v<result>) {
        std::move (*function_)();
      } else {
        result_.emplace(std::move(*function_)());
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    function_.reset();
  }

 public:
  template <class G>
  explicit blocking_record(G&& f) : function_(std::in_place, std::forward<G>(f)) {}

  static constexpr blocking_table table = {
      [](void* self) noexcept { static_cast<blocking_record*>(self)->run(); },
      [](void* self) noexcept { delete static_cast<blocking_record*>(self); }};

  result take() {
    if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
    if constexpr (!std::is_void_v<result>) return std::move(*result_);
  }

 private:
  struct nothing {};

  std::optional<F> function_;
  std::optional<std::conditional_t<std::is_void_v<result>, nothing, result>> result_;
  std::exception_ptr error_;
};

template <class F>
concept blocking_function = std::is_invocable_v<std::decay_t<F>>;

template <class F>
using blocking_result = std::invoke_result_t<std::decay_t<F>>;

// The result of a form with a time: an optional, or whether f has run.
template <class R>
using blocking_answer = std::conditional_t<std::is_void_v<R>, bool, std::optional<R>>;

template <class F>
auto call_blocking(side_pool* pool, const wait_limit& limit, const site& from, F&& f) {
  using record = blocking_record<std::decay_t<F>>;
  using R = typename record::result;
  static_assert(!std::is_reference_v<R>,
                "vigil::blocking: f cannot return a reference; return a pointer or a value");
  refuse_empty("vigil::blocking", f);
  using answer = blocking_answer<R>;
  if (limit.is_over()) return answer{};
  if (!goes_to_side_pool(limit)) {
    if constexpr (std::is_void_v<R>) {
      std::forward<F>(f)();
      return true;
    } else {
      return answer(std::in_place, std::forward<F>(f)());
    }
  }
  auto* const made = new record(std::forward<F>(f));
  if (!run_blocking(pool, record::table, made, limit, from)) return answer{};

  struct owner {
    record* held;

    ~owner() { delete held; }
  } const dies_here{made};

  if constexpr (std::is_void_v<R>) {
    made->take();
    return true;
  } else {
    return answer(std::in_place, made->take());
  }
}

// For the forms without a time; returns f's result.
template <class F>
blocking_result<F> finish_blocking(side_pool* pool,
                                   const wait_limit& limit,
                                   const site& from,
                                   F&& f) {
  if constexpr (std::is_void_v<blocking_result<F>>) {
    call_blocking(pool, limit, from, std::forward<F>(f));
  } else {
    return std::move(*call_blocking(pool, limit, from, std::forward<F>(f)));
  }
}

}  // namespace VIGIL_DETAIL
