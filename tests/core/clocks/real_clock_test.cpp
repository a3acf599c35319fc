// Other clocks in real time: the kernel's clocks, and the thread that hears of steps.
//
// VIGIL_MAY_SET_CLOCK=1 lets a test step the machine's wall clock by a millisecond, and
// back; it needs CAP_SYS_TIME as well.
#include "core/clocks/clock_hub.hpp"
#include "core/clocks/clocks_test.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "support/hidden_deadlock.hpp"
#include "support/thread_count.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <system_error>
#include <thread>

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/timex.h>
#include <unistd.h>

namespace {

using namespace vigil::testing_support;
using vigil::detail::clock_hub;
using vigil::detail::clock_kind;
using wall_timer = vigil::wall::timer;

clock_hub& own_hub() {
  return *clock_hub::of(*vigil::detail::require_fiber("a test").sched);
}

// As if the clock had been set: the thread is told of it as the kernel tells it.
void pretend_step(nanoseconds by) {
  own_hub().shift(clock_kind::wall, by.count());
  own_hub().listener().pretend_step();
}

// The threads of the process that hear of steps.
int listeners() {
  int n = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  REQUIRE(tasks != nullptr);
  while (const dirent* const entry = ::readdir(tasks)) {
    const std::string comm = std::string("/proc/self/task/") + entry->d_name + "/comm";
    char name[32] = "";
    const int file = ::open(comm.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) continue;
    if (::read(file, name, sizeof name - 1) > 0 && std::strcmp(name, "vigil/clocks\n") == 0) ++n;
    ::close(file);
  }
  ::closedir(tasks);
  return n;
}

template <class Condition>
void wait_until(Condition is_so) {
  while (!is_so())
    vigil::sleep_for(1ms);
}

bool may_set_clock() {
  const char* const wish = std::getenv("VIGIL_MAY_SET_CLOCK");
  if (wish == nullptr || std::strcmp(wish, "1") != 0) return false;
  std::FILE* const status = std::fopen("/proc/self/status", "r");
  if (status == nullptr) return false;
  unsigned long long effective = 0;
  char line[256];
  while (std::fgets(line, sizeof line, status) != nullptr)
    std::sscanf(line, "CapEff: %llx", &effective);
  std::fclose(status);
  constexpr int cap_sys_time = 25;
  return (effective >> cap_sys_time & 1) != 0;
}

// Steps the wall clock, and back at the end of the scope: two steps whose sum is zero,
// whatever time passes in between.
class real_step {
 public:
  real_step() { REQUIRE(step(1'000'000)); }

  ~real_step() { back(); }

  real_step(const real_step&) = delete;
  real_step& operator=(const real_step&) = delete;

  void back() {
    if (is_stepped_) CHECK(step(-1'000'000));
    is_stepped_ = false;
  }

 private:
  bool step(long by) {
    timex t{};
    t.modes = ADJ_SETOFFSET | ADJ_NANO;
    t.time.tv_sec = by < 0 ? -1 : 0;
    t.time.tv_usec = by < 0 ? 1'000'000'000 + by : by;  // nanoseconds
    is_stepped_ = ::clock_adjtime(CLOCK_REALTIME, &t) >= 0;
    return is_stepped_;
  }

  bool is_stepped_ = false;
};

}  // namespace

