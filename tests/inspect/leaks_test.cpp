#include "inspect/inspect_helpers.hpp"
#include "inspect/leaks_helpers.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/stuck_fibers.hpp"
#include "runtime/runtime_core.hpp"
#include "sched/run/running_runtimes.hpp"
#include "support/child.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/container/static_vector.hpp>

#include <unistd.h>
#if VIGIL_ASAN
#include <sanitizer/asan_interface.h>

// Freed memory stays for long in AddressSanitizer's quarantine, with the pointers in it:
// it is overwritten.
const char* __asan_default_options() {
  return "max_free_fill_size=1048576";
}
#endif

namespace vigil::testing_support {
namespace {

using namespace std::chrono_literals;

// Begins again with clean memory, which glibc asks for only once.
[[gnu::constructor]] void begin_with_clean_memory(int, char** arguments, char**) {
  if (std::getenv("GLIBC_TUNABLES") != nullptr) return;
  ::setenv("GLIBC_TUNABLES", clean_memory, 1);
  ::execv("/proc/self/exe", arguments);
}

name_set certain_now() {
  return names_of(inspect::find_stuck_fibers().certain);
}

// Makes a channel that a fiber called "reader" waits in. The caller's frames have not had
// it elsewhere.
template <class Keep>
void start_reader(Keep keep) {
  start_and_settle([keep = std::move(keep)]() mutable {
    const auto c = make_channel<int>();
    start("reader", [c] { c.recv(); });
    keep(c);
  });
}

}  // namespace

// --- nobody is called stuck who is not

TEST_CASE("a fiber is not stuck while a live fiber has the channel") {
  in_leaky_virtual([] {
    start_reader([](const channel<int>& c) {
      start("sender", [c] {
        sleep_for(1h);
        c.send(1);
      });
    });
    CHECK(certain_now().empty());
    sleep_for(2h);
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a live fiber has a reference into its frame") {
  in_leaky_virtual([] {
    start_and_settle([] {
      const auto c = make_channel<int>();
      start("sender", [&c] {
        sleep_for(1h);
        c.send(1);
      });
      c.recv();
    });
    CHECK(certain_now().empty());
    sleep_for(2h);
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a function for a timer has the channel") {
  in_leaky_virtual([] {
    start_reader([](const channel<int>& c) { after_func(1h, [c] { c.send(1); }); });
    CHECK(certain_now().empty());
    sleep_for(2h);
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while the heap or a variable has the channel") {
  static channel<int> in_variable;
  in_leaky_virtual([] {
    std::vector<std::unique_ptr<channel<int>>> on_heap;
    start_reader(
        [&](const channel<int>& c) { on_heap.push_back(std::make_unique<channel<int>>(c)); });
    start_reader([](const channel<int>& c) { in_variable = c; });
    CHECK(certain_now().empty());
    on_heap.front()->send(1);
    in_variable.send(1);
    in_variable = {};
    testing::settle();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a value in a live channel has its channel") {
  in_leaky_virtual([] {
    const auto mail = make_channel<channel<int>>(1);
    start_reader([mail](const channel<int>& c) { mail.send(c); });
    CHECK(certain_now().empty());
    (*mail.recv()).send(1);
    testing::settle();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while the result of one that has ended has its channel") {
  in_leaky_virtual([] {
    fiber<channel<int>> maker = spawn([] {
      const auto c = make_channel<int>();
      start("reader", [c] { c.recv(); });
      return c;
    });
    testing::settle();
    CHECK(certain_now().empty());
    maker.join().send(1);
    testing::settle();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a function on a side pool has the channel") {
  in_leaky_virtual([] {
    std::atomic<bool> runs{false};
    std::atomic<bool> may_go{false};
    go([&] {
      const auto c = make_channel<int>();
      start("reader", [c] { c.recv(); });
      start("caller", [c, &runs, &may_go] {
        blocking([c, &runs, &may_go] {
          runs.store(true);
          may_go.wait(false);
          c.send(1);
        });
      });
    });
    while (!runs.load())
      this_fiber::yield();
    CHECK(certain_now().empty());
    may_go.store(true);
    may_go.notify_all();
    testing::settle();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a thread has the channel") {
  in_leaky_virtual([] {
    std::atomic<bool> may_go{false};
    std::thread outside;
    start_reader([&](const channel<int>& c) {
      outside = std::thread([c, &may_go] {
        may_go.wait(false);
        c.send(1);
      });
    });
    CHECK(certain_now().empty());
    may_go.store(true);
    may_go.notify_all();
    outside.join();
    testing::settle();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck if its context, or one above it, may still be done") {
  in_leaky_virtual([] {
    cancellable kept;
    start_and_settle([&kept] {
      kept = with_cancel(background());
      const cancellable below = with_cancel(kept.ctx);
      start("below", [ctx = below.ctx] { ctx.done().recv(); });
      const cancellable timed = with_timeout(background(), 1h);
      start("timed", [ctx = timed.ctx] { channel<int>().recv(ctx); });
    });
    CHECK(certain_now().empty());
    kept.cancel();
    sleep_for(2h);
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck if its handle can be reached, which may stop it") {
  in_leaky_virtual([] {
    fiber<void> handle;
    start_and_settle([&handle] {
      handle = spawn(fiber_options{.name = "held"}, [] { channel<int>().recv(); });
    });
    CHECK(certain_now().empty());
    handle.request_stop();
    testing::settle();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck if its group can be reached, which may stop it") {
  in_leaky_virtual([] {
    group g;
    for (const char* const name : {"first", "second", "third"}) {
      g.go([name] {
        this_fiber::set_name(name);
        channel<int>().recv();
      });
    }
    testing::settle();
    CHECK(certain_now().empty());
    g.cancel();
    g.wait();
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while the holder of its lock may go on") {
  in_leaky_virtual([] {
    static mutex lock;
    start("holder", [] {
      const std::lock_guard guard(lock);
      sleep_for(1h);
    });
    testing::settle();
    start("next", [] { const std::lock_guard guard(lock); });
    testing::settle();
    CHECK(certain_now().empty());
    sleep_for(2h);
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a case of its select may become ready") {
  in_leaky_virtual([] {
    static mutex lock;
    start("holder", [] {
      const std::lock_guard guard(lock);
      sleep_for(1h);
    });
    testing::settle();
    start("locks", [] {
      const auto c = make_channel<int>();
      select(on_recv(c), on_lock(lock, [](std::unique_lock<mutex>) {}));
    });
    start("joins", [] {
      const auto c = make_channel<int>();
      auto f = spawn([] { sleep_for(1h); });
      select(on_recv(c), on_join(f));
    });
    start("takes", [] {
      const auto c = make_channel<int>();
      group_of<int> g;
      g.go([] {
        sleep_for(1h);
        return 1;
      });
      select(on_recv(c), on_next(g));
    });
    testing::settle();
    CHECK(certain_now().empty());
    sleep_for(2h);
    CHECK(names_of(inspect::find_stuck_fibers().possible).empty());
  });
}

TEST_CASE("a fiber that waits until a deadline is not stuck") {
  in_leaky_virtual([] {
    start("timed", [] { static_cast<void>(channel<int>().recv_for(1h)); });
    testing::settle();
    const inspect::stuck_report r = inspect::find_stuck_fibers();
    CHECK(r.certain.empty());
    CHECK(r.possible.empty());
  });
}

// --- and those who are, are

TEST_CASE("stuck are all that wait for stuck ones") {
  in_leaky_virtual([] {
    start_and_settle([] {
      fiber<void> inner = spawn(fiber_options{.name = "inner"}, [] { channel<int>().recv(); });
      inner.join();
    });
    check_certain(inspect::find_stuck_fibers(), {"inner", "parent"});
  });
}

TEST_CASE("a fiber is stuck if no case of its select can become ready") {
  // An old pointer to where the group lies now makes it possible only: then another group
  // is taken.
  const name_set all{"inner", "member", "parent"};
  bool is_certain = false;
  std::vector<std::unique_ptr<std::byte[]>> moves_on;  // one of each size, each time
  for (int i = 0; i < 50 && !is_certain && can_be_certain; ++i) {
    for (std::size_t size = 16; size <= 1024; size += 16)
      moves_on.push_back(std::make_unique<std::byte[]>(size));
    in_leaky_virtual([&] {
      for (int k = 0; k < i % 8; ++k)
        go([] { sleep_for(24h); });  // another stack for the next one
      start_and_settle([] {
        fiber<void> inner = spawn(fiber_options{.name = "inner"}, [] { channel<int>().recv(); });
        const auto c = make_channel<int>();
        group g;
        g.go([] {
          this_fiber::set_name("member");
          channel<int>().recv();
        });
        select(on_recv(c), on_join(inner), on_wait(g));
      });
      const name_set certain = names_of(inspect::find_stuck_fibers().certain);
      CHECK(std::includes(all.begin(), all.end(), certain.begin(), certain.end()));
      is_certain = certain == all;
    });
  }
  CHECK(is_certain == can_be_certain);
}

TEST_CASE("a fiber is stuck beside running ones of several workers") {
  inspect::install();
  real_options setup;
  setup.workers = {2, 4};
  in_runtime(setup, [] {
    const cancellable made = with_cancel(background());
    group busy(made.ctx);
    std::atomic<int> rounds_done{0};
    for (int i = 0; i < 4; ++i) {
      busy.go([&] {
        while (!made.ctx.is_done()) {
          rounds_done.fetch_add(1);
          this_fiber::yield();
        }
      });
    }
    // A reader may not have parked yet, or a worker that has run it, and runs others now,
    // keeps a pointer in an unused part of its thread's stack: then another one is taken.
    inspect::stuck_report r;
    for (int i = 0; i < 1000 && r.certain.empty(); ++i) {
      start("parent", [] {
        const auto c = make_channel<int>();
        start("reader", [c] { c.recv(); });
      });
      sleep_for(1ms);
      r = inspect::find_stuck_fibers();
      if (!can_be_certain && names_of(r.possible).contains("reader")) break;
    }
    check_certain(r, {"reader"});
    const int before = rounds_done.load();
    while (rounds_done.load() == before)
      this_fiber::yield();
    made.cancel();
  });
}

TEST_CASE("the report names the wait and the frames, and what may end a wait") {
  in_leaky_virtual([] {
    channel<int> kept;
    start_and_settle([&kept] {
      start("stuck", [] { channel<int>().recv(); });
      kept = make_channel<int>();
      start("waits", [c = kept] { c.recv(); });
    });
    const std::string text = written([](std::FILE* f) { inspect::dump_stuck_fibers(f); });
    CHECK(has(text, "vigil: fibers that can never go on"));
    CHECK(has(fiber_line(text, "stuck"), "[parked: channel receive (nil channel)"));
    CHECK(has(fiber_line(text, "waits"), "from the channel made at"));
    CHECK(has(text, "    at vigil::"));
    if (!VIGIL_TSAN) {
      CHECK(has(text, "(may go on: what it waits for can be reached from "));
    } else {
      CHECK(has(text, "none is certain: this build has ThreadSanitizer"));
    }
  });
}

TEST_CASE("check_no_leaks throws exactly if a fiber can never go on") {
  in_leaky_virtual([] {
    start("ends", [] { sleep_for(0s); });
    CHECK_NOTHROW(testing::check_no_leaks());
    start_and_settle([] { start("leaks", [] { channel<int>().recv(); }); });
    if (!can_be_certain) return;
    INFO(written([](std::FILE* f) { inspect::dump_stuck_fibers(f); }));
    CHECK_THROWS_AS(testing::check_no_leaks(), testing::leak);
    try {
      testing::check_no_leaks();
    } catch (const testing::leak& e) {
      CHECK(has(fiber_line(e.what(), "leaks"), "channel receive (nil channel)"));
    }
  });
}

TEST_CASE("check_no_leaks fails on possible leaks if asked to") {
  in_leaky_virtual([] {
    const auto kept = make_channel<int>();
    start("waits", [kept] { kept.recv(); });
    CHECK_NOTHROW(testing::check_no_leaks());
    CHECK_THROWS_AS(testing::check_no_leaks({.possible = true}), testing::leak);
    kept.send(1);
    CHECK_NOTHROW(testing::check_no_leaks({.possible = true}));
  });
}

TEST_CASE("on real time check_no_leaks waits for fibers that are about to end") {
  inspect::install();
  in_runtime({}, [] {
    const auto kept = make_channel<int>();
    start("waits", [kept] { kept.recv(); });
    start("sends", [kept] {
      sleep_for(20ms);
      kept.send(1);
    });
    CHECK_NOTHROW(testing::check_no_leaks({.possible = true, .patience = 1min}));
  });
}

TEST_CASE("a plain thread may look") {
  inspect::install();
  const inspect::stuck_report r = inspect::find_stuck_fibers();
  CHECK(r.certain.empty());
  CHECK(r.possible.empty());
  CHECK_NOTHROW(testing::check_no_leaks());
}

// install() holds for the process, so this has one of its own.
TEST_CASE("without install a thread beside the caller's hides what is certain" * doctest::skip()) {
  in_virtual([] {
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    check_certain(inspect::find_stuck_fibers(), {"stuck"});
    std::atomic<bool> may_go{false};
    std::thread outside([&may_go] { may_go.wait(false); });
    const inspect::stuck_report r = inspect::find_stuck_fibers();
    CHECK(r.certain.empty());
    CHECK(in_words(names_of(r.possible)) == "stuck");
    if (can_be_certain) CHECK(has(r.why_none_certain, "install() was not called"));
    may_go.store(true);
    may_go.notify_all();
    outside.join();
  });
}

TEST_CASE("install is needed only beside other threads") {
  const child_result child =
      run_child("without install a thread beside the caller's hides what is certain");
  INFO(child.output);
  CHECK(child.succeeded());
}

TEST_CASE("the fibers of a runtime that looks at the others are no leaks") {
  inspect::install();
  runtime observer = detail::make_observer({});
  const auto is_over = make_channel<void>();
  std::thread outside([&] {
    observer.run([&is_over] {
      this_fiber::set_name("observer");
      is_over.recv();
    });
  });
  const auto its_line = [] {
    return fiber_line(written([](std::FILE* f) { inspect::dump(f); }), "observer");
  };
  while (!has(its_line(), "[parked: channel receive"))
    std::this_thread::sleep_for(1ms);  // only a pause between two looks
  const inspect::stuck_report r = inspect::find_stuck_fibers();
  CHECK(in_words(names_of(r.certain)) == "");
  CHECK(in_words(names_of(r.possible)) == "");
  is_over.close();
  outside.join();
}

// --- the threads of the process

TEST_CASE("a thread that blocks the signal hides what is certain") {
  in_leaky_virtual([] {
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    std::atomic<bool> has_begun{false};
    std::atomic<bool> may_go{false};
    std::thread deaf([&] {
      sigset_t all;
      sigfillset(&all);
      ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
      has_begun.store(true);
      has_begun.notify_all();
      may_go.wait(false);
    });
    has_begun.wait(false);
    const inspect::stuck_report r = inspect::find_stuck_fibers();
    CHECK(r.certain.empty());
    CHECK(in_words(names_of(r.possible)) == "stuck");
    if (can_be_certain) CHECK(has(r.why_none_certain, "a thread blocks the signal"));
    may_go.store(true);
    may_go.notify_all();
    deaf.join();
    check_certain(inspect::find_stuck_fibers(), {"stuck"});
  });
}

TEST_CASE("a thread that starts or ends, and blocks signals meanwhile, hides nothing") {
  in_leaky_virtual([] {
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    std::atomic<bool> is_over{false};
    std::thread starter([&is_over] {
      while (!is_over.load())
        std::thread([] {}).join();
    });
    for (int look = 0; look < rounds(50); ++look)
      check_certain(inspect::find_stuck_fibers(), {"stuck"});
    is_over.store(true);
    starter.join();
  });
}

TEST_CASE("a thread of the library's own hides nothing") {
  in_leaky_virtual([] {
    start_and_settle([] { start("stuck", [] { channel<int>().recv(); }); });
    struct two_flags {
      std::atomic<bool> has_begun{false};
      std::atomic<bool> may_go{false};
    };
    const auto shared = std::make_shared<two_flags>();
    detail::start_own_thread([shared] {
      shared->has_begun.store(true);
      shared->has_begun.notify_all();
      shared->may_go.wait(false);
    });
    shared->has_begun.wait(false);
    check_certain(inspect::find_stuck_fibers(), {"stuck"});
    shared->may_go.store(true);
    shared->may_go.notify_all();
  });
}

// --- what is called certain stays so

namespace {

// Not on the heap, where all handles count as reachable.
using channel_list = boost::container::static_vector<channel<int>, 24>;

// Fibers by their numbers and the counts of their runs.
using fiber_set = std::set<std::pair<std::uint64_t, std::uint32_t>>;

struct stuck_look {
  fiber_set certain;
  fiber_set waiting;  // all that wait without a deadline
};

stuck_look look_now() {
  const detail::handler_scope inside;
  const detail::slab_hold hold;
  const detail::stuck_list found = detail::find_stuck_fibers();
  stuck_look look;
  for (const detail::waiting_fiber& f : found.fibers) {
    look.waiting.emplace(f.id, f.runs);
    const bool is_certain = found.why_not == nullptr && f.way == detail::open_way::none;
    if (is_certain) look.certain.emplace(f.id, f.runs);
  }
  return look;
}

// A fiber that has some of the channels, and uses them in a random order for some time,
// then keeps them or not.
void wander(seeded& dice, channel_list mine, int depth) {
  for (int step = 0; step < 6 && !mine.empty(); ++step) {
    const auto size = static_cast<std::uint32_t>(mine.size());
    const channel<int> c = mine[dice.below(size)];
    switch (dice.below(8)) {
      case 0:
      case 1:
        c.send(1);
        break;
      case 2:
      case 3:
        c.recv();
        break;
      case 4:
        select(on_recv(c), on_send(mine[dice.below(size)], 1));
        break;
      case 5:
        sleep_for(std::chrono::milliseconds(dice.below(50)));
        break;
      case 6:
        if (size > 1) mine.erase(mine.begin() + dice.below(size));
        break;
      default:
        if (depth == 0) break;
        {
          channel_list theirs;
          for (const auto& one : mine) {
            if (dice.below(2) == 0) theirs.push_back(one);
          }
          theirs.push_back(make_channel<int>(dice.below(2)));
          if (dice.below(2) == 0) mine.push_back(theirs.back());
          go([&dice, theirs, depth] { wander(dice, theirs, depth - 1); });
        }
        break;
    }
  }
}

}  // namespace

TEST_CASE("a fiber that is certain never goes on in random programs") {
  inspect::install();
  std::size_t found = 0;
  const auto seeds = static_cast<std::uint64_t>(rounds(VIGIL_ASAN ? 4 : 40));
  for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
    testing::virtual_options o;
    o.seed = seed;
    in_virtual(o, [&] {
      seeded dice(seed);
      fiber_set certain;
      go([&dice] {
        channel_list all;
        for (int i = 0; i < 5; ++i)
          all.push_back(make_channel<int>(dice.below(2)));
        for (int i = 0; i < 6; ++i) {
          channel_list some;
          for (const auto& c : all) {
            if (dice.below(2) == 0) some.push_back(c);
          }
          go([&dice, some] { wander(dice, some, 2); });
        }
      });
      for (int look = 0; look < 12; ++look) {
        sleep_for(std::chrono::milliseconds(10));
        const stuck_look now = look_now();
        // Words that are left over may hide one later, but none has gone on.
        CHECK(
            std::includes(now.waiting.begin(), now.waiting.end(), certain.begin(), certain.end()));
        certain.insert(now.certain.begin(), now.certain.end());
      }
      found += certain.size();
    });
  }
  MESSAGE("certain: ", found);
  if (can_be_certain) CHECK(found > 0);
}

}  // namespace vigil::testing_support
