// Short uses of names that no other example shows. The reference takes them from here,
// one marked piece for each page.
//
// Run:    build/release/examples/reference
// Prints: what each piece does.
#include <vigil/co.hpp>
#include <vigil/task.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace co = vigil::co;
using namespace std::chrono_literals;

// The selects are laid out by hand: each case begins a line.
// clang-format off

namespace {

//! [site]
vigil::channel<int> make_line(const vigil::site& from = vigil::site::current()) {
  return vigil::make_channel<int>(1, from);  // dumps name the line of the caller
}
//! [site]

void cases(vigil::shared_mutex& map, vigil::semaphore& slots, vigil::wait_group& all) {
  //! [on_lock_shared]
  vigil::select(
      vigil::on_lock_shared(map, [](std::shared_lock<vigil::shared_mutex>) { std::puts("read"); }),
      vigil::on_timeout(1s));
  //! [on_lock_shared]

  //! [on_acquire]
  vigil::select(
      vigil::on_acquire(slots, 2, [](vigil::scoped_permit) { std::puts("two permits"); }),
      vigil::on_timeout(1s));
  //! [on_acquire]

  //! [on_wait]
  all.go([] { vigil::sleep_for(10ms); });
  vigil::select(
      vigil::on_wait(all, [] { std::puts("all are done"); }),
      vigil::on_timeout(1s));
  //! [on_wait]

  //! [adopt_permit_t]
  constexpr vigil::adopt_permit_t held{};  // as vigil::adopt_permit
  slots.acquire();
  const vigil::scoped_permit one(slots, held);
  //! [adopt_permit_t]
}

void ends() {
  std::vector<vigil::fiber<>> fibers;
  for (int i = 1; i < 3; ++i) fibers.push_back(vigil::spawn([i] { vigil::sleep_for(i * 1s); }));

  //! [wait_any_for]
  const std::optional<std::size_t> soon = vigil::wait_any_for(10ms, fibers);
  if (!soon) std::puts("none within 10 ms");
  const auto deadline = vigil::clock::now() + 1s;
  const std::optional<std::size_t> first = vigil::wait_any_until(deadline, fibers);
  if (first) std::printf("number %zu is the first\n", *first);
  if (!vigil::wait_all_until(deadline, fibers)) std::puts("not all of them");
  //! [wait_any_for]
}

void results(vigil::channel<int> line) {
  //! [send_result]
  const vigil::send_result sent = line.try_send(1);
  const vigil::send_result refused = line.try_send(2);
  if (sent && refused.status() == vigil::channel_status::not_ready) std::puts("one has room");
  //! [send_result]

  //! [recv_result]
  const vigil::recv_result<int> got = line.recv_for(1s);
  const vigil::recv_result<int> none = line.recv_for(1s);
  if (got && none.is_timeout()) std::printf("got %d, then nothing\n", *got);
  //! [recv_result]
}

//! [clock_timer]
template <class Clock>
void give_up(const vigil::clock_timer<Clock>& t) {  // a wall::timer or a boot::timer
  std::puts(t.stop() ? "stopped in time" : "too late");
}
//! [clock_timer]

void clocks() {
  //! [deadline_at]
  const auto wall = std::chrono::system_clock::now() + 1h;
  const vigil::clock::time_point t = vigil::deadline_at(wall);  // converted once
  if (t > vigil::clock::now()) std::puts("an hour to go");
  //! [deadline_at]

  //! [sleep_until]
  auto next = vigil::clock::now();
  for (int i = 0; i < 3; ++i)
    vigil::sleep_until(next += 100ms);
  //! [sleep_until]

  //! [wall_scoped_timer]
  {
    const vigil::wall::scoped_timer later =
        vigil::wall::after_func_at(vigil::wall_clock::now() + 1h, [] { std::puts("never"); });
  }  // stopped
  //! [wall_scoped_timer]

  //! [boot]
  const vigil::boot::scoped_timer lease =
      vigil::boot::after_func_at(vigil::boot_clock::now() + 1s, [] { std::puts("renewed"); });
  vigil::boot::sleep_until(vigil::boot_clock::now() + 2s);  // a suspend counts as well
  //! [boot]
  give_up(*vigil::boot::scoped_timer(
      vigil::boot::after_func_at(vigil::boot_clock::now() + 1h, [] {})));

  //! [aligned_ticker]
  const vigil::aligned_ticker minutes = vigil::ticker::aligned(1min);
  const vigil::wall_clock::time_point full = *minutes.channel().recv();
  if (full.time_since_epoch() % 1min == 0s) std::puts("a full minute");
  //! [aligned_ticker]

  //! [tick]
  const vigil::timer_receiver seconds = vigil::tick(1s);
  for (int i = 0; i < 3; ++i)
    seconds.recv();
  //! [tick]

  //! [from_end_t]
  constexpr vigil::from_end_t gap{};  // as vigil::from_end
  const vigil::scoped_timer rests = vigil::every(1s, [] { vigil::sleep_for(1s); }, gap);
  vigil::sleep_for(5s);
  //! [from_end_t]

  //! [stoppable_t]
  constexpr vigil::stoppable_t taken_back{};  // as vigil::stoppable
  const vigil::timer idle = vigil::post([] { std::puts("never"); }, taken_back);
  if (idle.stop()) std::puts("taken back");
  //! [stoppable_t]
}

void contexts() {
  //! [cancel_function]
  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  const vigil::cancel_function from_elsewhere = cancel;  // copies cancel the same context
  from_elsewhere(std::make_error_code(std::errc::network_down));
  if (ctx.is_done()) std::puts("cancelled, and the cause is kept");
  //! [cancel_function]

  //! [with_deadline]
  const auto limited = vigil::with_deadline(vigil::background(), vigil::clock::now() + 1s);
  limited.ctx.done().recv();
  if (limited.ctx.error() == std::errc::timed_out) std::puts("its second is over");
  //! [with_deadline]

  //! [scoped_done_callback]
  const auto open = vigil::with_cancel(vigil::background());
  bool told = false;
  {
    const vigil::scoped_done_callback tells = vigil::after_func(open.ctx, [&told] { told = true; });
  }  // from here on the function neither runs nor begins
  open.cancel();
  std::puts(told ? "?" : "not told");
  //! [scoped_done_callback]
}

void fibers() {
  //! [stop_requested]
  auto f = vigil::spawn([] {
    const vigil::this_fiber::shield own_end;  // waits do not throw `stopped`
    while (!vigil::this_fiber::stop_requested())
      vigil::sleep_for(1s);
    std::puts("asked to stop");
  });
  vigil::sleep_for(3s);
  f.request_stop();
  //! [stop_requested]
  f.join();

  //! [id]
  auto other = vigil::spawn([] { return vigil::this_fiber::id(); });
  const auto id = other.id();
  if (other.join() == id) std::puts("one number, in the dump as well");
  //! [id]

  //! [pin]
  const vigil::this_fiber::pin here;
  const auto thread = std::this_thread::get_id();
  vigil::sleep_for(1ms);
  if (std::this_thread::get_id() == thread) std::puts("on the same thread");
  //! [pin]

  static std::mutex of_a_library;
  //! [no_park]
  {
    const std::lock_guard own(of_a_library);
    const vigil::this_fiber::no_park guard;  // a wait in here would end the program
    std::puts("nothing waits");
  }
  //! [no_park]
}

void the_rest() {
  //! [reservation]
  vigil::rate_limiter limiter(vigil::rate::per(1, 1s), 1);
  limiter.wait();
  const vigil::reservation next = limiter.reserve();
  vigil::sleep_until(next.time_to_act());
  //! [reservation]

  //! [signal_list]
  vigil::signal_list stops = {SIGINT};
  stops.push_back(SIGTERM);
  vigil::options settings;
  settings.stop_on = stops;
  //! [signal_list]

  //! [delay_histogram]
  const vigil::delay_histogram late = vigil::stats().lateness;
  const auto p99 = std::chrono::nanoseconds(late.quantile_nanos(0.99));
  if (p99 < 1ms) std::puts("99 of 100 timers fire within a millisecond");
  //! [delay_histogram]

  //! [version]
  if (vigil::version() == VIGIL_VERSION) {
    std::puts("headers and library are of one version");
  } else {
    std::printf("the library is %s\n", vigil::version_string());
  }
  //! [version]
}

//! [co_time]
vigil::task<> patient() {
  const auto until = vigil::clock::now() + 1s;
  co_await co::sleep_until(until);
  co_await co::yield();  // lets other tasks and fibers go first
  const bool asked = co_await co::stop_requested();
  if (asked) co_return;
  std::puts("nobody has asked it to stop");
}
//! [co_time]

//! [co_timed]
vigil::task<> hurried(vigil::channel<int> line) {
  const vigil::send_result sent = co_await co::send_for(line, 1, 10ms);
  const vigil::recv_result<int> got = co_await co::recv_for(line, 10ms);
  if (sent && got) std::puts("there and back in time");
}
//! [co_timed]

vigil::task<int> number(int n) {
  co_await co::sleep_for(n * 1s);
  co_return n;
}

//! [co_ends]
vigil::task<> waits_for(std::vector<vigil::task_handle<int>>& all) {
  const std::optional<std::size_t> soon = co_await co::wait_any_for(10ms, all);
  if (!soon) std::puts("none of the tasks yet");
  const std::size_t first = co_await co::wait_any(all);
  const bool over = co_await co::wait_all_for(1min, all);
  if (over) std::printf("number %zu was the first, and all have ended\n", first);
}
//! [co_ends]

//! [co_locks]
vigil::task<> guarded(vigil::mutex& m, vigil::shared_mutex& map, vigil::semaphore& slots) {
  const auto own = co_await co::lock(m);
  const auto reads = co_await co::lock_shared(map);
  const auto permit = co_await co::acquire(slots);
  std::puts("both locks, and a permit");
}
//! [co_locks]

//! [co_results]
vigil::task<> collects(vigil::group_of<int>& g, vigil::wait_group& others) {
  while (const std::optional<int> n = co_await co::next(g))
    std::printf("result %d\n", *n);
  co_await co::wait(others);
}
//! [co_results]

//! [co_select]
vigil::task<> ends_with(vigil::context ctx, vigil::channel<int> line) {
  co_await co::select_ordered(
      vigil::on_done(ctx, [] { std::puts("over already"); }),  // goes first if both are ready
      vigil::on_recv(line));
  co_await co::done(ctx);
}
//! [co_select]

void tasks() {
  vigil::spawn(patient()).join();
  vigil::spawn(hurried(vigil::make_channel<int>(1))).join();

  std::vector<vigil::task_handle<int>> numbers;
  for (int i = 1; i < 3; ++i) numbers.push_back(vigil::spawn(number(i)));
  vigil::spawn(waits_for(numbers)).join();

  vigil::mutex m;
  vigil::shared_mutex map;
  vigil::semaphore slots(1);
  vigil::spawn(guarded(m, map, slots)).join();

  vigil::group_of<int> g;
  g.go([] { return 7; });
  vigil::wait_group others;
  vigil::spawn(collects(g, others)).join();

  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  cancel();
  vigil::spawn(ends_with(ctx, vigil::make_channel<int>())).join();
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    vigil::shared_mutex map;
    vigil::semaphore slots(3);
    vigil::wait_group all;
    cases(map, slots, all);
    ends();
    results(make_line());
    clocks();
    contexts();
    fibers();
    the_rest();
    tasks();
  });
}
