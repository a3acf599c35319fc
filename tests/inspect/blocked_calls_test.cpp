// Threads in calls that a signal would end: they are read as they are, and go on. Built
// several times, with frame pointers and without (meson.build).
#include "core/machine/sanitizer.hpp"
#include "inspect/inspect_helpers.hpp"
#include "support/child.hpp"
#include "support/note.hpp"

#include <vigil/vigil.hpp>

#include <array>
#include <atomic>
#include <ctime>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace vigil::testing_support;

namespace blocked {
namespace {

constexpr int long_enough = 3600;  // in seconds; ended by end_of()

// The event that the calls wait for.
struct awaited_event {
  awaited_event() {
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    REQUIRE(::sem_init(&semaphore, 0, 0) == 0);
    const timeval limit{.tv_sec = long_enough, .tv_usec = 0};
    ::setsockopt(ends[0], SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  }

  ~awaited_event() {
    ::close(ends[0]);
    ::close(ends[1]);
    ::sem_destroy(&semaphore);
  }

  awaited_event(const awaited_event&) = delete;
  awaited_event& operator=(const awaited_event&) = delete;

  void come() {
    REQUIRE(::write(ends[1], "b", 1) == 1);
    ::sem_post(&semaphore);
  }

  int ends[2] = {-1, -1};
  sem_t semaphore;
  int naps = 0;  // how long those sleep that nothing ends, in seconds
};

// Each with a frame of its own, and no call in its tail.
[[gnu::noinline]] long in_poll(awaited_event& e) {
  pollfd p{.fd = e.ends[0], .events = POLLIN, .revents = 0};
  const volatile long r = ::poll(&p, 1, long_enough * 1000);
  return r;
}

[[gnu::noinline]] long in_select(awaited_event& e) {
  fd_set set;
  FD_ZERO(&set);
  FD_SET(e.ends[0], &set);
  timeval limit{.tv_sec = long_enough, .tv_usec = 0};
  const volatile long r = ::select(e.ends[0] + 1, &set, nullptr, nullptr, &limit);
  return r;
}

[[gnu::noinline]] long in_epoll_wait(awaited_event& e) {
  const int fd = ::epoll_create1(EPOLL_CLOEXEC);
  epoll_event event{.events = EPOLLIN, .data = {}};
  ::epoll_ctl(fd, EPOLL_CTL_ADD, e.ends[0], &event);
  const volatile long r = ::epoll_wait(fd, &event, 1, long_enough * 1000);
  ::close(fd);
  return r;
}

[[gnu::noinline]] long in_usleep(awaited_event& e) {
  const volatile long r = ::usleep(static_cast<useconds_t>(e.naps) * 1'000'000);
  return r;
}

[[gnu::noinline]] long in_sleep(awaited_event& e) {
  const volatile long r = ::sleep(static_cast<unsigned>(e.naps));
  return r;
}

[[gnu::noinline]] long in_sem_timedwait(awaited_event& e) {
  timespec until{};
  ::clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += long_enough;
  const volatile long r = ::sem_timedwait(&e.semaphore, &until);
  return r;
}

[[gnu::noinline]] long in_recv(awaited_event& e) {
  char byte = 0;
  const volatile long r = ::recv(e.ends[0], &byte, 1, 0);
  return r;
}

[[gnu::noinline]] long in_read(awaited_event& e) {
  char byte = 0;
  const volatile long r = ::read(e.ends[0], &byte, 1);
  return r;
}

[[gnu::noinline]] long in_sem_wait(awaited_event& e) {
  const volatile long r = ::sem_wait(&e.semaphore);
  return r;
}

struct call {
  const char* name;
  long (*make)(awaited_event&);
  long number;  // the kernel's
  long result;
};

constexpr call calls[] = {{"in_poll", in_poll, SYS_poll, 1},
                          {"in_select", in_select, SYS_pselect6, 1},
                          {"in_epoll_wait", in_epoll_wait, SYS_epoll_wait, 1},
                          {"in_usleep", in_usleep, SYS_clock_nanosleep, 0},
                          {"in_sleep", in_sleep, SYS_clock_nanosleep, 0},
                          {"in_sem_timedwait", in_sem_timedwait, SYS_futex, 0},
                          {"in_recv", in_recv, SYS_recvfrom, 1},
                          {"in_read", in_read, SYS_read, 1},
                          {"in_sem_wait", in_sem_wait, SYS_futex, 0}};

std::string first_line(int thread, const char* file) {
  std::ifstream in("/proc/self/task/" + std::to_string(thread) + file);
  std::string line;
  std::getline(in, line);
  return line;
}

// One call under way.
struct running_call {
  const call* what = nullptr;
  awaited_event event;
  std::atomic<int> thread{0};
  std::atomic<bool> has_ended{false};
  long result = -2;

