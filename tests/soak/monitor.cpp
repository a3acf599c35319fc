#include "soak/monitor.hpp"

#include "core/clocks/clock_hub.hpp"
#include "core/machine/sanitizer.hpp"
#include "core/sched/worker/scheduler.hpp"

#include <vigil/inspect.hpp>
#include <vigil/leaks.hpp>
#include <vigil/stats.hpp>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include <dirent.h>
#include <malloc.h>
#include <unistd.h>

#if VIGIL_ASAN
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
#endif

namespace vigil::soak {
namespace {

// In 100 ms in which one fiber sleeps once: that one, the overseer's after it, and a few
// on a busy machine. A tick of 10 ms would make ten more (P6).
constexpr double most_wakes = 10;

int entries_of(const char* folder) {
  DIR* const d = ::opendir(folder);
  if (d == nullptr) return -1;
  int n = 0;
  while (const dirent* const e = ::readdir(d))
    n += e->d_name[0] != '.' ? 1 : 0;
  ::closedir(d);
  return n;
}

bool clock_listener_of_run() {
  detail::scheduler& sched = *detail::require_fiber("soak").sched;
  return detail::clock_hub::of(sched)->listener().thread_id() != 0;
}

double allocated_bytes() {
#if VIGIL_ASAN
  return static_cast<double>(__sanitizer_get_current_allocated_bytes());
#else
  const struct mallinfo2 all = ::mallinfo2();
  return static_cast<double>(all.uordblks + all.hblkhd);
#endif
}

[[noreturn]] void main_is_lost(int) {
  constexpr std::string_view text =
      "soak: FAILED: main: it has not come back from a sleep or a report in five minutes\n";
  static_cast<void>(!::write(STDERR_FILENO, text.data(), text.size()));
  ::raise(SIGQUIT);  // a dump of all fibers
  ::_exit(1);
}

}  // namespace

holdings held_now() {
  holdings h;
  h.allocated = allocated_bytes();
  if (std::FILE* const file = std::fopen("/proc/self/statm", "r")) {
    unsigned long whole = 0;
    unsigned long pages = 0;
    if (std::fscanf(file, "%lu %lu", &whole, &pages) == 2) {
      h.resident = static_cast<double>(pages) * static_cast<double>(::sysconf(_SC_PAGESIZE));
    }
    std::fclose(file);
  }
  const int files = entries_of("/proc/self/fd");
  if (files >= 0) h.descriptors = files - 1;  // one is the folder's
  h.threads = entries_of("/proc/self/task");
  return h;
}

double monitor::hours() const noexcept {
  return std::chrono::duration<double>(clock::now() - start_) / 1h;
}

// A quarter of the soak, and ten minutes at most: pools, arenas and caches are filled by
// then.
bool monitor::is_warm() const noexcept {
  const nanoseconds least = world_.how.is_virtual
                                ? world_.how.length / 20
                                : std::min<nanoseconds>(world_.how.length / 4, 10min);
  return rests_ >= 2 && clock::now() - start_ >= least;
}

std::string monitor::left() const {
  const runtime_stats s = stats();
  const holdings h = held_now();
  std::string text;
  const auto expect = [&text](const char* what, std::int64_t is, std::int64_t most) {
    if (is > most) {
      text += std::string(text.empty() ? "" : "; ") + std::to_string(is) + " " + what + ", not " +
              std::to_string(most);
    }
  };
  const auto n = [](std::uint64_t x) { return static_cast<std::int64_t>(x); };
  expect("fibers", n(s.fibers_alive), n(world_.actors()) + 1);
  expect("timers pending", n(s.timers_pending), 0);
  expect("operations of I/O", n(s.io_pending), 0);
  expect("blocking calls", n(s.blocking.queued + s.blocking.running), 0);
  // It stays for a second after the last timer on wall time.
  expect("thread for steps of the clock", clock_listener_of_run() ? 1 : 0, 0);
  if (is_warm()) {
    expect("descriptors", h.descriptors, descriptors_);
    expect("threads", h.threads, threads_);
  }
  const std::string open = world_.ledgers.open_entries();
  if (!open.empty()) text += (text.empty() ? "" : "; ") + open;
  if (h.descriptors < 0 || h.threads < 0 || h.resident < 0) text += " (and no descriptor to look)";
  return text;
}

bool monitor::wait_until_quiet() {
  const time_point end = clock::now() + world_.how.patience;
  std::string what;
  while (clock::now() < end && !world_.ledgers.has_failed()) {
    if (world_.all_rest()) {
      what = left();
      if (what.empty()) return true;
      // On virtual time the end of a thread, or of a function on one, takes real time.
      if (world_.how.is_virtual) ::usleep(1'000);
    } else {
      what.clear();
    }
    expect_main();
    sleep_for(world_.how.is_virtual ? nanoseconds(1min) : nanoseconds(2ms));
  }
  if (world_.ledgers.has_failed()) return false;
  if (what.empty()) what = "in a round: " + world_.who_plays();
  world_.ledgers.fail("rest", "the actors' work does not end: " + what);
  inspect::dump(stderr);
  return false;
}

void monitor::look() {
  const runtime_stats before = stats();
  if (!world_.how.is_virtual) sleep_for(100ms);
  const runtime_stats s = stats();
  const holdings h = held_now();
  if (!is_warm()) {
    descriptors_ = std::max(descriptors_, h.descriptors);
    threads_ = std::max(threads_, h.threads);
    return;
  }
  const double t = hours();
  const auto add = [&](int which, double value) {
    if (value >= 0) series_[static_cast<std::size_t>(which)].samples.push_back({t, value});
  };
  add(allocated, h.allocated);
  add(resident, h.resident);
  add(descriptors, h.descriptors);
  add(threads, h.threads);
  add(heap, static_cast<double>(s.heap_entries));
  add(wakes,
      static_cast<double>(s.kernel_waits + s.overseer_waits - before.kernel_waits -
                          before.overseer_waits));
  // Nothing is pending, so all entries are dead: a thousand, and those in intakes (P11).
  if (s.heap_entries > 2'048) {
    world_.ledgers.fail("heap", std::to_string(s.heap_entries) + " entries of an idle heap");
  }
}

void monitor::rest() {
  world_.begin_rest();
  if (!wait_until_quiet()) return;
  world_.note_quiet();
  look();
  ++rests_;
  // No actor is stuck: the main fiber will end their rest. One look in ten, as it takes
  // long.
  if (rests_ % 10 == 5 && !world_.how.is_virtual) {
    const inspect::stuck_report r = inspect::find_stuck_fibers();
    if (!r.certain.empty()) {
      world_.ledgers.fail("stuck fibers", "fibers are called stuck wrongly: " + r.text);
    }
  }
}

void monitor::show_progress() const {
  const holdings h = held_now();
  std::printf(
      "soak: %.3f h, %zu rests, %llu connections; %.1f MiB resident, %d descriptors, "
      "%d threads\n",
      hours(),
      rests_,
      static_cast<unsigned long long>(world_.connections()),
      h.resident / (1 << 20),
      h.descriptors,
      h.threads);
  std::fflush(stdout);
}

// Before each sleep of main's, and what it does after that: a report, a look for stuck
// fibers, and a stop of the weather are far shorter.
void monitor::expect_main() {
  ::alarm(static_cast<unsigned>(5min / 1s));
}

void monitor::watch() {
  std::signal(SIGALRM, &main_is_lost);
  auto shown = std::chrono::steady_clock::now();
  while (!world_.ledgers.has_failed()) {
    expect_main();
    world_.insist([&] { sleep_for(world_.how.between_rests); });
    world_.insist([&] { rest(); });
    if (world_.ledgers.has_failed()) return;
    const auto now = std::chrono::steady_clock::now();
    if (now - shown >= 1min) {
      shown = now;
      show_progress();
    }
    if (clock::now() - start_ >= world_.how.length) break;
    world_.end_rest();
  }
  if (world_.ledgers.has_failed()) return;
  expect_main();
  world_.end();
  while (stats().fibers_alive > 1)
    world_.insist([] { sleep_for(1ms); });
  ::alarm(0);
}

std::string monitor::slopes() {
  const std::vector<sample>& all = series_[allocated].samples;
  if (all.size() < 3) {
    if (world_.how.judges_slopes) world_.ledgers.fail("slopes", "too few samples to tell");
    return "  too few samples\n";
  }
  const double length = all.back().hours - all.front().hours;
  const double leak = 50 * static_cast<double>(world_.connections()) / hours();

  struct bound {
    double most;
    const char* why;
  };

  const bound bounds[] = {
      {leak, "half of 100 bytes a connection"},
      {VIGIL_ASAN ? HUGE_VAL : leak,
       VIGIL_ASAN ? "ASan keeps what is freed" : "half of 100 bytes a connection"},
      {0.5 / length, "half a descriptor in all"},
      {0.5 / length, "half a thread in all"},
      {512 / length, "half of the thousand that may be dead, in all"},
      {0.5 / length, "half a wake-up in all"},
  };
  std::string text;
  char line[200];
  for (std::size_t i = 0; i < series_.size(); ++i) {
    const slope s = slope_of(series_[i].samples);
    const verdict v = judge(s, bounds[i].most);
    const char* const word = v == verdict::flat    ? "flat"
                             : v == verdict::grows ? "GROWS"
                                                   : "undecided";
    std::snprintf(line,
                  sizeof line,
                  "  %-19s mean %12.1f  slope %+12.2f +- %10.2f per h  bound %12.2f (%s): %s\n",
                  series_[i].name,
                  s.mean,
                  s.per_hour,
                  s.error,
                  bounds[i].most,
                  bounds[i].why,
                  word);
    text += line;
    if (v == verdict::grows && world_.how.judges_slopes) {
      world_.ledgers.fail("slopes", std::string(series_[i].name) + " grow");
    }
  }
  const double mean_wakes = slope_of(series_[wakes].samples).mean;
  if (mean_wakes > most_wakes && world_.how.judges_slopes) {
    world_.ledgers.fail("wake-ups", std::to_string(mean_wakes) + " in 100 ms of rest");
  }
  std::snprintf(line, sizeof line, "  (%zu samples over %.3f h)\n", all.size(), length);
  return text + line;
}

}  // namespace vigil::soak
