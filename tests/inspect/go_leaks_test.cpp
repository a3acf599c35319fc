// Known leaks and deadlocks of Go programs, written for vigil from their descriptions.
//
//   GoKer     the kernels of GoBench (Yuan et al., CGO 2021), by project and number
//   Tu        "Understanding Real-World Concurrency Bugs in Go" (Tu et al., ASPLOS 2019)
//   Saioc     "Unveiling and Vanquishing Goroutine Leaks in Enterprise Microservices"
//             (Saioc et al., CGO 2024), by the name of the pattern
//   goleak    the guide of go.uber.org/goleak
//
// Each runs on a fiber called "parent". `certain` names the fibers that are found as
// certain, `possible` those that are only possible, for the reason beside them.
#include "inspect/leaks_helpers.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <cstdlib>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace vigil::testing_support {
namespace {

using namespace std::chrono_literals;

struct pattern {
  const char* origin;
  void (*run)();
  name_set certain;
  name_set possible = {};
};

// --- channels

// GoKer kubernetes 5316; Tu, figure 1; Saioc: timeout leak. The result comes after the
// caller has given up.
void send_after_timeout() {
  const auto result = make_channel<int>();
  start("worker", [result] {
    sleep_for(2s);
    result.send(1);
  });
  select(on_recv(result), on_timeout(1s));
}

// Saioc: premature function return. An error returns before the receive.
void return_before_receive() {
  const auto result = make_channel<int>();
  start("worker", [result] { result.send(1); });
  const bool failed = true;
  if (failed) return;
  result.recv();
}

// Saioc: double send. A return is missing after the send of the error.
void double_send() {
  const auto result = make_channel<std::string>();
  start("worker", [result] {
    result.send("error");
    result.send("value");
  });
  result.recv();
}

// Saioc: NCast. Several senders, and one receive.
void n_senders_one_receive() {
  const auto first = make_channel<int>();
  start("a", [first] { first.send(1); });
  sleep_for(1s);
  start("b", [first] { first.send(2); });
  start("c", [first] { first.send(3); });
  sleep_for(1s);
  first.recv();
}

// Saioc: channel iteration misuse. A range over a channel that nobody closes.
void range_without_close() {
  const auto work = make_channel<int>();
  start("consumer", [work] {
    for (const int value : work)
      static_cast<void>(value);
  });
  for (int i = 0; i < 3; ++i)
    work.send(i);
}

// Tu, 5.1.2. A send to a nil channel.
void nil_channel() {
  start("sender", [] { channel<int>().send(1); });
  start("receiver", [] { channel<int>().recv(); });
}

// goleak. A fiber that selects from nothing.
void empty_select() {
  start("idle", [] { select(); });
}

// GoKer cockroach 24808. The buffer is full, and its only receiver is not started yet.
void full_buffer() {
  start("compactor", [] {
    const auto suggestions = make_channel<int>(1);
    suggestions.send(1);
    suggestions.send(2);
    start("loop", [suggestions] { suggestions.recv(); });
  });
}

// GoKer etcd 6857. A status is asked for after the loop that answers has stopped.
void ask_stopped_loop() {
  const auto status = make_channel<int>();
  const auto stop = make_channel<void>();
  start("loop", [status, stop] {
    for (bool runs = true; runs;)
      select(on_recv(status), on_recv(stop, [&](bool) { runs = false; }));
  });
  stop.close();
  sleep_for(1s);
  start("asker", [status] { status.send(1); });
}

// GoKer grpc 660. The benchmark's workers report that they are done after the client has
// stopped to listen.
void workers_outlive_listener() {
  const auto done = make_channel<void>();
  for (const char* const name : {"w1", "w2"}) {
    start(name, [done] {
      sleep_for(2s);
      done.send();
    });
  }
  select(on_recv(done), on_timeout(1s));
}

// GoKer moby 21233. A transfer, its progress and its watcher: the reader has gone.
void pipeline_without_end() {
  const auto raw = make_channel<int>();
  const auto shown = make_channel<int>();
  start("source", [raw] {
    for (int i = 0;; ++i)
      raw.send(i);
  });
  start("stage", [raw, shown] {
    for (const int i : raw)
      shown.send(i);
  });
  start("reader", [shown] { shown.recv(); });
}

// GoKer istio 17860. A select among channels whose other ends have all gone.
void select_among_dead_channels() {
  const auto status = make_channel<int>();
  const auto abort = make_channel<void>();
  start("agent", [status, abort] { select(on_recv(status), on_recv(abort), on_send(status, 1)); });
}

// Requests wait in a buffer with the channels for their replies, and the server is gone.
void reply_in_dead_buffer() {
  const auto requests = make_channel<channel<int>>(4);
  start("client", [requests] {
    const auto reply = make_channel<int>();
    requests.send(reply);
    reply.recv();
  });
}

// GoKer kubernetes 38669. The event loop waits for events of a channel that is full, and
// for nothing else.
void both_ends_in_one_fiber() {
  start("cacher", [] {
    const auto incoming = make_channel<int>(2);
    for (int i = 0; i < 3; ++i)
      incoming.send(i);
    incoming.recv();
  });
}

// --- contexts

// Tu, figure 6. The cancel function of a context is overwritten by that of another.
void overwritten_cancel() {
  auto [ctx, cancel] = with_cancel(background());
  start("watcher", [ctx = ctx] { ctx.done().recv(); });
  std::tie(ctx, cancel) = [] {
    cancellable other = with_timeout(background(), 1s);
    return std::pair(other.ctx, other.cancel);
  }();
  sleep_for(2s);
}

// GoKer grpc 862. The call returns an error before it arranges for the cancel.
void cancel_that_is_not_called() {
  const cancellable made = with_cancel(background());
  start("closer", [ctx = made.ctx] { select(on_done(ctx)); });
}

// GoKer cockroach 13197 and 13755. The rows are not closed, so the context of their
// transaction, under that of the statement, is never done.
void context_below_context() {
  const cancellable statement = with_cancel(background());
  const cancellable rows = with_cancel(statement.ctx);
  start("awaitDone", [ctx = rows.ctx] { channel<int>().recv(ctx); });
}

// GoKer kubernetes 25331. A send of the result that does not look at the context.
void send_without_context() {
  const cancellable made = with_cancel(background());
  const auto result = make_channel<int>();
  start("watch", [result, ctx = made.ctx] {
    ctx.done().recv();
    result.send(1);
  });
  made.cancel();
}

// --- locks

struct server {
  mutex lock;
  mutex other;
  mutex third;
  shared_mutex table;
  condition_variable changed;
  channel<int> events = make_channel<int>();
};

// GoKer cockroach 9935, moby 7559, grpc 795. A lock that is taken twice.
void double_lock() {
  const auto s = std::make_shared<server>();
  start("logger", [s] {
    const std::lock_guard outer(s->lock);
    const std::lock_guard inner(s->lock);
  });
}

// GoKer cockroach 584. A `break` skips the unlock, and the loop comes round.
void unlock_skipped() {
  const auto s = std::make_shared<server>();
  start("gossip", [s] {
    for (int i = 0; i < 2; ++i) {
      s->lock.lock();
      const bool is_closed = true;
      if (is_closed) continue;
      s->lock.unlock();
    }
  });
}

// GoKer etcd 5509. An error returns without the unlock, and the fiber has ended.
void holder_has_ended() {
  const auto s = std::make_shared<server>();
  start("client", [s] { s->lock.lock(); });
  sleep_for(1s);
  start("next", [s] { s->lock.lock(); });
}

// GoKer cockroach 10214, moby 4951, kubernetes 13135. Two locks in two orders.
void ab_ba() {
  const auto s = std::make_shared<server>();
  start("ab", [s] {
    const std::lock_guard a(s->lock);
    sleep_for(1s);
    const std::lock_guard b(s->other);
  });
  start("ba", [s] {
    const std::lock_guard b(s->other);
    sleep_for(1s);
    const std::lock_guard a(s->lock);
  });
  sleep_for(2s);
}

// GoKer hugo 3251. A ring of more than two.
void ring_of_locks() {
  const auto s = std::make_shared<server>();
  const auto take = [s](mutex server::*first, mutex server::*second) {
    const std::lock_guard a((*s).*first);
    sleep_for(1s);
    const std::lock_guard b((*s).*second);
  };
  start("1", [take] { take(&server::lock, &server::other); });
  start("2", [take] { take(&server::other, &server::third); });
  start("3", [take] { take(&server::third, &server::lock); });
  sleep_for(2s);
}

// GoKer etcd 6708. A writer that asks for a lock to read.
void write_then_read() {
  const auto s = std::make_shared<server>();
  start("client", [s] {
    const std::lock_guard w(s->table);
    const std::shared_lock r(s->table);
  });
}

// GoKer cockroach 6181, kubernetes 58107. A reader reads again behind a waiting writer.
void read_write_read() {
  const auto s = std::make_shared<server>();
  start("reader", [s] {
    const std::shared_lock first(s->table);
    sleep_for(2s);
    const std::shared_lock second(s->table);
  });
  start("writer", [s] {
    sleep_for(1s);
    const std::lock_guard w(s->table);
  });
  sleep_for(3s);
}

// The same, with the lock where only the fibers in question reach it.
void read_write_read_below_parent() {
  shared_mutex table;
  wait_group all;
  all.add(2);
  start("reader", [&] {
    const std::shared_lock first(table);
    sleep_for(2s);
    const std::shared_lock second(table);
    all.done();
  });
  start("writer", [&] {
    sleep_for(1s);
    const std::lock_guard w(table);
    all.done();
  });
  all.wait();
}

// --- several kinds together

// GoKer moby 28462. One holds the lock and tells the monitor to stop, which wants the
// lock first.
void lock_and_channel() {
  const auto s = std::make_shared<server>();
  const auto stop = make_channel<void>();
  start("monitor", [s, stop] {
    sleep_for(1s);
    { const std::lock_guard guard(s->lock); }
    stop.recv();
  });
  start("close", [s, stop] {
    const std::lock_guard guard(s->lock);
    stop.send();
  });
  sleep_for(2s);
}

// GoKer kubernetes 10182; Tu, figure 7. The same with everything in the parent's frame.
void lock_and_channel_below_parent() {
  mutex lock;
  const auto updates = make_channel<int>();
  wait_group all;
  all.add(2);
  start("syncBatch", [&] {
    sleep_for(1s);
    const std::lock_guard guard(lock);
    updates.recv();
    all.done();
  });
  start("setPodStatus", [&] {
    const std::lock_guard guard(lock);
    updates.send(1);
    all.done();
  });
  all.wait();
}

// GoKer kubernetes 6632. The channel is a member of an object on the heap.
void lock_and_channel_on_heap() {
  const auto s = std::make_shared<server>();
  start("writeFrame", [s] {
    const std::lock_guard guard(s->lock);
    s->events.send(1);
  });
  start("monitor", [s] {
    const std::lock_guard guard(s->lock);
    s->events.recv();
  });
}

// GoKer moby 25384; Tu, figure 5. The wait stands inside the loop.
void wait_inside_loop() {
  wait_group all;
  all.add(2);
  for (int i = 0; i < 2; ++i) {
    start("plugin", [&all] { all.done(); });
    all.wait();
  }
}

// GoKer cockroach 1055. The stopper waits for tasks, one of which waits for the stopper.
void stopper_waits_for_task() {
  wait_group tasks;
  const auto stopped = make_channel<void>();
  tasks.add(1);
  start("task", [&] {
    stopped.recv();
    tasks.done();
  });
  tasks.wait();
  stopped.close();
}

// GoKer moby 30408 and 29733. A wait for a condition that nobody signals.
void condition_below_parent() {
  mutex lock;
  condition_variable ready;
  wait_group all;
  all.add(1);
  start("waiter", [&] {
    std::unique_lock guard(lock);
    ready.wait(guard);
    all.done();
  });
  all.wait();
}

// The same with the condition on the heap.
void condition_on_heap() {
  const auto s = std::make_shared<server>();
  start("waiter", [s] {
    std::unique_lock guard(s->lock);
    s->changed.wait(guard);
  });
}

// GoKer kubernetes 11298. The condition is signalled only after the channel was read.
void condition_and_channel() {
  mutex lock;
  condition_variable ready;
  const auto notify = make_channel<void>();
  start("signaller", [&] {
    notify.recv();
    ready.notify_one();
  });
  std::unique_lock guard(lock);
  ready.wait(guard);
  notify.send();
}

// A semaphore whose permits are all with a fiber that wants one more.
void semaphore_in_one_fiber() {
  start("taker", [] {
    semaphore places(1);
    places.acquire();
    places.acquire();
  });
}

// Two fibers that join each other, and the fiber that owns both.
void joins_in_ring() {
  struct {
    fiber<void> a;
    fiber<void> b;
  } both;

  both.a = spawn(fiber_options{.name = "a"}, [&both] {
    sleep_for(1s);
    both.b.join();
  });
  both.b = spawn(fiber_options{.name = "b"}, [&both] {
    sleep_for(1s);
    both.a.join();
  });
  try {
    channel<void>().recv();
  } catch (...) {
    // The run has ended: the handles may go once both have been stopped.
    const this_fiber::shield here;
    sleep_for(1s);
    throw;
  }
}

// An errgroup whose functions wait for each other.
void group_that_waits_for_itself() {
  const auto step = make_channel<int>();
  group g;
  g.go([&] {
    this_fiber::set_name("member");
    step.recv();
  });
  g.wait();
  step.send(1);
}

// --- not to be told from a wait for good reason

channel<int> global_events;

// goleak. A background fiber reads from a channel that a global variable keeps.
void channel_in_global() {
  global_events = make_channel<int>();
  start("background", [] { global_events.recv(); });
}

// Tu, 5.1.2, on time.Tick. A loop on a ticker that nobody stops any more: it does go on.
void forgotten_ticker() {
  start("ticking", [] {
    ticker t(1h);
    for (;;)
      t.channel().recv();
  });
}

const std::vector<pattern> patterns = {
    {"kubernetes 5316: send after timeout", send_after_timeout, {"worker"}},
    {"premature return", return_before_receive, {"worker"}},
    {"double send", double_send, {"worker"}},
    {"NCast", n_senders_one_receive, {"b", "c"}},
    {"range without close", range_without_close, {"consumer"}},
    {"nil channel", nil_channel, {"sender", "receiver"}},
    {"empty select", empty_select, {"idle"}},
    {"cockroach 24808: full buffer", full_buffer, {"compactor"}},
    {"etcd 6857: loop has stopped", ask_stopped_loop, {"asker"}},
    {"grpc 660: listener has gone", workers_outlive_listener, {"w1", "w2"}},
    {"moby 21233: pipeline", pipeline_without_end, {"source", "stage"}},
    {"istio 17860: select", select_among_dead_channels, {"agent"}},
    // Only a channel that is waited for is known: not the one of the requests.
    {"reply in a dead buffer", reply_in_dead_buffer, {}, {"client"}},
    {"kubernetes 38669: both ends in one", both_ends_in_one_fiber, {"cacher"}},
    {"Tu, figure 6: overwritten cancel", overwritten_cancel, {"watcher"}},
    {"grpc 862: cancel is not called", cancel_that_is_not_called, {"closer"}},
    {"cockroach 13197: rows not closed", context_below_context, {"awaitDone"}},
    {"kubernetes 25331: send without context", send_without_context, {"watch"}},
    {"cockroach 9935: double lock", double_lock, {"logger"}},
    {"cockroach 584: unlock skipped", unlock_skipped, {"gossip"}},
    // Any fiber may unlock a mutex, and memory on the heap may be anybody's.
    {"etcd 5509: holder has ended", holder_has_ended, {}, {"next"}},
    {"cockroach 10214: AB-BA", ab_ba, {"ab", "ba"}},
    {"hugo 3251: ring of locks", ring_of_locks, {"1", "2", "3"}},
    {"etcd 6708: write, then read", write_then_read, {"client"}},
    // The readers of a lock are not noted one by one, and it lies on the heap.
    {"cockroach 6181: RWR", read_write_read, {}, {"reader", "writer"}},
    {"RWR below its parent", read_write_read_below_parent, {"parent", "reader", "writer"}},
    {"moby 28462: lock and channel", lock_and_channel, {"monitor", "close"}},
    {"kubernetes 10182: lock and channel",
     lock_and_channel_below_parent,
     {"parent", "syncBatch", "setPodStatus"}},
    // An object on the heap has a handle of the channel.
    {"kubernetes 6632: on the heap", lock_and_channel_on_heap, {}, {"writeFrame", "monitor"}},
    {"moby 25384: wait inside loop", wait_inside_loop, {"parent"}},
    {"cockroach 1055: stopper", stopper_waits_for_task, {"parent", "task"}},
    {"moby 30408: condition", condition_below_parent, {"parent", "waiter"}},
    // The condition lies on the heap.
    {"moby 29733: on the heap", condition_on_heap, {}, {"waiter"}},
    {"kubernetes 11298: condition and channel", condition_and_channel, {"parent", "signaller"}},
    {"semaphore", semaphore_in_one_fiber, {"taker"}},
    {"joins in a ring", joins_in_ring, {"parent", "a", "b"}},
    {"group that waits for itself", group_that_waits_for_itself, {"parent", "member"}},
    // Everybody can reach a global variable.
    {"channel in a global variable", channel_in_global, {}, {"background"}},
    // A timer wakes it.
    {"forgotten ticker", forgotten_ticker, {}, {"ticking"}},
};

}  // namespace

// Each has a process of its own, so that nothing is left of another's stacks.
TEST_CASE("the leak of a Go program by its number" * doctest::skip()) {
  const char* const number = std::getenv("VIGIL_TEST_PATTERN");
  REQUIRE(number != nullptr);
  const pattern& p = patterns.at(static_cast<std::size_t>(std::atoi(number)));
  in_leaky_virtual([&p] {
    start_and_settle(p.run);
    sleep_for(10s);
    const inspect::stuck_report r = find_stuck();
    check_certain(r, p.certain);
    const name_set found = joined(names_of(r.certain), names_of(r.possible));
    CHECK(in_words(found) == in_words(joined(p.certain, p.possible)));
  });
}

TEST_CASE("known leaks of Go programs are found") {
  CHECK(patterns.size() >= 30);
  const std::size_t step = is_short_form() ? 4 : 1;
  for (std::size_t i = 0; i < patterns.size(); i += step) {
    const std::string number = std::to_string(i);
    const child_result child = run_child("the leak of a Go program by its number",
                                         {{"VIGIL_TEST_PATTERN", number.c_str()}});
    NOTE(patterns[i].origin);
    NOTE(child.output);
    CHECK(child.succeeded());
  }
}

}  // namespace vigil::testing_support
