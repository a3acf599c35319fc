#include "soak/world.hpp"

#include <cmath>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <system_error>

#include <boost/system/system_error.hpp>

namespace vigil::soak {
namespace {

// 0: no allocation of this thread fails.
thread_local std::uint32_t until_failure = 0;

}  // namespace

nanoseconds dice::time(nanoseconds most) noexcept {
  const double share = static_cast<double>(below(1u << 30)) / (1u << 30);
  return nanoseconds(static_cast<std::int64_t>(std::pow(static_cast<double>(most.count()), share)));
}

hunger::hunger(std::uint32_t nth) noexcept {
  until_failure = nth;
}

hunger::~hunger() {
  until_failure = 0;
}

bool tells_of_shortage(const std::exception_ptr& error) {
  const auto is_short = [](std::error_code code) {
    return code == std::errc::too_many_files_open || code == std::errc::not_enough_memory ||
           code == std::errc::resource_unavailable_try_again ||
           code == std::errc::no_buffer_space || code == std::errc::too_many_files_open_in_system;
  };
  try {
    std::rethrow_exception(error);
  } catch (const std::bad_alloc&) {
    return true;
  } catch (const limit_reached&) {
    return true;
  } catch (const boost::system::system_error& e) {
    return is_short(e.code());
  } catch (const std::system_error& e) {
    return is_short(e.code());
  } catch (...) {
    return false;
  }
}

bool world::excuses(const std::exception_ptr& error, std::uint64_t edges) const {
  return tells_of_shortage(error) && shortage_since(edges);
}

void world::rest_after_refusal() {
  try {
    sleep_for(1ms);
  } catch (const std::bad_alloc&) {  // no memory for a timer either
    this_fiber::yield();
  }
}

void world::check_time(const ledger& l, time_point due, time_point came) const {
  if (came >= due && (!how.is_virtual || came == due)) return;
  l.fail("due at " + std::to_string(due.time_since_epoch().count()) + ", came at " +
         std::to_string(came.time_since_epoch().count()));
}

void world::cast(const char* name, int n, std::function<void(dice&)> round) {
  for (int i = 0; i < n; ++i) {
    auto& a = *actors_.emplace_back(std::make_unique<actor>());
    a.name = name;
    go({.name = name}, [this, &a, number = actors_.size(), round] { play(a, number, round); });
  }
}

void world::play(actor& a, std::uint64_t number, const std::function<void(dice&)>& round) {
  dice d(how.seed * 1'000 + number);
  while (goes_on(a)) {
    const std::uint64_t edges = shortages();
    ++rounds_.begun;
    try {
      round(d);
      sleep_for(d.time(how.longest_pause));
      ++rounds_.ended;
    } catch (const stopped&) {
      ++rounds_.ended;
      throw;
    } catch (const std::exception& e) {
      ++rounds_.refused;
      if (!excuses(std::current_exception(), edges)) {
        rounds_.fail(std::string("a round of ") + a.name + " ended by an exception: " + e.what());
      }
      rest_after_refusal();
    }
  }
}

bool world::goes_on(actor& a) {
  for (;;) {
    channel<void> rest;
    {
      const std::lock_guard guard(lock_);
      if (over_) return false;
      if (!resting_) return true;
      rest = rest_;
    }
    a.rest.store(rests_.load());
    rest.recv();
  }
}

void world::begin_rest() {
  auto rest = make_channel<void>();
  const std::lock_guard guard(lock_);
  if (resting_) return;  // one that was refused in a shortage is asked for again
  rest_ = rest;
  resting_ = true;
  ++rests_;
}

bool world::all_rest() {
  for (const auto& a : actors_)
    if (a->rest.load() != rests_.load()) return false;
  return true;
}

void world::end_rest() {
  channel<void> rest;
  {
    const std::lock_guard guard(lock_);
    resting_ = false;
    rest = std::exchange(rest_, {});
  }
  rest.close();
}

void world::end() {
  {
    const std::lock_guard guard(lock_);
    over_ = true;
  }
  end_rest();
}

std::uint64_t world::connections() const noexcept {
  std::uint64_t n = 0;
  for (const entry* e : connections_)
    n += e->count();
  return n;
}

std::string world::who_plays() {
  std::string text;
  for (const auto& a : actors_)
    if (a->rest.load() != rests_.load()) text += std::string(text.empty() ? "" : ", ") + a->name;
  return text;
}

}  // namespace vigil::soak

// Not under a sanitizer, whose own operator new finds more.
#ifdef VIGIL_SOAK_OWN_NEW
void* operator new(std::size_t size) {
  using vigil::soak::until_failure;
  void* const p =
      until_failure != 0 && --until_failure == 0 ? nullptr : std::malloc(size != 0 ? size : 1);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}

void operator delete(void* p) noexcept {
  std::free(p);
}

void operator delete(void* p, std::size_t) noexcept {
  std::free(p);
}
#endif
