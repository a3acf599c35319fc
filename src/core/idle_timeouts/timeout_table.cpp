// timeout_table: lists by duration.
//
// TT1 A list is in the map from its making until it is dropped, under lock_. Entries are
//     added under lock_ as well, so a list that is found unused there stays so.
// TT2 Each new duration looks at two lists and drops those that are unused, so there are
//     at most about as many empty lists as others. A list whose on_expire runs is kept:
//     the end of the table waits for it.
// TT3 An on_expire may destroy the table in the middle of expire_now, which uses it to
//     its own end. So the uses are counted.
// TT4 Once is_ending_ is set no list comes into the map, since nobody would end it. An
//     on_expire that the end waits for may still add, as in TL6. All lists are closed
//     before the end waits, so nothing expires meanwhile.
#include "core/idle_timeouts/timeout_core.hpp"

#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace VIGIL_DETAIL {

class timeout_table {
 public:
  // Takes over a use of f, unless it throws.
  timeout_table(timeout_function* f, const site& from)
      : service_(timeout_core::service_here("timeout_lists")),
        run_(service_.generation()),
        function_(f),
        from_(from) {}

  timeout_table(const timeout_table&) = delete;
  timeout_table& operator=(const timeout_table&) = delete;

  // Ends the handle.
  void end() noexcept VIGIL_EXCLUDES(lock_) {
    map lists;
    {
      const lock_guard guard(lock_);
      is_ending_ = true;
      lists.swap(lists_);
    }
    for (auto& [duration, list] : lists)
      list->close();
    for (auto& [duration, list] : lists)
      list->end_closed();
    timeout_core::drop_function(function_);  // no list is made any more
    release();
  }

  void add(timeout_node& n, nanos duration) VIGIL_EXCLUDES(lock_) {
    {
      const lock_guard guard(lock_);
      const auto found = lists_.find(duration);
      if (found != lists_.end()) {
        found->second->add(n);
        return;
      }
    }
    map::node_type node = make_list(duration);
    map::node_type dropped[looked_at];
    std::exception_ptr error;
    {
      const lock_guard guard(lock_);
      if (is_ending_) {  // TT4
        timeout_core::take_out(n);
      } else {
        drop_unused(dropped);
        auto placed = lists_.insert(std::move(node));
        node = std::move(placed.node);  // another caller has made one meanwhile
        try {
          placed.position->second->add(n);
        } catch (...) {
          error = std::current_exception();
        }
      }
    }
    if (!node.empty()) node.mapped()->end();
    for (map::node_type& d : dropped) {
      if (!d.empty()) d.mapped()->end();
    }
    if (error != nullptr) std::rethrow_exception(error);
  }

  std::size_t expire_now() VIGIL_EXCLUDES(lock_) {
    require_fiber("timeout_lists::expire_now");
    uses_.fetch_add(1);
    const use mine{*this};
    std::size_t called = 0;
    for (nanos after = 0;;) {
      timeout_core* list = nullptr;
      {
        const lock_guard guard(lock_);
        const auto next = lists_.upper_bound(after);
        if (next == lists_.end()) return called;
        after = next->first;
        list = next->second;
        list->retain();
      }

      const use lists{*list};
      called += list->expire_now();
    }
  }

  std::size_t size() const noexcept VIGIL_EXCLUDES(lock_) {
    std::size_t n = 0;
    for (nanos after = 0;;) {
      const lock_guard guard(lock_);
      auto next = lists_.upper_bound(after);
      for (unsigned i = 0; i < counted_at_once; ++i, ++next) {
        if (next == lists_.end()) return n;
        after = next->first;
        n += next->second->size();
      }
    }
  }

  std::size_t count() const noexcept VIGIL_EXCLUDES(lock_) {
    const lock_guard guard(lock_);
    return lists_.size();
  }

 private:
  using map = std::map<nanos, timeout_core*>;

  // Releases a use that has been counted.
  template <class T>
  struct use {
    T& of;

    ~use() { of.release(); }
  };

  template <class T>
  use(T&) -> use<T>;

  static constexpr std::size_t looked_at = 2;
  static constexpr unsigned counted_at_once = 64;  // under one hold of the lock

  map::node_type make_list(nanos duration) {
    timeout_core& made =
        timeout_core::make("timeout_lists", service_, run_, duration, function_, from_, true);
    function_->uses.fetch_add(1);
    map one;
    try {
      one.emplace(duration, &made);
    } catch (...) {
      made.end();
      throw;
    }
    return one.extract(one.begin());
  }

  void release() noexcept {
    if (uses_.fetch_sub(1) == 1) delete this;
  }

  void drop_unused(map::node_type (&dropped)[looked_at]) VIGIL_REQUIRES(lock_) {
    for (map::node_type& d : dropped) {
      if (lists_.empty()) return;
      auto next = lists_.upper_bound(looked_at_last_);
      if (next == lists_.end()) next = lists_.begin();
      looked_at_last_ = next->first;
      if (next->second->is_unused()) d = lists_.extract(next);
    }
  }

  mutable spinlock lock_{lock_rank::timeout_lists};
  map lists_ VIGIL_GUARDED_BY(lock_);
  nanos looked_at_last_ VIGIL_GUARDED_BY(lock_) = 0;
  bool is_ending_ VIGIL_GUARDED_BY(lock_) = false;
  timer_service& service_;
  const std::uint32_t run_;
  timeout_function* const function_;
  const site from_;
  atomic<std::size_t> uses_{1};  // the handle, and each expire_now
};

timeout_table* make_table(timeout_function* f, const site& from) {
  try {
    return new timeout_table(f, from);
  } catch (...) {
    timeout_core::drop_function(f);
    throw;
  }
}

void end_table(timeout_table* lists) noexcept {
  lists->end();
}

namespace {

timeout_table& checked(timeout_table* lists, const char* call) {
  if (lists == nullptr) {
    throw std::logic_error(std::string("vigil::timeout_lists::") + call +
                           ": it has been moved from");
  }
  return *lists;
}

}  // namespace

void add(timeout_table* lists, timeout_node& n, std::int64_t duration) {
  checked(lists, "add").add(n, duration);
}

std::size_t expire_now(timeout_table* lists) {
  return checked(lists, "expire_now").expire_now();
}

std::size_t size_of(const timeout_table* lists) noexcept {
  return lists != nullptr ? lists->size() : 0;
}

std::size_t count_of(const timeout_table* lists) noexcept {
  return lists != nullptr ? lists->count() : 0;
}

}  // namespace VIGIL_DETAIL