TEST_SUITE("the kernel's clocks") {
  TEST_CASE("no sleep on wall or boot time ends early") {
    in_runtime({.workers = {1, 2}, .settings = {}}, [] {
      for (int i = 0; i < 5; ++i) {
        const auto wall = wall_clock::now() + 3ms;
        vigil::wall::sleep_until(wall);
        CHECK(wall_clock::now() >= wall);
        const auto boot = boot_clock::now();
        const auto start = std::chrono::steady_clock::now();
        vigil::boot::sleep_for(3ms);
        CHECK(boot_clock::now() >= boot + 3ms);
        CHECK(std::chrono::steady_clock::now() >= start + 3ms);
      }
    });
  }

  TEST_CASE("the clocks are the kernel's, in a runtime and outside") {
    const auto check = [] {
      const auto before = std::chrono::system_clock::now();
      const auto between = wall_clock::now();
      const auto after = std::chrono::system_clock::now();
      CHECK(between >= before);
      CHECK(between <= after + 1us);
      timespec t{};
      ::clock_gettime(CLOCK_BOOTTIME, &t);
      CHECK(boot_clock::now().time_since_epoch() >=
            std::chrono::seconds(t.tv_sec) + nanoseconds(t.tv_nsec));
    };
    check();
    in_runtime({.workers = {1}, .settings = {}}, check);
  }

  TEST_CASE("an aligned ticker ticks on full periods of the machine's wall clock") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      const auto t = vigil::ticker::aligned(10ms);
      auto last = wall_time::min();
      for (int i = 0; i < 5; ++i) {
        const auto tick = *t.channel().recv();
        CHECK(tick.time_since_epoch() % 10ms == 0ns);
        CHECK(tick > last);
        CHECK(wall_clock::now() >= tick);
        last = tick;
      }
    });
  }

  TEST_CASE("timers that are due by a step forwards end, although the heap has them later") {
    in_runtime({.workers = {1, 2}, .settings = {}}, [] {
      std::atomic<int> ran{0};
      const auto due = wall_clock::now() + 24h;
      const wall_timer t(due);
      const wall_timer called = vigil::wall::after_func_at(due, [&ran] { ++ran; });
      auto sleeper = vigil::spawn([due] { vigil::wall::sleep_until(due); });
      auto receiver = vigil::spawn([&] { CHECK(t.channel().recv() == due); });
      wait_until([] { return in_heap() >= 3; });
      pretend_step(25h);
      sleeper.join();
      receiver.join();
      wait_until([&] { return ran == 1; });
      CHECK(own_hub().changes() >= 1);
      pretend_step(-25h);
    });
  }

  TEST_CASE("a timer that fires reads its clock first: after an unheard step back it waits") {
    in_runtime({.workers = {1, 2}, .settings = {}}, [] {
      std::atomic<int> ended{0};
      const auto due = wall_clock::now() + 100ms;
      const wall_timer t(due);
      const wall_timer called = vigil::wall::after_func_at(due, [&ended] { ++ended; });
      auto sleeper = vigil::spawn([&] {
        vigil::wall::sleep_until(due);
        ++ended;
      });
      auto receiver = vigil::spawn([&] {
        CHECK(t.channel().recv() == due);
        ++ended;
      });
      wait_until([due] { return in_heap() >= 3 || wall_clock::now() >= due; });
      own_hub().shift(clock_kind::wall, nanoseconds(-1h).count());  // nobody is told
      const bool in_time = wall_clock::now() + 1h < due;            // or else nothing is proved
      vigil::sleep_for(150ms);
      if (in_time) {
        CHECK(ended == 0);
        CHECK(called.deadline() == due);
      }
      pretend_step(1h);
      sleeper.join();
      receiver.join();
      wait_until([&] { return ended == 3; });
    });
  }

  TEST_CASE("a thread hears of steps while a timer is pending, and a second longer") {
    in_runtime({.workers = {2}, .settings = {}}, [] {
      wait_until([] { return listeners() == 0; });
      const auto t = vigil::ticker::aligned(1h);
      wait_until([] { return listeners() == 1; });
      const wall_timer other(wall_clock::now() + 1h);
      CHECK(t.stop());
      vigil::sleep_for(2s);
      CHECK(listeners() == 1);  // for the other
      CHECK(other.stop());
      wait_until([] { return listeners() == 0; });
      CHECK_FALSE(other.reset(wall_clock::now() + 24h));
      wait_until([] { return listeners() == 1; });
      auto receiver = vigil::spawn([&] { other.channel().recv(); });
      wait_until([] { return in_heap() >= 1; });
      pretend_step(25h);
      receiver.join();
    });
    CHECK(once_at_most(0, listeners) == 0);
  }

#ifndef VIGIL_TEST_UNDER_SANITIZER  // a sanitizer may have a thread of its own
  TEST_CASE("the thread that listens does not keep a deadlock from being seen") {
    if (is_deadlock_hidden()) return;
    vigil::options o;
    o.workers = 1;
    vigil::runtime rt(o);
    REQUIRE(threads_once_at_most(1) == 1);  // a thread of the program would hide it
    CHECK_THROWS_AS(rt.run([] {
      vigil::wall::sleep_until(wall_clock::now() + 1ms);
      vigil::make_channel<int>().recv();
    }),
                    vigil::deadlock);
  }
