#include "core/runtime/runtime_core.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "inspect/inspect_helpers.hpp"
#include "inspect/leaks_helpers.hpp"
#include "inspect/own_thread.hpp"
#include "inspect/stuck_fibers.hpp"
#include "support/child.hpp"
#include "support/note.hpp"

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
  return names_of(find_stuck().certain);
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

TEST_CASE("channels of stuck fibers that were made in one line have numbers") {
  in_leaky_virtual([] {
    for (int i = 0; i < 2; ++i)
      start_reader([](const auto&) {});
    for (int i = 0; i < 2; ++i) {  // the first search leaves nothing for the second
      const inspect::stuck_report r = find_stuck();
      NOTE(r.text);
      // A word that an earlier test has left may point to one of the channels.
      const auto may_go_on =
          std::count_if(r.possible.begin(), r.possible.end(), [](const inspect::stuck_fiber& f) {
            return f.name == "reader";
          });
      CHECK(r.certain.size() + static_cast<std::size_t>(may_go_on) == 2);
      CHECK(has(r.text, " #1, for "));
      CHECK(has(r.text, " #2, for "));
    }
  });
}

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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a function for a timer has the channel") {
  in_leaky_virtual([] {
    start_reader([](const channel<int>& c) { after_func(1h, [c] { c.send(1); }); });
    CHECK(certain_now().empty());
    sleep_for(2h);
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
  });
}

TEST_CASE("a fiber is not stuck while a value in a live channel has its channel") {
  in_leaky_virtual([] {
    const auto mail = make_channel<channel<int>>(1);
    start_reader([mail](const channel<int>& c) { mail.send(c); });
    CHECK(certain_now().empty());
    (*mail.recv()).send(1);
    testing::settle();
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
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
    CHECK(names_of(find_stuck().possible).empty());
  });
}

TEST_CASE("a fiber that waits until a deadline is not stuck") {
  in_leaky_virtual([] {
    start("timed", [] { static_cast<void>(channel<int>().recv_for(1h)); });
    testing::settle();
    const inspect::stuck_report r = find_stuck();
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
    check_certain(find_stuck(), {"inner", "parent"});
  });
}

TEST_CASE("a fiber is stuck if no case of its select can become ready") {
  // An old pointer to where the group lies now makes it possible only: then another group
  // is taken.
  const name_set all{"inner", "member", "parent"};
  bool is_certain = false;
  std::vector<std::unique_ptr<std::byte[]>> moves_on;  // one of each size, each time
  for (int i = 0; i < 50 && !is_certain && can_be_certain; ++i) {
    in_leaky_virtual([&] {
      for (std::size_t size = 16; size <= 1024; size += 16)
        moves_on.push_back(std::make_unique<std::byte[]>(size));
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
      const name_set certain = names_of(find_stuck().certain);
      CHECK(std::includes(all.begin(), all.end(), certain.begin(), certain.end()));
      is_certain = certain == all;
    });
  }
  CHECK(is_certain == can_be_certain);
}

TEST_CASE("the report names the wait and the frames, and what may end a wait") {
  in_leaky_virtual([] {
    channel<int> kept;
    start_and_settle([&kept] {
      start("stuck", [] { channel<int>().recv(); });
      kept = make_channel<int>();
      start("waits", [c = kept] { c.recv(); });
    });
    std::string text;
    do {
      text = written([](std::FILE* f) { inspect::dump_stuck_fibers(f); });
    } while (!VIGIL_TSAN && has(text, "none is certain"));
    CHECK(has(text, "vigil: fibers that can never go on"));
    CHECK(has(fiber_line(text, "stuck"), "[parked: channel receive (nil channel)"));
    CHECK(has(fiber_line(text, "waits"), "from the channel made at"));
    CHECK(has(text, " functions of vigil"));
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
    NOTE(written([](std::FILE* f) { inspect::dump_stuck_fibers(f); }));
    const testing::leak_options long_patience{.patience = 1h};
    CHECK_THROWS_AS(testing::check_no_leaks(long_patience), testing::leak);
    try {
      testing::check_no_leaks(long_patience);
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

}  // namespace vigil::testing_support
