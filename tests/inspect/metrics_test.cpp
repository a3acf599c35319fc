#include "inspect/inspect_helpers.hpp"
#include "inspect/kernel_clock.hpp"
#include "support/in_runtime.hpp"

#include <vigil/co.hpp>

#include <string>
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

}  // namespace

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
      INFO(text);
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
      INFO(text);
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
      INFO(text);
      CHECK(sample(text, "vigil_blocking_done_total" + of_runtime()) == "7");
      for (const char* const name :
           {"vigil_blocking_queue_duration_seconds", "vigil_blocking_run_duration_seconds"}) {
        CHECK(sample(text, std::string(name) + "_count" + of_runtime()) == "7");
        CHECK(sample(text, std::string(name) + "_bucket" + of_runtime(",le=\"+Inf\"")) == "7");
      }
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
    INFO(text);
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
}
