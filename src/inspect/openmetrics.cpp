// OpenMetrics text: https://prometheus.io/docs/specs/om/open_metrics_spec.
#include "core/blocking/side_pool.hpp"
#include "core/machine/stack.hpp"
#include "core/sched/fiber/fiber_words.hpp"
#include "core/sched/report/fiber_table.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect/kernel_clock.hpp"
#include "inspect/task_walk.hpp"
#include "inspect/valid_utf8.hpp"

#include <vigil/inspect.hpp>
#include <vigil/stats.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace VIGIL_PUBLIC::inspect {
namespace {

using labels = std::string;  // `name="value"`, with commas

class exposition {
 public:
  // Begins a family. Its samples follow.
  void family(std::string_view name,
              std::string_view type,
              std::string_view help,
              std::string_view unit = {}) {
    name_ = name;
    line("# TYPE ", type);
    if (!unit.empty()) line("# UNIT ", unit);
    line("# HELP ", help);
  }

  void sample(std::string_view suffix, const labels& of, double value) {
    char number[32];
    std::snprintf(number, sizeof number, "%.9g", value);
    sample_text(suffix, of, number);
  }

  void sample(std::string_view suffix, const labels& of, std::uint64_t value) {
    sample_text(suffix, of, std::to_string(value));
  }

  std::string end() && {
    text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  void line(std::string_view what, std::string_view value) {
    text_.append(what).append(name_).append(" ").append(value).append("\n");
  }

  void sample_text(std::string_view suffix, const labels& of, std::string_view value) {
    text_.append(name_).append(suffix).append("{").append(of).append("} ").append(value).append(
        "\n");
  }

  std::string name_;
  std::string text_;
};

labels with(const labels& of, std::string_view name, std::string_view value) {
  return of + "," + std::string(name) + "=\"" + std::string(value) + "\"";
}

// A text of the program's as a label's value.
std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : detail::valid_utf8(text)) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

constexpr std::size_t states = std::size_t(detail::fiber_state::ended) + 1;
constexpr std::size_t reasons = std::size_t(detail::wait_reason::test) + 1;

constexpr std::size_t fields = std::size(detail::fiber_fields);

struct runtime_facts {
  const detail::scheduler* sched;  // only compared
  labels of;
  runtime_stats stats;
  std::array<std::uint64_t, states> by_state{};    // fiber_state
  std::array<std::uint64_t, reasons> by_reason{};  // wait_reason
  std::array<std::uint64_t, fields> by_flag{};     // fiber_fields; of the others 0
  detail::shown_tasks tasks;                       // their numbers alone
  detail::nanos longest_run = 0;                   // of a fiber that runs, at least
  std::vector<detail::nanos> busy;                 // of each worker

  std::uint64_t fibers_seen() const noexcept {
    return std::accumulate(by_state.begin(), by_state.end(), std::uint64_t{0});
  }
};

struct process_facts {
  std::vector<runtime_facts> runtimes;
  std::unique_ptr<detail::fiber_table> births = std::make_unique<detail::fiber_table>();
};

void count_fiber(const detail::stack& where, void* argument) noexcept {
  detail::fiber_view s;
  if (!detail::take_view(where, s)) return;
  if (s.role != detail::fiber_role::user && s.role != detail::fiber_role::main) return;
  auto& all = *static_cast<process_facts*>(argument);
  for (runtime_facts& r : all.runtimes) {
    if (r.sched != s.sched) continue;
    all.births->add(s, where);
    if (s.ran.has_value()) r.longest_run = std::max(r.longest_run, s.ran->at_least);
    ++r.by_state[std::min(std::size_t(s.state), states - 1)];
    if (s.state == detail::fiber_state::parked) {
      ++r.by_reason[std::min(std::size_t(s.reason), reasons - 1)];
    }
    for (std::size_t i = 0; i < fields; ++i) {
      const detail::fiber_field& f = detail::fiber_fields[i];
      if (f.kind == detail::field_kind::flag && detail::is_shown(f, s)) ++r.by_flag[i];
    }
  }
}

process_facts collect() {
  process_facts all;
  const detail::handler_scope inside;
  detail::for_each_running([&all](const detail::scheduler& s, detail::runtime_slot&) {
    if (s.settings().is_observer) return;
    runtime_facts& r = all.runtimes.emplace_back();
    r.sched = &s;
    r.of = "runtime=\"" + std::to_string(s.number()) + "\"";
    s.add_stats(r.stats);
    for (const auto& w : s.workers())
      r.busy.push_back(w->counters.busy.get());
    r.stats.blocking = s.own_pool->stats();
    r.tasks = detail::count_tasks(s);
  });
  const detail::slab_hold hold;
  detail::for_each_stack_in_use(&count_fiber, &all);
  return all;
}

template <class Value>
void one_each(exposition& out,
              const std::vector<runtime_facts>& all,
              std::string_view suffix,
              Value value) {
  for (const runtime_facts& r : all)
    out.sample(suffix, r.of, value(r.stats));
}

void histogram(exposition& out,
               const std::vector<runtime_facts>& all,
               const delay_histogram& (*of)(const runtime_stats&)) {
  for (const runtime_facts& r : all) {
    const delay_histogram& h = of(r.stats);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i + 1 < delay_histogram::buckets; ++i) {
      sum += h.count[i];
      char le[32];
      std::snprintf(le, sizeof le, "%.9g", static_cast<double>(std::uint64_t{1} << i) / 1e6);
      out.sample("_bucket", with(r.of, "le", le), sum);
    }
    out.sample("_bucket", with(r.of, "le", "+Inf"), h.total());
    out.sample("_count", r.of, h.total());
    out.sample("_sum", r.of, static_cast<double>(h.sum_nanos) / 1e9);
  }
}

