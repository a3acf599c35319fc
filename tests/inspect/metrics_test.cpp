#include "inspect/inspect_helpers.hpp"
#include "inspect/kernel_clock.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"
#include "support/temporary_folder.hpp"

#include <vigil/co.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// The value of the sample with this name and these labels; "" if there is none.
std::string sample(const std::string& text, const std::string& name) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with(name + " ")) return line.substr(name.size() + 1);
  }
  return "";
}

std::string of_runtime(const std::string& labels = "") {
  return "{runtime=\"" + std::to_string(vigil::detail::current_scheduler()->number()) + "\"" +
         labels + "}";
}

// Keeps its worker until f() holds.
template <class F>
void keep_worker_until(F f) {
  while (!f())
    std::this_thread::yield();
}

// The counters of the workers as both readers have them, of one moment.
struct worker_facts {
  vigil::runtime_stats stats;
  std::string text;
};

// Caller: keeps one of two workers. The other one sleeps.
worker_facts quiet_facts() {
  const auto counts = [](const vigil::runtime_stats& s) {
    return std::tuple(s.steals, s.kernel_waits, s.wakes_useful, s.wakes_needless, s.workers_asleep);
  };
  for (;;) {
    keep_worker_until([] { return vigil::stats().workers_asleep == 1; });
    const worker_facts f{vigil::stats(), vigil::inspect::openmetrics()};
    if (f.stats.workers_asleep == 1 && counts(f.stats) == counts(vigil::stats())) return f;
  }
}

void check_samples(const worker_facts& f) {
  NOTE(f.text);
  const auto is = [&](const std::string& name, std::uint64_t value) {
    CHECK(sample(f.text, name) == std::to_string(value));
  };
  const std::string wakeups = "vigil_worker_wakeups_total";
  is("vigil_fiber_steals_total" + of_runtime(), f.stats.steals);
  is("vigil_worker_kernel_waits_total" + of_runtime(), f.stats.kernel_waits);
  is(wakeups + of_runtime(",found=\"work\""), f.stats.wakes_useful);
  is(wakeups + of_runtime(",found=\"nothing\""), f.stats.wakes_needless);
  is("vigil_worker_asleep" + of_runtime(), f.stats.workers_asleep);
}

// Starts so many fibers, and keeps its worker until another one has run them all.
void have_run_elsewhere(int fibers) {
  std::atomic<int> ran{0};
  std::vector<vigil::fiber<void>> all;
  for (int i = 0; i < fibers; ++i)
    all.push_back(vigil::spawn([&] { ran.fetch_add(1); }));
  keep_worker_until([&] { return ran.load() == fibers; });
  for (auto& f : all)
    f.join();
}

}  // namespace

namespace {

// Computes for that long at least.
void compute_for(std::chrono::nanoseconds span) {
  const auto end = std::chrono::steady_clock::now() + span;
  while (std::chrono::steady_clock::now() < end) {
  }
}

}  // namespace

