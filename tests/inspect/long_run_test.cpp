// The frames of a fiber that keeps its worker too long: options::slow_fiber, and the
// limits of inspect::record_on.
#include "core/machine/sanitizer.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/dump_extension.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/inspect_helpers.hpp"
#include "inspect/running_frames.hpp"
#include "support/child.hpp"
#include "support/error_output.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

[[gnu::noinline]] void compute_until(const std::atomic<bool>& flag) {
  while (!flag.load(std::memory_order_relaxed)) {
  }
  asm volatile("" ::: "memory");
}

// A fiber's work until standard error has a text. It is made before the runtime, since to
// start its thread may take longer than a limit.
class told {
 public:
  told(error_output& said, const char* text)
      : reader_([this, &said, text] {
          while (!said.has(text))
            std::this_thread::sleep_for(1ms);
          is_told_.store(true);
        }) {}

  ~told() { reader_.join(); }

  [[gnu::noinline]] void compute_until_told() const {
    compute_until(is_told_);
    asm volatile("" ::: "memory");  // no tail call: the frames have this function
  }

 private:
  std::atomic<bool> is_told_{false};
  std::thread reader_;  // after what it writes
};

vigil::options watched() {
  vigil::options o;
  o.workers = 2;
  o.slow_fiber = 10ms;
  return o;
}

// The lines of the report on the fiber with this name.
std::vector<std::string> report_on(const std::string& text,
                                   const std::string& limit,
                                   const std::string& name) {
  std::vector<std::string> report;
  for (const std::string& line : lines_of(text)) {
    const bool is_head = has(line, limit + ": fiber ") && has(line, "(" + name + "), started at ");
    if (is_head || (!report.empty() && line.starts_with("    "))) {
      report.push_back(line);
    } else if (!report.empty()) {
      break;
    }
  }
  return report;
}

bool any_has(const std::vector<std::string>& lines, const char* words) {
  return std::any_of(
      lines.begin(), lines.end(), [words](const std::string& l) { return has(l, words); });
}

// The first worker of the runtime with this number.
vigil::detail::worker& first_worker(std::uint64_t runtime) {
  vigil::detail::worker* found = nullptr;
  vigil::detail::for_each_running([&](vigil::detail::scheduler& s, vigil::detail::runtime_slot&) {
    if (s.number() == runtime) found = s.workers()[0].get();
  });
  REQUIRE(found != nullptr);
  return *found;
}

// Goes on when another thread has taken a step as well.
void take_step(std::atomic<int>& step) {
  const int mine = step.fetch_add(1) + 1;
  while (step.load() == mine) {
  }
}

}  // namespace

TEST_SUITE("long_run") {
  TEST_CASE("a callback's run is over when its runner is in the next one") {
    namespace detail = vigil::detail;
    vigil::inspect::install();
    vigil::options one;
    one.workers = 1;
    std::atomic<int> step{0};
    std::thread looks;
    vigil::run(one, [&] {
      looks = std::thread([&step, runtime = detail::current_scheduler()->number()] {
        const auto wait_for = [&step](int n) {
          while (step.load() != n)
            std::this_thread::yield();
        };
        detail::worker& w = first_worker(runtime);
        wait_for(1);
        const detail::handler_scope inside;
        const detail::slab_hold hold;
        detail::long_run r{.on = w, .stretch = w.counters.stretch()};
        REQUIRE(detail::view_of_running(w, r.where, r.who));
        CHECK(r.goes_on());
        const std::uint32_t first = r.who.line;
        step.store(2);
        wait_for(3);
        CHECK(detail::moment_of(r.where).runs == r.who.runs);
        CHECK_FALSE(detail::installed_extension.load()->report(r));
        const detail::own_frames_room room;
        detail::frame_list frames;
        detail::read_running_frames(r.where, r.who, room.get(), frames);
        if (frames.count != 0) CHECK(r.who.line != first);
        step.store(4);
      });
      const vigil::scoped_timer one_call = vigil::after_func(1ms, [&] { take_step(step); });
      const vigil::scoped_timer another = vigil::after_func(1ms, [&] { take_step(step); });
      std::this_thread::sleep_for(5ms);  // both are due
      while (step.load() != 4)
        vigil::this_fiber::yield();
    });
    looks.join();
  }

  TEST_CASE("child: computes until its frames are told" * doctest::skip()) {
    vigil::inspect::install();
    error_output said;
    const told frames(said, "    at ");
    const told another(said, "(another), started at");
    vigil::run(watched(), [&] {
      const auto computes = [](const told& t) {
        return vigil::spawn({.name = "computes"}, [&t] { t.compute_until_told(); });
      };
      computes(frames).join();
      auto again = computes(another);
      vigil::spawn({.name = "another"}, [&] { another.compute_until_told(); }).join();
      again.join();
    });
  }

  TEST_CASE("a fiber that computes is told with its frames while it does, once for its place" *
            doctest::skip(VIGIL_TSAN)) {
    const child_result child = run_child("child: computes until its frames are told");
    CHECK(child.succeeded());
    CHECK(count_of(child.output, "(computes), started at ") == 1);
    CHECK(report_on(child.output, "slow_fiber", "another").size() > 1);
    const auto report = report_on(child.output, "slow_fiber", "computes");
    NOTE(child.output);
    REQUIRE(report.size() > 2);
    CHECK(has(report[0], "options::slow_fiber is 10.000 ms"));
    // A sanitizer's functions may stand before it.
    CHECK(any_has(report, "::compute_until("));
    CHECK(any_has(report, "::compute_until_told("));
  }

  TEST_CASE("child: a limit of record_on passes" * doctest::skip()) {
    vigil::inspect::install();
    error_output said;
    const told frames(said, "    at ");
    const told late(said, "timer_late of inspect::record_on");
    vigil::options o;
    o.workers = 1;
    o.recorder_events = 1024;
    vigil::run(o, [&] {
      // No files; the overseer sleeps as the limits come.
      vigil::inspect::record_on({.ran_for = 10ms, .files = 0});
      vigil::spawn({.name = "runs"}, [&] { frames.compute_until_told(); }).join();
      vigil::inspect::record_on({.timer_late = 10ms, .files = 0});
      vigil::spawn({.name = "delays"}, [&] {
        const auto t = vigil::every(1ms, [] {});  // armed on a worker that it then keeps
        late.compute_until_told();
      }).join();
    });
  }

  TEST_CASE("a fiber that passes a limit of record_on is told with its frames while it runs" *
            doctest::skip(VIGIL_TSAN)) {
    const child_result child = run_child("child: a limit of record_on passes");
    CHECK(child.succeeded());
    NOTE(child.output);
    const auto ran = report_on(child.output, "ran_for", "runs");
    REQUIRE(ran.size() > 1);
    CHECK(has(ran[0], "ran_for of inspect::record_on is 10.000 ms"));
    CHECK(any_has(ran, "::compute_until("));
    const auto late = report_on(child.output, "timer_late", "delays");
    REQUIRE(late.size() > 1);
    CHECK(any_has(late, "::compute_until("));
    CHECK(count_of(child.output, "(runs), started at ") == 1);
  }

  TEST_CASE("child: computes and is not asked" * doctest::skip()) {
    vigil::inspect::install({.running_signal = 0});
    error_output said;
    const told report(said, "(main), started at");
    vigil::run(watched(), [&] { report.compute_until_told(); });
  }

  TEST_CASE("a fiber that computes is told where no thread may be asked for its frames") {
    const child_result child = run_child("child: computes and is not asked");
    CHECK(child.succeeded());
    CHECK(child.says("and still does"));
  }
}