#endif

  TEST_CASE("without a descriptor nothing is armed, and the error says so") {
    in_runtime({.workers = {1}, .settings = {}}, [] {
      rlimit before{};
      REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
      const int lowest = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
      REQUIRE(lowest >= 0);
      ::close(lowest);
      const rlimit none{static_cast<rlim_t>(lowest), before.rlim_max};
      REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
      std::exception_ptr errors[4];
      const auto keep = [&](int i, auto call) {
        try {
          call();
        } catch (...) {
          errors[i] = std::current_exception();
        }
      };
      const auto later = wall_clock::now() + 1h;
      keep(0, [&] { vigil::wall::after_func_at(later, [] {}); });
      keep(1, [&] { vigil::wall::sleep_until(later); });
      keep(2, [&] { static_cast<void>(vigil::ticker::aligned(1s)); });
      keep(3, [&] { static_cast<void>(wall_timer(later)); });
      ::setrlimit(RLIMIT_NOFILE, &before);  // before the errors are looked at: UBSan needs some
      for (const std::exception_ptr& error : errors) {
        REQUIRE(error != nullptr);
        try {
          std::rethrow_exception(error);
        } catch (const std::system_error& e) {
          CHECK(std::string(e.what()).find("timerfd") != std::string::npos);
          CHECK(e.code() == std::errc::too_many_files_open);
        }
      }
      CHECK(in_heap() == 0);
      vigil::wall::sleep_until(wall_clock::now() + 1ms);  // works again
    });
  }

  TEST_CASE("each arming is prevented or runs, whatever steps come meanwhile") {
    in_runtime({.workers = {1, 2, 4}, .settings = {}}, [] {
      std::atomic<int> ran{0};
      std::atomic<int> prevented{0};
      std::atomic<bool> over{false};
      int armed = 0;
      clock_hub& hub = own_hub();
      const wall_timer keeps_listening(wall_time::max());
      std::thread stepper([&] {
        for (int i = 0; !over; ++i) {
          hub.shift(clock_kind::wall, nanoseconds(i % 2 == 0 ? 1ms : -1ms).count());
          hub.listener().pretend_step();
          std::this_thread::yield();
        }
      });
      std::vector<vigil::fiber<>> fibers;
      const int each = rounds(400);
      for (int i = 0; i < 8; ++i) {
        armed += each;
        fibers.push_back(vigil::spawn([&, i] {
          seeded dice(static_cast<std::uint64_t>(i) + 1);
          const auto soon = [&] { return wall_clock::now() + 1us * dice.below(300); };
          const wall_timer received(soon());
          for (int n = 0; n < each; ++n) {
            const wall_timer t = vigil::wall::after_func_at(soon(), [&ran] { ++ran; });
            switch (dice.below(4)) {
              case 0:
                vigil::wall::sleep_until(soon());
                break;
              case 1:
                received.reset(soon());
                if (dice.below(2) == 0) received.channel().recv();
                break;
              case 2:
                vigil::this_fiber::yield();
                break;
              default:
                break;
            }
            if (t.stop_and_wait()) ++prevented;
          }
        }));
      }
      for (auto& f : fibers)
        f.join();
      over = true;
      stepper.join();
      CHECK(ran + prevented == armed);
    });
  }

  // Run by the next one.
  TEST_CASE("in a time namespace boot time has an offset of a day" * doctest::skip()) {
    in_runtime({.workers = {1}, .settings = {}}, [] {
      timespec monotonic{};
      ::clock_gettime(CLOCK_MONOTONIC, &monotonic);
      const auto apart =
          boot_clock::now().time_since_epoch() - std::chrono::seconds(monotonic.tv_sec);
      CHECK(apart >= 24h);
      // Read first: a pause between two clocks makes a wait longer then, not shorter.
      const auto start = std::chrono::steady_clock::now();
      const auto boot = boot_clock::now();
      const auto wall = wall_clock::now();
      vigil::boot::sleep_until(boot + 20ms);
      CHECK(boot_clock::now() >= boot + 20ms);
      CHECK(std::chrono::steady_clock::now() >= start + 20ms);
      CHECK(vigil::boot::timer(boot + 30ms).channel().recv() == boot + 30ms);
      CHECK(boot_clock::now() >= boot + 30ms);
      CHECK(vigil::wall::timer(wall + 40ms).channel().recv() == wall + 40ms);
      CHECK(wall_clock::now() >= wall + 40ms);
    });
    std::puts("the namespace was as expected");
  }

  TEST_CASE("an offset between boot time and monotonic time is no time that has passed") {
    char self[4096] = "";
    REQUIRE(::readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    const std::string unshare = "unshare --user --map-root-user --time --boottime 90000 ";
    if (std::system((unshare + "true 2>/dev/null").c_str()) != 0) {
      MESSAGE("skipped: no time namespace here (unshare --user --time)");
      return;
    }
    const char* const wrapper = std::getenv("MESON_EXE_WRAPPER");
    const std::string command = unshare + (wrapper != nullptr ? wrapper : "") + " '" + self +
                                "' --no-skip --test-case='in a time namespace*' 2>&1";
    std::FILE* const child = ::popen(command.c_str(), "r");
    REQUIRE(child != nullptr);
    std::string said;
    char text[512];
    while (std::fgets(text, sizeof text, child) != nullptr)
      said += text;
    CHECK_MESSAGE(::pclose(child) == 0, said);
    CHECK_MESSAGE(said.find("as expected") != std::string::npos, said);
  }

  TEST_CASE("a real step of the wall clock is heard") {
    if (!may_set_clock()) {
      MESSAGE(
          "skipped: needs CAP_SYS_TIME, and VIGIL_MAY_SET_CLOCK=1 to say that the clock of "
          "this machine may be stepped by a millisecond, and back");
      return;
    }
    in_runtime({.workers = {2}, .settings = {}}, [] {
      const wall_timer t(wall_clock::now() + 24h);
      auto receiver = vigil::spawn([&] { t.channel().recv(); });
      wait_until([] { return in_heap() >= 1; });
      {
        real_step forwards;
        wait_until([] { return own_hub().changes() >= 1; });
        const auto heard = own_hub().changes();
        forwards.back();
        wait_until([heard] { return own_hub().changes() > heard; });
      }
      receiver.request_stop();
      CHECK_THROWS_AS(receiver.join(), vigil::cancelled);
    });
  }
}
