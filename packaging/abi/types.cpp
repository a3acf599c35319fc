// The types of the public headers, most of which no exported function names: inline code and
// templates have them alone. tools/check_abi.py compares them like a seventh library.
#include <vigil/co.hpp>
#include <vigil/guest.hpp>
#include <vigil/inspect.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/io.hpp>
#include <vigil/io/tls.hpp>
#include <vigil/leaks.hpp>
#include <vigil/lock_check.hpp>
#include <vigil/single_flight.hpp>
#include <vigil/testing.hpp>
#include <vigil/trace.hpp>
#include <vigil/vigil.hpp>

#include <boost/asio/ip/tcp.hpp>

// A pointer alone would not instantiate a template.
#define VIGIL_WHOLE(name, ...) \
  __VA_ARGS__* name;           \
  static_assert(sizeof(__VA_ARGS__) != 0)

struct public_types {
  VIGIL_WHOLE(adopt_permit, vigil::adopt_permit_t);
  VIGIL_WHOLE(aligned_ticker, vigil::aligned_ticker);
  VIGIL_WHOLE(blocking_options, vigil::blocking_options);
  VIGIL_WHOLE(blocking_stats, vigil::blocking_stats);
  VIGIL_WHOLE(blocking_pool, vigil::blocking_pool);
  VIGIL_WHOLE(cancel_function, vigil::cancel_function);
  VIGIL_WHOLE(cancellable, vigil::cancellable);
  VIGIL_WHOLE(cancelled, vigil::cancelled);
  VIGIL_WHOLE(case_list, vigil::case_list);
  VIGIL_WHOLE(channel, vigil::channel<int>);
  VIGIL_WHOLE(channel_of_void, vigil::channel<void>);
  VIGIL_WHOLE(channel_closed, vigil::channel_closed);
  VIGIL_WHOLE(clock, vigil::clock);
  VIGIL_WHOLE(boot_timer, vigil::clock_timer<vigil::boot_clock>);
  VIGIL_WHOLE(wall_timer, vigil::clock_timer<vigil::wall_clock>);
  VIGIL_WHOLE(condition_variable, vigil::condition_variable);
  VIGIL_WHOLE(context, vigil::context);
  VIGIL_WHOLE(context_key, vigil::context_key<int>);
  VIGIL_WHOLE(deadlock, vigil::deadlock);
  VIGIL_WHOLE(done_callback, vigil::done_callback);
  VIGIL_WHOLE(expiring, vigil::expiring<int>);
  VIGIL_WHOLE(fiber, vigil::fiber<int>);
  VIGIL_WHOLE(fiber_of_void, vigil::fiber<void>);
  VIGIL_WHOLE(fiber_local, vigil::fiber_local<int>);
  VIGIL_WHOLE(fiber_options, vigil::fiber_options);
  VIGIL_WHOLE(from_end, vigil::from_end_t);
  VIGIL_WHOLE(group, vigil::group);
  VIGIL_WHOLE(group_of, vigil::group_of<int>);
  VIGIL_WHOLE(group_options, vigil::group_options);
  VIGIL_WHOLE(guest_runtime, vigil::guest_runtime);
  VIGIL_WHOLE(latch, vigil::latch);
  VIGIL_WHOLE(limit_reached, vigil::limit_reached);
  VIGIL_WHOLE(mutex, vigil::mutex);
  VIGIL_WHOLE(once, vigil::once);
  VIGIL_WHOLE(options, vigil::options);
  VIGIL_WHOLE(rate, vigil::rate);
  VIGIL_WHOLE(rate_limiter, vigil::rate_limiter);
  VIGIL_WHOLE(receiver, vigil::receiver<int>);
  VIGIL_WHOLE(recv_result, vigil::recv_result<int>);
  VIGIL_WHOLE(recv_result_of_void, vigil::recv_result<void>);
  VIGIL_WHOLE(reservation, vigil::reservation);
  VIGIL_WHOLE(runtime, vigil::runtime);
  VIGIL_WHOLE(runtime_gone, vigil::runtime_gone);
  VIGIL_WHOLE(runtime_stats, vigil::runtime_stats);
  VIGIL_WHOLE(scoped_close, vigil::scoped_close);
  VIGIL_WHOLE(scoped_permit, vigil::scoped_permit);
  VIGIL_WHOLE(scoped_timer, vigil::scoped_timer);
  VIGIL_WHOLE(semaphore, vigil::semaphore);
  VIGIL_WHOLE(send_result, vigil::send_result);
  VIGIL_WHOLE(sender, vigil::sender<int>);
  VIGIL_WHOLE(shared_mutex, vigil::shared_mutex);
  VIGIL_WHOLE(single_flight, vigil::single_flight<int, int>);
  VIGIL_WHOLE(site, vigil::site);
  VIGIL_WHOLE(stopped, vigil::stopped);
  VIGIL_WHOLE(task, vigil::task<int>);
  VIGIL_WHOLE(task_of_void, vigil::task<void>);
  VIGIL_WHOLE(no_park, vigil::this_fiber::no_park);
  VIGIL_WHOLE(pin, vigil::this_fiber::pin);
  VIGIL_WHOLE(shield, vigil::this_fiber::shield);
  VIGIL_WHOLE(ticker, vigil::ticker);
  VIGIL_WHOLE(timeout_list, vigil::timeout_list);
  VIGIL_WHOLE(timeout_entry, vigil::timeout_list::entry);
  VIGIL_WHOLE(timeout_lists, vigil::timeout_lists);
  VIGIL_WHOLE(timer, vigil::timer);
  VIGIL_WHOLE(region, vigil::trace::region);
  VIGIL_WHOLE(wait_group, vigil::wait_group);
  VIGIL_WHOLE(work_guard, vigil::work_guard);
  VIGIL_WHOLE(wrong_place, vigil::wrong_place);
  VIGIL_WHOLE(leak, vigil::testing::leak);
  VIGIL_WHOLE(leak_options, vigil::testing::leak_options);
  VIGIL_WHOLE(virtual_options, vigil::testing::virtual_options);

  VIGIL_WHOLE(deadline_stream, vigil::io::deadline_stream<boost::asio::ip::tcp::socket>);
  VIGIL_WHOLE(idle_list, vigil::io::idle_list);
  VIGIL_WHOLE(memory_acceptor, vigil::io::memory_acceptor);
  VIGIL_WHOLE(memory_stream, vigil::io::memory_stream);
  VIGIL_WHOLE(serve_limits, vigil::io::serve_limits);
  VIGIL_WHOLE(tls_stream, vigil::io::tls_stream<boost::asio::ip::tcp::socket>);
  VIGIL_WHOLE(use_fiber, vigil::io::use_fiber_t);

  VIGIL_WHOLE(dump_options, vigil::inspect::dump_options);
  VIGIL_WHOLE(install_options, vigil::inspect::install_options);
  VIGIL_WHOLE(live_page, vigil::inspect::live_page);
  VIGIL_WHOLE(page_options, vigil::inspect::page_options);
  VIGIL_WHOLE(record_options, vigil::inspect::record_options);
  VIGIL_WHOLE(stack_use, vigil::inspect::stack_use);
  VIGIL_WHOLE(stuck_report, vigil::inspect::stuck_report);
  VIGIL_WHOLE(lock_check_options, vigil::lock_check::install_options);
};

extern "C" [[gnu::visibility("default")]] void abi_types(public_types&) {}
