#include "core/runtime/runtime_core.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "io/watch_service.hpp"

#include <vigil/error.hpp>
#include <vigil/io/io_context.hpp>

#include <memory>

namespace VIGIL_IO {

void attach(options& settings, boost::asio::io_context& context) noexcept {
  vigil::detail::refuse_other_headers(settings);
  settings.watch.make = [](boost::asio::io_context& given) -> vigil::detail::watch* {
    return new vigil::detail::io_watch(given);
  };
  settings.watch.context = &context;
}

boost::asio::io_context& io_context() {
  vigil::detail::scheduler& sched = *vigil::detail::require_fiber("io::io_context").sched;
  const auto present = [&] { return sched.watches().present().as_io_watch(); };
  if (present() == nullptr) {
    if (sched.clock.is_virtual()) {
      throw wrong_place(
          "vigil::io::io_context: on virtual time there is no real I/O; use an io_context that a "
          "thread of the test runs");
    }
    sched.adopt_watch(std::make_unique<vigil::detail::io_watch>());  // another fiber may be first
    if (present() == nullptr) {
      throw wrong_place(
          "vigil::io::io_context: this runtime waits in a watch that is no io_context; use an "
          "io_context that a thread runs");
    }
  }
  return present()->context();
}

void restart(boost::asio::io_context& context) {
  vigil::detail::watch_service::of(context).restart();
}

}  // namespace VIGIL_IO