using stats_field = std::uint64_t runtime_stats::*;

struct plain_family {
  const char* name;
  const char* help;
  stats_field value;
};

constexpr plain_family counters[] = {
    {"vigil_fiber_started", "Fibers started.", &runtime_stats::fibers_started},
    {"vigil_fiber_switches", "Times a worker began to run a fiber.", &runtime_stats::switches},
    {"vigil_fiber_steals", "Fibers taken from another worker's queue.", &runtime_stats::steals},
    {"vigil_timer_armed", "Timers armed.", &runtime_stats::timers_armed},
    {"vigil_timer_reset",
     "Pending timers that got another deadline.",
     &runtime_stats::timers_reset},
    {"vigil_timer_fired", "Timers fired.", &runtime_stats::timers_fired},
    {"vigil_timer_stopped", "Timers stopped before they fired.", &runtime_stats::timers_stopped},
    {"vigil_worker_kernel_waits", "Times a worker went to sleep.", &runtime_stats::kernel_waits},
    {"vigil_worker_wake_calls", "System calls to wake a worker.", &runtime_stats::wake_calls},
};

constexpr plain_family gauges[] = {
    {"vigil_fiber_count", "Fibers of the program that are alive.", &runtime_stats::fibers_alive},
    {"vigil_timer_pending",
     "Timers armed and neither fired nor stopped.",
     &runtime_stats::timers_pending},
    {"vigil_timer_heap_entries",
     "Entries of the heap, dead ones included.",
     &runtime_stats::heap_entries},
    {"vigil_timer_heap_dead_entries",
     "Entries of the heap that never fire.",
     &runtime_stats::dead_entries},
    {"vigil_worker_count", "Workers.", &runtime_stats::workers},
    {"vigil_worker_asleep", "Workers that sleep.", &runtime_stats::workers_asleep},
    {"vigil_io_pending", "I/O operations for which a fiber waits.", &runtime_stats::io_pending},
};

void write_blocking(exposition& out, const std::vector<runtime_facts>& all) {
  const auto of = [](auto field) {
    return [field](const runtime_stats& s) -> std::uint64_t { return s.blocking.*field; };
  };
  out.family("vigil_blocking_thread_count", "gauge", "Threads of the side pool.");
  one_each(out, all, "", of(&blocking_stats::threads));
  out.family("vigil_blocking_queued", "gauge", "Functions that wait for a thread.");
  one_each(out, all, "", of(&blocking_stats::queued));
  out.family("vigil_blocking_running", "gauge", "Functions that run.");
  one_each(out, all, "", of(&blocking_stats::running));
  out.family("vigil_blocking_done", "counter", "Functions that have ended.");
  one_each(out, all, "_total", of(&blocking_stats::done));
  out.family("vigil_blocking_oldest_wait_seconds",
             "gauge",
             "For how long the first function in the queue has waited.",
             "seconds");
  one_each(out, all, "", [](const runtime_stats& s) {
    return static_cast<double>(s.blocking.oldest_wait.count()) / 1e9;
  });
  out.family("vigil_blocking_queue_duration_seconds",
             "histogram",
             "From the call until a thread took the function, of functions that have ended.",
             "seconds");
  histogram(out, all, [](const runtime_stats& s) -> const delay_histogram& {
    return s.blocking.queue_time;
  });
  out.family("vigil_blocking_run_duration_seconds",
             "histogram",
             "For how long functions ran that have ended.",
             "seconds");
  histogram(out, all, [](const runtime_stats& s) -> const delay_histogram& {
    return s.blocking.run_time;
  });
}

