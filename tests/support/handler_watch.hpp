// A watch that runs code on a worker's own stack, as the handlers of an io_context do.
#pragma once

#include "core/base/clock_source.hpp"
#include "core/sched/idle/watch.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

namespace vigil::testing_support {

class handler_watch final : public detail::watch {
 public:
  explicit handler_watch(std::function<void()> f) : handler_(std::move(f)) {}

  void prepare() noexcept override { note_.clear(); }

  void wait_until(detail::nanos deadline) noexcept override {
    handler_();
    constexpr detail::nanos moment = 100'000;
    note_.sleep_until(std::min(deadline, detail::monotonic_now() + moment));
  }

  bool interrupt() noexcept override { return note_.wake(); }

 private:
  const std::function<void()> handler_;
  detail::note note_;
};

// From now on calls f whenever a worker of the calling fiber's runtime lies down, on that
// worker's own stack. Once for each runtime.
inline void handle_with(std::function<void()> f) {
  detail::current_scheduler()->adopt_watch(std::make_unique<handler_watch>(std::move(f)));
}

}  // namespace vigil::testing_support
