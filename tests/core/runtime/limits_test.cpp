// Bad input and machines that refuse: each gives a clear error, and the program goes on.
#include "core/machine/sanitizer.hpp"
#include "core/runtime/runtime_test.hpp"
#include "support/memory.hpp"
#include "support/note.hpp"

#include <cstdio>
#include <cstring>
#include <new>
#include <system_error>

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

using namespace vigil::testing_support;

namespace {

// Sanitizers reserve terabytes and cannot live under a limit.
constexpr bool limits_work = !VIGIL_ASAN && !VIGIL_TSAN;

std::size_t status_bytes(const char* key) {
  std::size_t kib = 0;
  if (std::FILE* const f = std::fopen("/proc/self/status", "r")) {
    char line[256];
    while (std::fgets(line, sizeof line, f) != nullptr) {
      if (std::strncmp(line, key, std::strlen(key)) == 0) {
        kib = std::strtoull(line + std::strlen(key), nullptr, 10);
      }
    }
    std::fclose(f);
  }
  return kib * 1024;
}

void limit(int resource, std::size_t bytes) {
  rlimit to{};
  REQUIRE(::getrlimit(static_cast<__rlimit_resource>(resource), &to) == 0);
  to.rlim_cur = bytes;
  REQUIRE(::setrlimit(static_cast<__rlimit_resource>(resource), &to) == 0);
}

// Checks that timers and fibers still work.
void check_all_is_well() {
  std::atomic<bool> ran{false};
  const auto t = vigil::after_func(1ms, [&ran] { ran = true; });
  const auto start = vigil::clock::now();
  while (!ran)
    vigil::sleep_for(1ms);
  CHECK(vigil::clock::now() - start >= 1ms);
}

template <class Error, class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_SUITE("limits") {
  TEST_CASE("options out of range are refused with the range") {
    const auto refusal = [](auto change) {
      vigil::options o;
      change(o);
      return message_of<std::invalid_argument>([&] { vigil::runtime rt(o); });
    };
    CHECK(contains(refusal([](auto& o) { o.stack_size = 0; }), "16 KiB"));
    CHECK(contains(refusal([](auto& o) { o.stack_size = 4096; }), "options::stack_size is 4096"));
    CHECK(contains(refusal([](auto& o) { o.stack_size = SIZE_MAX; }), "1 GiB"));
    CHECK(contains(refusal([](auto& o) { o.main_stack_size = 0; }), "main_stack_size"));
    CHECK(contains(refusal([](auto& o) { o.workers = 1025; }), "at most 1024"));
    vigil::options o;
    o.stop_on = {SIGKILL};
    CHECK(contains(message_of<std::invalid_argument>([&] { vigil::run(o, [] {}); }), "SIGKILL"));
    o.stop_on = {4711};
    CHECK(contains(message_of<std::invalid_argument>([&] { vigil::run(o, [] {}); }), "4711"));
  }

  TEST_CASE("a bad stack size of one fiber is refused, and the program goes on") {
    in_runtime({}, [] {
      for (const std::size_t size : {std::size_t{1}, std::size_t{4096}, SIZE_MAX}) {
        CHECK_THROWS_AS(
            vigil::spawn(vigil::fiber_options{.stack_size = size, .name = {}}, [] {}).join(),
            std::invalid_argument);
      }
      struct big {
        char room[100 * 1024];
      };
      CHECK(contains(message_of<std::invalid_argument>([] { vigil::go([b = big{}] { (void)b; }); }),
                     "fiber_options::stack_size"));
      check_all_is_well();
    });
  }

  TEST_CASE("max_fibers and max_stack_bytes are kept, and name themselves") {
    vigil::options o;
    o.max_fibers = 10;
    in_runtime({.workers = {1, 2}, .settings = o}, [] {
      std::vector<vigil::fiber<>> all;
      const std::string text = message_of<vigil::limit_reached>([&] {
        for (;;)
          all.push_back(vigil::spawn([] { vigil::sleep_for(1h); }));
      });
      CHECK(all.size() == 9);  // including the main fiber
      CHECK(contains(text, "options::max_fibers (10)"));
      all.pop_back();
      vigil::spawn([] {}).join();
    });
    o = {};
    o.max_stack_bytes = 2 * 1024 * 1024;
    in_runtime({.workers = {1, 2}, .settings = o}, [] {
      std::vector<vigil::fiber<>> all;
      const std::string text = message_of<vigil::limit_reached>([&] {
        for (;;)
          all.push_back(vigil::spawn([] { vigil::sleep_for(1h); }));
      });
      CHECK(contains(text, "options::max_stack_bytes"));
      all.clear();
      vigil::spawn([] {}).join();
      check_all_is_well();
    });
  }

  TEST_CASE("a fiber that was joined counts no more against the limits") {
    vigil::options o;
    o.max_fibers = 2;
    // The stacks of the main fiber, the timer fiber, the reserved runner, and one more.
    o.max_stack_bytes = o.main_stack_size + 3 * o.stack_size;
    in_runtime({.workers = {1, 2}, .settings = o}, [] {
      for (int i = 0; i < rounds(20'000); ++i)
        vigil::spawn([] {}).join();
    });
  }

  TEST_CASE("max_fibers counts no callbacks: fibers that wait for one which waits itself go on") {
    vigil::options o;
    o.max_fibers = 2;
    in_runtime({.workers = {1, 2}, .settings = o}, [] {
      const auto first = vigil::make_channel<int>();
      const auto second = vigil::make_channel<int>();
      vigil::after_func(1ms, [=] { first.send(*second.recv()); });
      vigil::after_func(2ms, [=] { second.send(7); });
      auto f = vigil::spawn([=] { return *first.recv(); });
      CHECK(f.join() == 7);
    });
  }

  TEST_CASE("child: no worker thread" * doctest::skip()) {
    vigil::options o;
    o.workers = 64;
    vigil::runtime rt(o);
    limit(RLIMIT_AS, status_bytes("VmSize:") + 40 * 1024 * 1024);
    const std::string text =
        message_of<std::system_error>([&] { rt.run([] { std::puts("ran"); }); });
    std::puts(text.c_str());
    limit(RLIMIT_AS, RLIM_INFINITY);
  }

  TEST_CASE("a worker thread that cannot be started is a clear error, and nothing has run") {
    if (!limits_work) return;
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    const child_result r = run_child("child: no worker thread");
    CHECK(r.succeeded());
    CHECK(r.says("cannot be started"));
    CHECK(r.says("options::workers"));
    CHECK(!r.says("ran\n"));
  }

  TEST_CASE("child: stopped before a run that cannot begin" * doctest::skip()) {
    vigil::options o;
    o.workers = 64;
    vigil::runtime rt(o);
    rt.request_stop();
    limit(RLIMIT_AS, status_bytes("VmSize:") + 40 * 1024 * 1024);
    CHECK_THROWS_AS(rt.run([] { std::puts("ran"); }), std::system_error);
    limit(RLIMIT_AS, RLIM_INFINITY);
    rt.run([] {
      std::puts("begun");
      vigil::sleep_for(1h);
      std::puts("slept");
    });
  }

  TEST_CASE("a stop asked for before a run that cannot begin is kept for the one after") {
    if (!limits_work) return;
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    const child_result r = run_child("child: stopped before a run that cannot begin");
    CHECK(r.succeeded());
    CHECK(!r.says("ran\n"));
    CHECK(r.says("begun"));
    CHECK(!r.says("slept"));
  }

  TEST_CASE("child: no memory for a stack" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      // Allocates the timer records that are needed while there is memory.
      check_all_is_well();
      for (int i = 0; i < 4000; ++i)
        vigil::go([] { vigil::sleep_for(5ms); });
      vigil::sleep_for(10ms);
      std::vector<vigil::fiber<>> all;
      all.reserve(100'000);
      limit(RLIMIT_AS, status_bytes("VmSize:") + 256 * 1024 * 1024);
      const std::string text = message_of<std::system_error>([&] {
        for (;;)
          all.push_back(vigil::spawn([] { vigil::sleep_for(1h); }));
      });
      std::printf("%zu fibers, then: %s\n", all.size(), text.c_str());
      check_all_is_well();
      all.clear();
      vigil::spawn([] {}).join();
      std::puts("well");
    });
  }

  TEST_CASE("no memory for a stack is a clear error, and the rest goes on") {
    if (!limits_work) return;
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    const child_result r = run_child("child: no memory for a stack");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(r.says("RLIMIT_AS"));
    CHECK(r.says("well"));
  }

  TEST_CASE("child: the limit of the mprotect fallback" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      std::vector<vigil::fiber<>> all;
      all.reserve(100'000);
      const std::string text = message_of<std::system_error>([&] {
        for (;;)
          all.push_back(vigil::spawn([] { vigil::sleep_for(1h); }));
      });
      std::printf("%s fibers, then: %s\n", all.size() > 20'000 ? "many" : "few", text.c_str());
      check_all_is_well();
      all.clear();
      vigil::spawn([] {}).join();
      std::puts("well");
    });
  }

  TEST_CASE("the mprotect fallback names vm.max_map_count at its limit, and the rest goes on") {
    if (!limits_work) return;
    if (most_mappings() > reachable_mappings) {
      MESSAGE("skipped: vm.max_map_count is too high here to be reached");
      return;
    }
    const child_result r =
        run_child("child: the limit of the mprotect fallback", {{"VIGIL_STACK_GUARD", "mprotect"}});
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(r.says("many fibers"));
    CHECK(r.says("vm.max_map_count"));
    CHECK(r.says("well"));
  }

  TEST_CASE("child: under mlockall" * doctest::skip()) {
    if (::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
      std::puts("skipped: mlockall is not allowed here");
      return;
    }
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      std::vector<vigil::fiber<>> all;
      for (int i = 0; i < 200; ++i)
        all.push_back(vigil::spawn([] { vigil::sleep_for(5ms); }));
      for (auto& f : all)
        f.join();
      check_all_is_well();
      std::puts("well");
    });
  }