TEST_SUITE("work of workers") {
  TEST_CASE("the time of a fiber that computes is in the busy time of the workers") {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      const vigil::runtime_stats before = vigil::stats();
      compute_for(20ms);
      const vigil::runtime_stats after = vigil::stats();
      CHECK(after.workers_busy - before.workers_busy >= 20ms);
      const std::string text = vigil::inspect::openmetrics();
      const std::string name = "vigil_worker_busy_seconds_total";
      double sum = 0;
      for (std::size_t i = 0; i < 2; ++i) {
        const std::string worker = ",worker=\"" + std::to_string(i) + "\"";
        sum += std::stod(sample(text, name + of_runtime(worker)));
      }
      CHECK(sum * 1e9 >= static_cast<double>(after.workers_busy.count()) * 0.99);
    });
  }

  TEST_CASE("the busy time of a worker that sleeps and wakes never goes down") {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      std::atomic<bool> ends{false};
      auto sleeps = vigil::spawn([&] {
        while (!ends.load())
          vigil::sleep_for(20us);
      });
      bool has_gone_down = false;
      auto last = vigil::stats().workers_busy;
      for (int i = 0; i < 10'000; ++i) {
        const auto now = vigil::stats().workers_busy;
        has_gone_down |= now < last;
        last = now;
      }
      CHECK_FALSE(has_gone_down);
      ends.store(true);
      sleeps.join();
    });
  }

  TEST_CASE("a fiber that computes is the one that has run for longest") {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      // The first look is the bound from which on it has run.
      static_cast<void>(vigil::inspect::openmetrics());
      compute_for(20ms);
      const std::string text = vigil::inspect::openmetrics();
      CHECK(std::stod(sample(text, "vigil_fiber_longest_run_seconds" + of_runtime())) >= 0.020);
    });
  }

  TEST_CASE("a fiber that runs on from one look to the next shows in stats()") {
    vigil::run([] {
      static_cast<void>(vigil::stats());
      compute_for(20ms);
      CHECK(vigil::stats().longest_run >= 20ms);
      vigil::this_fiber::yield();
      CHECK(vigil::stats().longest_run == 0ns);
    });
  }

  TEST_CASE("of many ready fibers that wait the oldest one's age is told, and then no more") {
    vigil::options o;
    o.workers = 1;
    vigil::run(o, [] {
      CHECK(vigil::stats().oldest_ready == 0ns);
      std::vector<vigil::fiber<void>> fibers;
      for (int i = 0; i < 128; ++i)
        fibers.push_back(vigil::spawn([] {}));
      compute_for(20ms);
      const vigil::runtime_stats stats = vigil::stats();
      CHECK(stats.oldest_ready >= 20ms);
      CHECK(stats.oldest_ready <= stats.workers_busy);
      const std::string text = vigil::inspect::openmetrics();
      CHECK(std::stod(sample(text, "vigil_fiber_oldest_ready_seconds" + of_runtime())) >= 0.020);
      for (auto& f : fibers)
        f.join();
      CHECK(vigil::stats().oldest_ready == 0ns);
    });
  }

  TEST_CASE("a fiber that is followed and stolen is followed no more") {
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [] {
      std::atomic<int> has_run{0};
      std::vector<vigil::fiber<void>> fibers;
      for (int i = 0; i < 128; ++i)
        fibers.push_back(vigil::spawn([&has_run] { has_run.fetch_add(1); }));
      while (has_run.load() < 128) {  // the other worker runs them
      }
      CHECK(vigil::stats().oldest_ready == 0ns);
      for (auto& f : fibers)
        f.join();
    });
  }

  TEST_CASE("fibers are counted by twenty places, and the others together") {
    in_virtual([] {
      std::vector<vigil::fiber<void>> fibers;
      const auto start_at = [&fibers](unsigned line) {
        fibers.push_back(
            vigil::spawn([] { vigil::sleep_for(1s); }, vigil::site{"many.cpp", line, 0}));
      };
      for (unsigned i = 1; i <= 25; ++i)
        start_at(i);
      for (int i = 0; i < 4; ++i)
        start_at(25);
      vigil::sleep_for(1ms);
      const std::string text = vigil::inspect::openmetrics();
      CHECK(sample(text, "vigil_fiber_place" + of_runtime(",place=\"many.cpp:25\"")) == "5");
      // There are 30, main included; 5 and 19 are in the places that are shown.
      CHECK(sample(text, "vigil_fiber_place" + of_runtime(",place=\"others\"")) == "6");
      CHECK(count_of(text, "vigil_fiber_place{") == 21);
      for (auto& f : fibers)
        f.join();
    });
  }
}

