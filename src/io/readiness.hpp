// The members of a readiness (include/vigil/io/detail/readiness.hpp).
#pragma once

#include "core/base/atomic.hpp"
#include "core/base/spinlock.hpp"
#include "core/sched/wait/waiter.hpp"
#include "io/outside_wait.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/movable_deadline.hpp>
#include <vigil/io/detail/readiness.hpp>

#include <optional>

#include <boost/asio/execution_context.hpp>
#include <boost/system/error_code.hpp>

namespace VIGIL_IO_DETAIL {

struct readiness final : limited_wait {
  vigil::detail::waiter* look_again() noexcept override;

  // Ends the fiber's present wait, if it waits. Returns the waiter to be delivered.
  vigil::detail::waiter* claim() noexcept VIGIL_REQUIRES(lock);

  vigil::detail::atomic<int> references{1};

  vigil::detail::spinlock lock{vigil::detail::lock_rank::io};
  bool armed VIGIL_GUARDED_BY(lock) = false;  // RD1
  const boost::asio::execution_context* armed_in VIGIL_GUARDED_BY(lock) = nullptr;
  bool come VIGIL_GUARDED_BY(lock) = false;                // since begins_wait()
  boost::system::error_code error VIGIL_GUARDED_BY(lock);  // with which it has come
  bool looks_again VIGIL_GUARDED_BY(lock) = false;
  vigil::detail::open_wait* waiting VIGIL_GUARDED_BY(lock) = nullptr;
  arrival* tells VIGIL_GUARDED_BY(lock) = nullptr;

  std::optional<outside_wait> counted;  // that of a select, which holds the side

  one_operation_of<room_of_wait> memory;
};

// Throws std::bad_alloc.
void make_readiness(readiness_ref& r);

// Whether the handler has come since begins_wait(), and with which error.
bool came_with(readiness& r, boost::system::error_code& error) noexcept;

}  // namespace VIGIL_IO_DETAIL
