// single_flight: shares one call among simultaneous callers with the same key.
//
//   vigil::single_flight<std::string, page> flights;
//   page p = flights.call(url, [&] { return download(url); });
//
// The first caller for a key runs the call. Callers that come meanwhile wait, and get a
// copy of the result, or the same exception. It is not a cache: once the call has ended,
// the next caller starts a new one.
#pragma once

#include <vigil/detail/config.hpp>
#include <vigil/detail/sync_core.hpp>
#include <vigil/detail/wait_limit.hpp>
#include <vigil/error.hpp>
#include <vigil/mutex.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <unordered_map>
#include <utility>

namespace VIGIL_PUBLIC {

// single_flight<Key, T>: one call for all simultaneous callers with the same key. T is
// copied for each caller; for a large result use a std::shared_ptr<const T>. With void,
// callers learn only that the call was done. Throws what f throws, to all callers, except
// `stopped` and `cancelled`, which concern one caller; from a wait for the call of
// another `stopped`, wrong_place, `cancelled` with a context; std::logic_error if f asks
// for its own key. Thread safety: fibers of any runtime and plain threads. Lifetime: it
// outlives its calls. Shutdown: ends a wait by `stopped`; one that waits takes over from
// a caller that was unwound. Cost: two allocations for each call of f. Behaviour: Go's
// golang.org/x/sync/singleflight.
template <class Key, class T, class Hash = std::hash<Key>, class Equal = std::equal_to<Key>>
class single_flight {
 public:
  single_flight() = default;
  single_flight(const single_flight&) = delete;
  single_flight& operator=(const single_flight&) = delete;

  // Returns f() if no call for this key is in progress, otherwise the result of that
  // call. An exception of f is thrown to all its callers. Throws std::logic_error if f
  // asks for its own key, and `stopped` if the fiber is stopped while it waits.
  //
  // If the fiber that runs f is stopped, or its f throws `cancelled`, that concerns this
  // caller only: one of the waiting callers then runs its own f.
  template <class F>
  T call(const Key& key, F&& f) {
    return call_within(key, detail::no_limit, std::forward<F>(f));
  }

  // The same; throws `cancelled` when ctx is done while it waits for another's call. ctx
  // does not limit f, unless f passes it on itself.
  template <class F>
  T call(const Key& key, const context& ctx, F&& f) {
    return call_within(key, detail::cancelled_by(ctx), std::forward<F>(f));
  }

  // Makes a later caller start a new call, even while one for the key is in progress;
  // callers that wait for that one still get its result.
  void forget(const Key& key) {
    const detail::part_lock lock(mutex_);
    const auto found = flights_.find(key);
    if (found == flights_.end()) return;
    found->second->key = nullptr;
    flights_.erase(found);
  }

  // The number of calls in progress.
  std::size_t size() const {
    const detail::part_lock lock(mutex_);
    return flights_.size();
  }

 private:
  struct nothing {};

  struct flight {
    flight() { ended.count = 1; }

    detail::counter_core ended{site{"vigil::single_flight", 0}};  // a latch
    std::uint64_t leader = detail::caller_id();
    // Written by the leader before `ended`. Neither is set if the leader was stopped or
    // its own context was done.
    std::optional<std::conditional_t<std::is_void_v<T>, nothing, T>> result;
    std::exception_ptr error;
    const Key* key = nullptr;  // in flights_; nullptr once forgotten. Guarded by the mutex
  };

  using flight_ptr = std::shared_ptr<flight>;

  // Waits: throws stopped, wrong_place, std::logic_error, what f throws.
  template <class F>
  T call_within(const Key& key, const detail::wait_limit& limit, F&& f) {
    // Kept, because others may change the caller's context between two waits.
    const detail::kept_limit kept(limit);
    for (;;) {
      flight_ptr mine;
      const flight_ptr theirs = join(key, mine);
      if (!theirs) return lead(*mine, std::forward<F>(f));
      detail::wait(theirs->ended, true, kept.limit);
      if (theirs->error != nullptr) std::rethrow_exception(theirs->error);
      if constexpr (std::is_void_v<T>) {
        if (theirs->result) return;
      } else {
        if (theirs->result) return *theirs->result;
      }
    }
  }

  // Returns the flight to wait for; null if the caller's own is the one to run.
  flight_ptr join(const Key& key, flight_ptr& mine) {
    const std::lock_guard lock(mutex_);
    const auto found = flights_.find(key);
    if (found == flights_.end()) {
      mine = std::make_shared<flight>();
      mine->key = &flights_.emplace(key, mine).first->first;
      return {};
    }
    if (found->second->leader == detail::caller_id()) {
      throw std::logic_error(
          "vigil::single_flight::call: the function asks for the key that it is called for, and "
          "would wait for itself for ever");
    }
    return found->second;
  }

  template <class F>
  T lead(flight& mine, F&& f) {
    const landing at_end{*this, mine};
    try {
      if constexpr (std::is_void_v<T>) {
        std::forward<F>(f)();
        mine.result.emplace();
      } else {
        mine.result.emplace(std::forward<F>(f)());
        return *mine.result;
      }
    } catch (const stopped&) {
      throw;
    } catch (const cancelled&) {
      throw;
    } catch (...) {
      mine.result.reset();
      mine.error = std::current_exception();
      throw;
    }
  }

  struct landing {
    single_flight& all;
    flight& mine;

    ~landing() {
      {
        const detail::part_lock lock(all.mutex_);
        // Finds the entry by its own key, because f may have changed the caller's.
        if (mine.key != nullptr) all.flights_.erase(all.flights_.find(*mine.key));
      }
      detail::count_down(mine.ended, 1);
    }
  };

  mutable mutex mutex_;
  std::unordered_map<Key, flight_ptr, Hash, Equal> flights_;
};

}  // namespace VIGIL_PUBLIC