TEST_SUITE("metrics") {
  TEST_CASE("fibers by state and by reason, timers, and their lateness") {
    in_virtual([] {
      std::vector<vigil::fiber<void>> all;
      for (int i = 0; i < 7; ++i)
        all.push_back(vigil::spawn([] { vigil::sleep_for(1h); }));
      auto open = vigil::make_channel<int>();
      for (int i = 0; i < 3; ++i)
        all.push_back(vigil::spawn([&] { static_cast<void>(open.recv()); }));
      vigil::sleep_for(1s);
      const auto fresh = vigil::spawn([] {});
      const std::string text = vigil::inspect::openmetrics();
      NOTE(text);
      CHECK(sample(text, "vigil_fiber_count" + of_runtime()) == "12");
      CHECK(sample(text, "vigil_fiber_state" + of_runtime(",state=\"parked\"")) == "10");
      CHECK(sample(text, "vigil_fiber_state" + of_runtime(",state=\"runnable\"")) == "1");
      CHECK(sample(text, "vigil_fiber_state" + of_runtime(",state=\"running\"")) == "1");
      CHECK(sample(text, "vigil_fiber_waiting" + of_runtime(",reason=\"sleep\"")) == "7");
      CHECK(sample(text, "vigil_fiber_waiting" + of_runtime(",reason=\"channel receive\"")) == "3");
      CHECK(sample(text, "vigil_timer_pending" + of_runtime()) == "7");
      CHECK(sample(text, "vigil_timer_fired_total" + of_runtime()) == "1");
      CHECK(sample(text, "vigil_timer_lateness_seconds_count" + of_runtime()) == "1");
      CHECK(sample(text, "vigil_timer_lateness_seconds_sum" + of_runtime()) == "0");
      CHECK(text.ends_with("# EOF\n"));
    });
  }

  TEST_CASE("tasks by state") {
    in_virtual([] {
      CHECK(sample(vigil::inspect::openmetrics(),
                   "vigil_task_state" + of_runtime(",state=\"parked\"")) == "0");
      for (int i = 0; i < 5; ++i)
        vigil::go([]() -> vigil::task<> { co_await vigil::co::sleep_for(1h); }());
      vigil::testing::settle();
      for (int i = 0; i < 3; ++i)
        vigil::go([]() -> vigil::task<> { co_return; }());
      std::string text = vigil::inspect::openmetrics();
      NOTE(text);
      CHECK(sample(text, "vigil_task_state" + of_runtime(",state=\"parked\"")) == "5");
      CHECK(sample(text, "vigil_task_state" + of_runtime(",state=\"runnable\"")) == "3");
      CHECK(sample(text, "vigil_task_state" + of_runtime(",state=\"running\"")) == "0");
      vigil::spawn([](std::string& out) -> vigil::task<> {
        out = vigil::inspect::openmetrics();
        co_return;
      }(text))
          .join();
      CHECK(sample(text, "vigil_task_state" + of_runtime(",state=\"running\"")) == "1");
    });
  }

  TEST_CASE("functions given to the side pool, with a count of each duration") {
    in_runtime({.workers = {2}}, [] {
      for (int i = 0; i < 7; ++i)
        vigil::blocking([] {});
      const std::string text = vigil::inspect::openmetrics();
      NOTE(text);
      CHECK(sample(text, "vigil_blocking_done_total" + of_runtime()) == "7");
      for (const char* const name :
           {"vigil_blocking_queue_duration_seconds", "vigil_blocking_run_duration_seconds"}) {
        CHECK(sample(text, std::string(name) + "_count" + of_runtime()) == "7");
        CHECK(sample(text, std::string(name) + "_bucket" + of_runtime(",le=\"+Inf\"")) == "7");
      }
    });
  }

  TEST_CASE("fibers that a worker took from another one's queue") {
    in_runtime({.workers = {2}}, [] {
      const worker_facts before = quiet_facts();
      have_run_elsewhere(20);
      const worker_facts after = quiet_facts();
      CHECK(after.stats.steals - before.stats.steals == 20);
      check_samples(before);
      check_samples(after);
    });
  }

  TEST_CASE("workers that sleep, and what they found when they woke") {
    in_runtime({.workers = {2}}, [] {
      const worker_facts before = quiet_facts();
      std::atomic<bool> stop{false};
      std::atomic<bool> runs{false};
      auto other = vigil::spawn([&] {
        runs.store(true);
        keep_worker_until([&] { return stop.load(); });
      });
      keep_worker_until([&] { return runs.load(); });
      CHECK(vigil::stats().workers_asleep == 0);
      CHECK(sample(vigil::inspect::openmetrics(), "vigil_worker_asleep" + of_runtime()) == "0");
      stop.store(true);
      other.join();
      const worker_facts woken = quiet_facts();
      CHECK(woken.stats.wakes_useful > before.stats.wakes_useful);
      check_samples(woken);
      // The other worker sleeps to a deadline that was then put off. It does not if the
      // deadline has come before.
      worker_facts last = woken;
      while (last.stats.wakes_needless == woken.stats.wakes_needless) {
        const vigil::timer later = vigil::after_func(1ms, [] {});
        keep_worker_until([] { return vigil::stats().workers_asleep == 1; });
        later.reset(1h);
        vigil::sleep_for(2ms);
        last = quiet_facts();
        later.stop();
      }
      check_samples(last);
    });
  }

  TEST_CASE("the use of stacks, with places as they must be written in a label") {
    vigil::inspect::install();
    in_virtual([] {
      const vigil::site from{"a \"b\"\\c\nd\xff.cpp", 7};
      for (int i = 0; i < 640; ++i)
        vigil::spawn([] {}, from).join();
    });
    vigil::inspect::install({.stack_use = false});
    const std::string of = R"({place="a \"b\"\\c\nd)"
                           "\xef\xbf\xbd"
                           R"(.cpp:7")";
    const std::string text = vigil::inspect::openmetrics();
    NOTE(text);
    CHECK(sample(text, "vigil_stack_size_bytes" + of + "}") == "131072");
    CHECK(std::stoul(sample(text, "vigil_stack_high_water_bytes" + of + "}")) >= 4'096);
    const std::string count = sample(text, "vigil_stack_used_bytes_count" + of + "}");
    CHECK(std::stoul(count) >= 5);
    CHECK(sample(text, "vigil_stack_used_bytes_bucket" + of + ",le=\"16777216.0\"}") == count);
  }

  TEST_CASE("without a runtime there are the process's own metrics") {
    const std::string text = vigil::inspect::openmetrics();
    CHECK(has(text, "vigil_clock_source_info{source="));
    CHECK_FALSE(has(text, "runtime="));
    CHECK(text.ends_with("# EOF\n"));
  }

  TEST_CASE("one in 64 fibers that become ready is timed") {
    in_runtime({}, [] {
      for (int i = 0; i < 6'400; ++i)
        vigil::spawn([] {}).join();
      const vigil::runtime_stats s = vigil::stats();
      // Each worker counts for itself, from 64 down.
      CHECK(s.run_queue_delay.total() >= 6'400 / 64 - s.workers);
      CHECK(s.run_queue_delay.sum_nanos > 0);
    });
  }

  TEST_CASE("on virtual time no queue is timed, and a sum is the sum") {
    in_virtual([] {
      for (int i = 0; i < 640; ++i)
        vigil::spawn([] {}).join();
      CHECK(vigil::stats().run_queue_delay.total() == 0);
    });
    vigil::delay_histogram h;
    vigil::detail::delay_counters c;
    c.note(1);
    c.note(5'000);
    c.note(-7);
    c.add_stats(h);
    CHECK(h.total() == 3);
    CHECK(h.sum_nanos == 5'001);
    CHECK(h.max_nanos == 5'000);
    CHECK(h.count[0] == 2);
    CHECK(h.count[3] == 1);
  }

  TEST_CASE("clock sources that need a system call are known as slow") {
    using vigil::detail::is_slow_clock;
    for (const char* const slow : {"hpet", "acpi_pm", "xen", "jiffies"})
      CHECK(is_slow_clock(slow));
    for (const char* const fast : {"tsc", "kvm-clock", "arch_sys_counter"})
      CHECK_FALSE(is_slow_clock(fast));
  }

  // That something was said holds for the process, so this has one of its own.
  TEST_CASE("child: clock sources" * doctest::skip()) {
    const temporary_folder folder;
    const std::string file = folder.file("current_clocksource");
    vigil::detail::set_clock_source_file(file.c_str());
    const auto show = [] {
      for (const std::string& line : lines_of(vigil::inspect::openmetrics()))
        if (line.starts_with("vigil_clock_source_info")) std::puts(line.c_str());
      std::fflush(stdout);
    };
    vigil::inspect::install();
    show();
    for (const char* const name : {"tsc", "xen", "hpet"}) {
      std::ofstream(file) << name << '\n';
      vigil::inspect::install();
      vigil::inspect::install();
      show();
    }
  }

  TEST_CASE("a slow clock source is said once, and is in the metrics") {
    const child_result r = run_child("child: clock sources");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(r.says("vigil_clock_source_info{source=\"\",slow=\"false\"} 1\n"));
    CHECK(r.says("vigil_clock_source_info{source=\"tsc\",slow=\"false\"} 1\n"));
    CHECK(r.says("vigil_clock_source_info{source=\"xen\",slow=\"true\"} 1\n"));
    CHECK(r.says("vigil_clock_source_info{source=\"hpet\",slow=\"true\"} 1\n"));
    CHECK(r.says("the kernel's clock source is xen: each look at the clock is a system call"));
    CHECK(count_of(r.output, "the kernel's clock source is ") == 1);
  }
}
