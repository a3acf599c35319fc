// The parts of vigil-io that know Asio's io_context, for the proofs of readiness_test.cpp
// and select_io_test.cpp: in place of operation.cpp and memory_executor's functions.
#include "core/sched/fiber/fiber.hpp"
#include "core/sched/wait/waiter.hpp"
#include "core/sched/worker/worker.hpp"
#include "io/operation.hpp"

#include <vigil/io/memory_executor.hpp>

#include <cstddef>
#include <functional>
#include <new>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/execution_context.hpp>

namespace VIGIL_IO_DETAIL {

vigil::detail::fiber& fiber_that_may_wait() {
  return *vigil::detail::current_fiber();
}

void check_is_not_run_here(const boost::asio::any_io_executor&) {}

void check_is_not_run_here(operation&) {}

bool is_run_here(operation&) {
  return false;
}

void deliver_in_order(vigil::detail::waiter& claimed) noexcept {
  claimed.deliver(vigil::detail::run_order::in_order);
}

// --- For an operation that the test completes.

void* operation::operator new(std::size_t size) {
  return ::operator new(size);
}

void operation::operator delete(void* p) noexcept {
  ::operator delete(p);
}

spare_signal::spare_signal() : signal_(nullptr) {}

spare_signal::~spare_signal() = default;

std::function<void()> on_ask_to_end;

void ask_to_end(operation&) noexcept {
  if (on_ask_to_end) on_ask_to_end();
}

void has_begun(operation&) noexcept {}

void clear_slot(operation&) noexcept {}

void counted_wait::begin(operation&) noexcept {}

void counted_wait::end(operation&, bool) noexcept {}

void counted_wait::is_cancelled() noexcept {}

void start_in_program(const std::function<void()>&) {}

// Made before the first run, whose memory is the explorer's, and never destroyed.
boost::asio::execution_context& only_context = *new boost::asio::execution_context;

boost::asio::execution_context& context_of_memory() noexcept {
  return only_context;
}

}  // namespace VIGIL_IO_DETAIL