void write_stack_use(exposition& out) {
  const std::vector<stack_use> all = stack_use_by_place();
  const auto of = [](const stack_use& u) { return "place=\"" + escaped(u.place) + "\""; };
  out.family("vigil_stack_high_water_bytes",
             "gauge",
             "The most that one of the measured fibers has used of its stack, by their birth.",
             "bytes");
  for (const stack_use& u : all)
    out.sample("", of(u), std::uint64_t{u.most_bytes});
  out.family("vigil_stack_size_bytes",
             "gauge",
             "The smallest stack that one of the measured fibers had.",
             "bytes");
  for (const stack_use& u : all)
    out.sample("", of(u), std::uint64_t{u.least_stack});
  out.family("vigil_stack_used_bytes",
             "histogram",
             "Use of their stacks by measured fibers that have ended.",
             "bytes");
  for (const stack_use& u : all) {
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < stack_use::buckets; ++i) {
      sum += u.count[i];
      const std::string le = std::to_string(stack_use::first_bound << i) + ".0";
      out.sample("_bucket", with(of(u), "le", le), sum);
    }
    out.sample("_bucket", with(of(u), "le", "+Inf"), sum);
    out.sample("_count", of(u), sum);
    out.sample("_sum", of(u), u.sum_bytes);
  }
}

void write_fibers(exposition& out, const std::vector<runtime_facts>& all) {
  out.family("vigil_fiber_state", "gauge", "Fibers by state.");
  for (const runtime_facts& r : all) {
    for (std::size_t i = 0; i < states; ++i) {
      const char* const state = to_string(detail::fiber_state(i));
      out.sample("", with(r.of, "state", state), r.by_state[i]);
    }
  }
  out.family("vigil_fiber_waiting", "gauge", "Parked fibers by what they wait for.");
  for (const runtime_facts& r : all) {
    for (std::size_t i = 0; i < reasons; ++i) {
      const char* const reason = to_string(detail::wait_reason(i));
      if (r.by_reason[i] != 0) out.sample("", with(r.of, "reason", reason), r.by_reason[i]);
    }
  }
  out.family("vigil_fiber_flagged", "gauge", "Fibers by what a dump says of them besides.");
  for (const runtime_facts& r : all) {
    for (std::size_t i = 0; i < fields; ++i) {
      const detail::fiber_field& f = detail::fiber_fields[i];
      if (f.kind == detail::field_kind::flag)
        out.sample("", with(r.of, "flag", f.key), r.by_flag[i]);
    }
  }
}

double seconds(detail::nanos n) {
  return static_cast<double>(n) / 1e9;
}

// Writes the places with most fibers of each runtime; the others count together.
void write_places(exposition& out, const process_facts& all) {
  constexpr std::size_t places_shown = 20;
  out.family("vigil_fiber_place", "gauge", "Fibers by the place where they were started.");
  for (const runtime_facts& r : all.runtimes) {
    std::map<std::string, std::uint64_t> by_place;
    const detail::fiber_row* const* const rows = all.births->by_count();
    for (std::size_t i = 0; i < all.births->rows(); ++i) {
      if (rows[i]->oldest.sched != r.sched) continue;
      by_place[detail::place_in_words(rows[i]->oldest).text] += rows[i]->count;
    }
    std::vector<std::pair<std::string, std::uint64_t>> first(by_place.begin(), by_place.end());
    std::ranges::stable_sort(
        first, std::greater<>(), &std::pair<std::string, std::uint64_t>::second);
    first.resize(std::min(first.size(), places_shown));
    std::uint64_t others = r.fibers_seen();
    for (const auto& [place, count] : first) {
      out.sample("", with(r.of, "place", escaped(place)), count);
      others -= count;
    }
    out.sample("", with(r.of, "place", "others"), others);
  }
}