  void operator()() {
    thread.store(::gettid());
    result = what->make(event);
    has_ended.store(true);
  }

  void wait_until_it_waits() const {
    const std::string number = std::to_string(what->number) + " ";
    while (!has_ended.load() && !first_line(thread.load(), "/syscall").starts_with(number))
      std::this_thread::yield();
  }
};

bool proc_tells() {
  return !first_line(::gettid(), "/syscall").empty();
}

// A dump while all nine calls are under way; empty if one had ended by then.
std::string dump_in_calls(bool on_pool, int naps) {
  std::array<running_call, std::size(calls)> all;
  std::string text;
  bool was_in_time = true;
  vigil::options many;
  many.workers = std::size(calls) + 1;
  vigil::run(many, [&] {
    vigil::blocking_pool pool({.threads = std::size(calls), .name = "calls"});
    std::vector<vigil::fiber<void>> fibers;
    for (std::size_t i = 0; i < all.size(); ++i) {
      running_call& c = all[i];
      c.what = &calls[i];
      c.event.naps = naps;
      fibers.push_back(vigil::spawn(vigil::fiber_options{.name = c.what->name}, [&] {
        if (on_pool) {
          vigil::blocking(pool, [&c] { c(); });
        } else {
          c();
        }
      }));
    }
    vigil::blocking([&] {
      for (const running_call& c : all)
        c.wait_until_it_waits();
      // A function may run before its caller has parked. Main waits for one as well.
      const std::size_t callers = on_pool ? all.size() + 1 : 0;
      do {
        text = inspected();
      } while (count_of(text, ": blocking: a function on a side pool (on thread") < callers);
      for (running_call& c : all) {
        was_in_time = was_in_time && !c.has_ended.load();
        c.event.come();
      }
    });
    for (auto& f : fibers)
      f.join();
  });
  for (const running_call& c : all) {
    NOTE(c.what->name);
    CHECK(c.result == c.what->result);
  }
  return was_in_time ? text : "";
}

void check_calls(bool on_pool) {
  if (!proc_tells()) {
    MESSAGE("skipped: /proc does not show the system calls of threads");
    return;
  }
  vigil::inspect::install();
  std::string text;
  // A busy machine may take longer for the dump than two calls sleep.
  for (int naps = 1; text.empty() && naps <= 16; naps *= 2)
    text = dump_in_calls(on_pool, naps);
  NOTE(text);
  for (const call& c : calls)
    CHECK(count_of(text, std::string("::") + c.name + "(") == 1);
  CHECK_FALSE(has(text, "more frames above"));
  CHECK_FALSE(has(text, "has moved on"));
  CHECK_FALSE(has(text, "asked by a signal"));
}

}  // namespace
}  // namespace blocked

#if defined(__x86_64__)
TEST_SUITE("blocked calls") {
  TEST_CASE("fibers in nine blocking calls are shown whole, and no call ends" *
            doctest::skip(VIGIL_TSAN || VIGIL_ASAN)) {
    blocked::check_calls(false);
  }

  TEST_CASE("functions on a side pool in nine blocking calls are shown whole as well" *
            doctest::skip(VIGIL_TSAN || VIGIL_ASAN)) {
    blocked::check_calls(true);
  }

  TEST_CASE("child: /proc is shut" * doctest::skip()) {
    constexpr unsigned nobody = 65534;
    if (::getuid() == 0) REQUIRE(::setresuid(nobody, nobody, nobody) == 0);
    ::prctl(PR_SET_DUMPABLE, 0);
    if (blocked::proc_tells()) return;
    vigil::inspect::install();
    std::atomic<bool> stop{false};
    std::atomic<bool> spins{false};
    std::string text;
    std::string json;
    vigil::options two;
    two.workers = 2;
    vigil::run(two, [&] {
      auto f = vigil::spawn(vigil::fiber_options{.name = "spins"}, [&] {
        spins.store(true);
        while (!stop.load()) {
        }
      });
      vigil::blocking([&] {
        while (!spins.load())
          std::this_thread::yield();
        text = inspected();
        json = written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = true}); });
      });
      stop.store(true);
      f.join();
    });
    NOTE(text);
    CHECK(has(text, "(running threads were asked by a signal, as /proc does not show"));
    CHECK(has(json, R"("may_have_ended_calls":true)"));
  }

  TEST_CASE("where /proc is shut a signal asks, and the dump says so" *
            doctest::skip(VIGIL_TSAN || VIGIL_ASAN)) {
    const child_result r = run_child("child: /proc is shut");
    NOTE(r.output);
    CHECK(r.succeeded());
  }
}
#endif