  TEST_CASE("fibers work in a process that locks its memory") {
    if (!limits_work) return;
    const child_result r = run_child("child: under mlockall");
    NOTE(r.output);
    CHECK(r.succeeded());
    if (const std::string why = r.skipped(); !why.empty()) {
      MESSAGE(why);
      return;
    }
    CHECK(r.says("well"));
  }

  TEST_CASE("child: no memory for the heap" * doctest::skip()) {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      check_all_is_well();
      // Makes the records first and stops them at once, so that the heap stays small.
      std::vector<vigil::timer> timers;
      constexpr std::size_t n = 400'000;
      timers.reserve(n);
      for (std::size_t i = 0; i < n; ++i) {
        timers.push_back(vigil::after_func(1h, [] {}));
        timers.back().stop();
      }
      limit(RLIMIT_DATA, status_bytes("VmData:") + 1024 * 1024);
      std::atomic<int> ticks{0};
      const auto beat = vigil::every(1ms, [&ticks] { ++ticks; });
      std::size_t armed = 0;
      bool refused = false;
      bool first_is_idle = true;
      std::string text;
      try {
        for (auto& t : timers) {
          t.reset(1h);
          ++armed;
        }
      } catch (const std::bad_alloc& e) {
        refused = true;
        text = e.what();
        first_is_idle = timers[armed].deadline() == vigil::clock::time_point::max();
      }
      std::printf("refused %d idle %d some %d\n", refused, first_is_idle, armed > 1000);
      std::puts(text.c_str());
      // This fiber has no room for a deadline either; the timers of others fire.
      const int before = ticks;
      while (ticks < before + 3)
        vigil::this_fiber::yield();
      std::size_t stopped = 0;
      for (auto& t : timers)
        stopped += t.stop() ? 1 : 0;
      check_all_is_well();  // there is room again
      std::printf("stopped what was armed: %d\n", stopped == armed);
      std::puts("well");
    });
  }

  // Go: TestIssue5745.
  TEST_CASE("no memory for the heap: bad_alloc, nothing is armed, the other timers still fire") {
    if (!limits_work) return;
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    const child_result r = run_child("child: no memory for the heap");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(r.says("refused 1 idle 1 some 1"));
    CHECK(r.says("no memory for another pending timer"));
    CHECK(r.says("stopped what was armed: 1"));
    CHECK(r.says("well"));
  }

  TEST_CASE("child: no memory for the grace period" * doctest::skip()) {
    ::alarm(300);
    vigil::options o;
    o.workers = 1;
    o.grace = 1h;
    std::vector<vigil::timer> timers;
    constexpr std::size_t n = 400'000;
    timers.reserve(n);
    vigil::run(o, [&timers] {
      vigil::spawn([] {}).join();
      vigil::go([] { vigil::make_channel<int>().recv(); });
      for (std::size_t i = 0; i < n; ++i) {
        timers.push_back(vigil::after_func(1h, [] {}));
        timers.back().stop();
      }
      limit(RLIMIT_DATA, status_bytes("VmData:") + 1024 * 1024);
      try {
        for (auto& t : timers)
          t.reset(1h);
      } catch (const std::bad_alloc&) {
        std::puts("refused");
      }
    });
    std::puts("ended");
  }

  TEST_CASE("no memory for the grace period: the run ends without one") {
    if (!limits_work) return;
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    const child_result r = run_child("child: no memory for the grace period");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(r.says("refused"));
    CHECK(r.says("ended"));
  }
}
