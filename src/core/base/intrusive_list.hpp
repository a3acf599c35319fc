// Lists that own nothing and allocate nothing.
//
// list<T, &T::hook>   doubly linked: unlinks an element in O(1). The hook may be one
//                     that T inherits.
// far_list<T>         the same for elements that lie far apart in memory.
// chain<T, &T::next>  singly linked, first in first out; can be moved onto
//                     another chain whole.
//
// No lock: the owner of the list guards it.
#pragma once

#include "core/base/assert.hpp"

#include <cstddef>
#include <utility>

namespace VIGIL_DETAIL {

template <class T>
struct list_hook {
  T* before = nullptr;
  T* after = nullptr;
  bool linked = false;
};

template <class T, auto Hook>
class list;

// Linked is T, or the base of T that has the hook.
template <class T, class Linked, list_hook<Linked> Linked::*Hook>
class list<T, Hook> {
 public:
  bool empty() const noexcept { return first_ == nullptr; }

  T* front() const noexcept { return static_cast<T*>(first_); }

  T* back() const noexcept { return static_cast<T*>(last_); }

  std::size_t size() const noexcept { return size_; }

  static T* next(const T& element) noexcept { return static_cast<T*>((element.*Hook).after); }

  static T* before(const T& element) noexcept { return static_cast<T*>((element.*Hook).before); }

  void push_back(T& element) noexcept {
    auto& hook = element.*Hook;
    VIGIL_ASSERT(!hook.linked, "list: the element is in a list already");
    hook = {last_, nullptr, true};
    (last_ != nullptr ? (last_->*Hook).after : first_) = &element;
    last_ = &element;
    ++size_;
  }

  void push_front(T& element) noexcept {
    auto& hook = element.*Hook;
    VIGIL_ASSERT(!hook.linked, "list: the element is in a list already");
    hook = {nullptr, first_, true};
    (first_ != nullptr ? (first_->*Hook).before : last_) = &element;
    first_ = &element;
    ++size_;
  }

  void remove(T& element) noexcept {
    auto& hook = element.*Hook;
    VIGIL_ASSERT(hook.linked, "list: the element is in no list");
    (hook.before != nullptr ? (hook.before->*Hook).after : first_) = hook.after;
    (hook.after != nullptr ? (hook.after->*Hook).before : last_) = hook.before;
    hook = {};
    --size_;
  }

  T* pop_front() noexcept {
    T* const element = front();
    if (element != nullptr) remove(*element);
    return element;
  }

 private:
  friend struct debug_layout;

  Linked* first_ = nullptr;
  Linked* last_ = nullptr;
  std::size_t size_ = 0;
};

// A list by T::hook of elements that lie far apart, such as entries on the stacks of
// waiters. A thread that takes out many would wait for memory at each step, since only
// the predecessor says where an element is. So each element also says, in T::ahead, where
// the element far_stride places behind it lies, so that it can be prefetched in time.
// That is a hint: the element may be gone.
#ifdef VIGIL_MODEL
inline constexpr std::size_t far_stride = 1;  // shows what happens between two batches
#else
inline constexpr std::size_t far_stride = 64;
#endif

template <class T>
class far_list {
 public:
  bool empty() const noexcept { return elements_.empty(); }

  std::size_t size() const noexcept { return elements_.size(); }

  void push_back(T& element) noexcept {
    elements_.push_back(element);
    element.ahead = nullptr;
    if (elements_.size() <= far_stride) {
      behind_ = nullptr;
      return;
    }
    behind_ = behind_ != nullptr ? elements_.next(*behind_) : elements_.front();
    behind_->ahead = &element;
  }

  void remove(T& element) noexcept {
    if (behind_ == &element) behind_ = elements_.before(element);
    elements_.remove(element);
  }

  T* pop_front() noexcept {
    T* const element = elements_.front();
    if (element != nullptr) remove(*element);
    return element;
  }

 private:
  friend struct debug_layout;

  list<T, &T::hook> elements_;
  T* behind_ = nullptr;  // the last whose `ahead` is set; nullptr: none
};

template <class T, T* T::*Next>
class chain {
 public:
  bool empty() const noexcept { return first_ == nullptr; }

  std::size_t size() const noexcept { return size_; }

  T* front() const noexcept { return first_; }

  void push_back(T& element) noexcept {
    element.*Next = nullptr;
    (last_ != nullptr ? last_->*Next : first_) = &element;
    last_ = &element;
    ++size_;
  }

  void push_front(T& element) noexcept {
    element.*Next = first_;
    first_ = &element;
    if (last_ == nullptr) last_ = &element;
    ++size_;
  }

  T* pop_front() noexcept {
    T* const element = first_;
    if (element == nullptr) return nullptr;
    first_ = element->*Next;
    if (first_ == nullptr) last_ = nullptr;
    element->*Next = nullptr;
    --size_;
    return element;
  }

  // Moves all of `other` to the end of this one.
  void splice_back(chain& other) noexcept {
    if (other.empty()) return;
    (last_ != nullptr ? last_->*Next : first_) = other.first_;
    last_ = other.last_;
    size_ += other.size_;
    other.first_ = other.last_ = nullptr;
    other.size_ = 0;
  }

 private:
  friend struct debug_layout;

  T* first_ = nullptr;
  T* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace VIGIL_DETAIL
