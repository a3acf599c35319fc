#include "core/runtime/runtime_core.hpp"
#include "core/timer/timer_service.hpp"

#include <vigil/error.hpp>
#include <vigil/io/executor.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/memory_executor.hpp>

#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/asio/system_executor.hpp>

namespace VIGIL_IO {
namespace detail {

namespace {

// Names of fibers that run handlers, in messages and the dump: a line of this file would
// say nothing about the program.
constexpr site as_handler_of_executor{"vigil::io::executor(), as a handler of it", 0};
constexpr site as_handler{"vigil::io, to run a handler", 0};

// The gate of the runtime whose handler the fiber runs.
fiber_local<const void*> handler_of;

}  // namespace

// Posts under the gate's lock, so that the runtime does not go meanwhile.
void post_handler(const executor_home& home, ::vigil::detail::callback f) {
  const std::lock_guard guard(home.gate->lock);
  if (home.gate->sched == nullptr) return;
  try {
    ::vigil::detail::post_handler_to(*home.gate->sched, std::move(f), as_handler_of_executor);
  } catch (const runtime_gone&) {
    // Too late in the run, which is as if the runtime had gone.
  }
}

void start_in_program(const std::function<void()>& f) {
  if (vigil::detail::current_scheduler() == nullptr) {
    boost::asio::post(boost::asio::system_executor(), f);
    return;
  }
  try {
    // Started, not posted: at the end of a run a posted function never starts, and a
    // fiber may be waiting for this one.
    go(f, as_handler);
    return;
  } catch (const runtime_gone&) {
    return;
  } catch (const limit_reached&) {
  } catch (const std::system_error&) {  // no stack
  } catch (const std::bad_alloc&) {
  }
  // A fiber may be waiting for f: the guard says that something is still to come.
  auto held = std::make_shared<work_guard>(runtime::current().make_work_guard());
  boost::asio::post(boost::asio::system_executor(), [f, held] {
    f();
    held->release();
  });
}

boost::asio::execution_context& context_of_memory() noexcept {
  return boost::asio::query(boost::asio::system_executor(), boost::asio::execution::context);
}

counted_work::counted_work(const executor_home& home) : gate_(home.gate) {
  const std::lock_guard guard(gate_->lock);
  if (gate_->sched != nullptr) gate_->sched->outside.io_executor_begins();
}

counted_work::~counted_work() {
  const std::lock_guard guard(gate_->lock);
  if (gate_->sched != nullptr) gate_->sched->outside.io_executor_ends();
}

bool is_inside(const executor_home& home) noexcept {
  if (vigil::detail::current_fiber() == nullptr) return false;
  try {
    return *handler_of == home.gate.get();
  } catch (const std::bad_alloc&) {
    return false;
  }
}

inside_scope::inside_scope(const executor_home& home)
    : before_(std::exchange(*handler_of, home.gate.get())) {}

inside_scope::~inside_scope() {
  *handler_of = before_;
}

}  // namespace detail

fiber_executor executor() {
  boost::asio::io_context& here = io_context();
  return fiber_executor({::vigil::detail::runtime_access::core_of(runtime::current()).gate, &here});
}

}  // namespace VIGIL_IO
