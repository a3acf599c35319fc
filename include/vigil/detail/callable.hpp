// Callables, without <functional>.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/empty_function.hpp>
#include <vigil/detail/mistakes.hpp>

#include <cstddef>
#include <new>
#include <type_traits>
#include <utility>

namespace VIGIL_DETAIL {

// A reference to a callable, for a call that ends before the callable does.
class call_ref {
 public:
  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, call_ref>)
  call_ref(F& f) noexcept  // NOLINT(google-explicit-constructor): a parameter type
      : target_(address_of(f)), call_([](void* target) { (*reinterpret_cast<F*>(target))(); }) {}

  void operator()() const { call_(target_); }

 private:
  // F may be const, or a plain function.
  template <class F>
  static void* address_of(F& f) noexcept {
    if constexpr (std::is_function_v<F>) {
      return reinterpret_cast<void*>(&f);
    } else {
      return const_cast<void*>(static_cast<const volatile void*>(&f));
    }
  }

  void* target_;
  void (*call_)(void*);
};

// The operations on a timer's callback.
struct callback_table {
  void (*call)(void* callback);
  void (*relocate)(void* from, void* to) noexcept;
  void (*destroy)(void* callback) noexcept;
};

// A move-only callback, stored inline or, if it is large, in a box. Cheap to move, so
// that the caller can build it and pass it to a record.
class callback {
 public:
  static constexpr std::size_t room = 40;

  callback() noexcept = default;

  template <class F>
    requires(!std::is_same_v<std::remove_cvref_t<F>, callback>)
  explicit callback(F&& f) {
    using target = std::decay_t<F>;
    static_assert(checked_function<target&>::is_done);
    if (is_empty_function(f)) return;  // the caller reports it
    if constexpr (sizeof(target) <= room && alignof(target) <= alignof(void*) &&
                  std::is_nothrow_move_constructible_v<target>) {
      ::new (static_cast<void*>(storage_)) target(std::forward<F>(f));
      table_ = &inline_table<target>;
    } else {
      ::new (static_cast<void*>(storage_)) target*(new target(std::forward<F>(f)));
      table_ = &boxed_table<target>;
    }
  }

  callback(callback&& other) noexcept : table_(std::exchange(other.table_, nullptr)) {
    if (table_ != nullptr) table_->relocate(other.storage_, storage_);
  }

  callback& operator=(callback&& other) noexcept {
    if (this != &other) {
      reset();
      table_ = std::exchange(other.table_, nullptr);
      if (table_ != nullptr) table_->relocate(other.storage_, storage_);
    }
    return *this;
  }

  ~callback() { reset(); }

  explicit operator bool() const noexcept { return table_ != nullptr; }

  void operator()() { table_->call(storage_); }

  void reset() noexcept {
    if (table_ != nullptr) std::exchange(table_, nullptr)->destroy(storage_);
  }

 private:
  friend struct debug_layout;  // src/core/base/debug_layout.hpp

  template <class T>
  static T& inline_target(void* storage) noexcept {
    return *std::launder(static_cast<T*>(storage));
  }

  template <class T>
  static T*& boxed_target(void* storage) noexcept {
    return *std::launder(static_cast<T**>(storage));
  }

  template <class T>
  static constexpr callback_table inline_table = {
      [](void* s) { static_cast<void>(inline_target<T>(s)()); },
      [](void* from, void* to) noexcept {
        ::new (to) T(std::move(inline_target<T>(from)));
        inline_target<T>(from).~T();
      },
      [](void* s) noexcept { inline_target<T>(s).~T(); }};

  template <class T>
  static constexpr callback_table boxed_table = {
      [](void* s) { static_cast<void>((*boxed_target<T>(s))()); },
      [](void* from, void* to) noexcept { ::new (to) T*(boxed_target<T>(from)); },
      [](void* s) noexcept { delete boxed_target<T>(s); }};

  const callback_table* table_ = nullptr;
  alignas(void*) std::byte storage_[room];
};

}  // namespace VIGIL_DETAIL
