// outside_wait: a wait for I/O. It counts as outside work unless the stream is in memory.
#pragma once

#include "core/sched/worker/scheduler.hpp"
#include "io/io_watch.hpp"

#include <vigil/detail/config.hpp>
#include <vigil/io/detail/any_io_executor.hpp>
#include <vigil/io/memory_executor.hpp>

#include <boost/asio/execution_context.hpp>

namespace VIGIL_IO_DETAIL {

// It may begin and end on different fibers of the run.
class outside_wait {
 public:
  outside_wait(vigil::detail::scheduler& sched, const boost::asio::any_io_executor& by) noexcept
      : sched_(sched),
        watch_(watch_of(sched, by)),
        counts_(watch_ != nullptr || by.target<memory_executor>() == nullptr) {
    if (!counts_) return;
    sched_.outside.io_begins();
    if (watch_ != nullptr) watch_->operation_begins();
  }

  outside_wait(const outside_wait&) = delete;
  outside_wait& operator=(const outside_wait&) = delete;

  ~outside_wait() {
    if (!counts_) return;
    if (watch_ != nullptr) watch_->operation_ends(false);
    sched_.outside.io_ends();
  }

 private:
  static vigil::detail::io_watch* watch_of(vigil::detail::scheduler& sched,
                                           const boost::asio::any_io_executor& by) noexcept {
    vigil::detail::io_watch* const watch = sched.watches().present().as_io_watch();
    return watch != nullptr && &by.context() == &watch->context() ? watch : nullptr;
  }

  vigil::detail::scheduler& sched_;
  vigil::detail::io_watch* const watch_;
  const bool counts_;
};

}  // namespace VIGIL_IO_DETAIL