void write_work(exposition& out, const std::vector<runtime_facts>& all) {
  out.family("vigil_fiber_oldest_ready_seconds",
             "gauge",
             "For how long a ready fiber has waited by now for a worker, of the oldest, at least.",
             "seconds");
  for (const runtime_facts& r : all)
    out.sample("", r.of, seconds(r.stats.oldest_ready.count()));
  out.family("vigil_fiber_longest_run_seconds",
             "gauge",
             "For how long a fiber has run by now without a switch, of the longest, at least.",
             "seconds");
  for (const runtime_facts& r : all)
    out.sample("", r.of, seconds(r.longest_run));
  out.family("vigil_worker_busy_seconds",
             "counter",
             "For how long a worker did not sleep for want of work.",
             "seconds");
  for (const runtime_facts& r : all) {
    for (std::size_t i = 0; i < r.busy.size(); ++i)
      out.sample("_total", with(r.of, "worker", std::to_string(i)), seconds(r.busy[i]));
  }
}

void write_tasks(exposition& out, const std::vector<runtime_facts>& all) {
  using detail::fiber_state;
  out.family("vigil_task_state", "gauge", "Tasks by state.");
  for (const runtime_facts& r : all) {
    const auto sample = [&](fiber_state state, std::size_t n) {
      out.sample("", with(r.of, "state", to_string(state)), std::uint64_t{n});
    };
    sample(fiber_state::runnable, r.tasks.runnable);
    sample(fiber_state::running, r.tasks.running);
    sample(fiber_state::parked, r.tasks.parked());
  }
}

// Writes what belongs to the whole process.
void write_process(exposition& out) {
  const detail::stack_stats stacks = detail::read_stack_stats();
  out.family("vigil_stack_count", "gauge", "Stacks in use.");
  out.sample("", "", std::uint64_t{stacks.in_use});
  out.family("vigil_stack_mapped_bytes", "gauge", "Address space of all stacks.", "bytes");
  out.sample("", "", std::uint64_t{stacks.mapped_bytes});
  const detail::kernel_clock clock = detail::present_clock();
  out.family(
      "vigil_clock_source", "info", "The kernel's clock source; slow: a look is a system call.");
  out.sample("_info",
             "source=\"" + clock.name + "\",slow=\"" + (clock.is_slow ? "true" : "false") + "\"",
             std::uint64_t{1});
}

}  // namespace

std::string openmetrics() {
  const process_facts facts = collect();
  const std::vector<runtime_facts>& all = facts.runtimes;
  exposition out;
  write_fibers(out, all);
  write_places(out, facts);
  write_work(out, all);
  write_tasks(out, all);
  for (const plain_family& f : gauges) {
    out.family(f.name, "gauge", f.help);
    one_each(out, all, "", [&f](const runtime_stats& s) { return s.*f.value; });
  }
  for (const plain_family& f : counters) {
    out.family(f.name, "counter", f.help);
    one_each(out, all, "_total", [&f](const runtime_stats& s) { return s.*f.value; });
  }
  out.family("vigil_worker_wakeups", "counter", "Ends of workers' sleeps, by what they found.");
  for (const runtime_facts& r : all) {
    out.sample("_total", with(r.of, "found", "work"), r.stats.wakes_useful);
    out.sample("_total", with(r.of, "found", "nothing"), r.stats.wakes_needless);
  }
  out.family(
      "vigil_timer_lateness_seconds", "histogram", "From the deadline to the firing.", "seconds");
  histogram(out, all, [](const runtime_stats& s) -> const delay_histogram& { return s.lateness; });
  out.family("vigil_fiber_schedule_duration_seconds",
             "histogram",
             "From ready to running, of one fiber in 64.",
             "seconds");
  histogram(
      out, all, [](const runtime_stats& s) -> const delay_histogram& { return s.run_queue_delay; });
  write_blocking(out, all);
  write_process(out);
  write_stack_use(out);
  return std::move(out).end();
}

}  // namespace VIGIL_PUBLIC::inspect
