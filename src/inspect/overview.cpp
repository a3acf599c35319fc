#include "inspect/overview.hpp"

#include "core/base/foreign_memory.hpp"
#include "core/sched/report/dump.hpp"
#include "core/sched/report/fiber_table.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "core/timer/timer_service.hpp"
#include "inspect/awaited_json.hpp"
#include "inspect/fiber_json.hpp"
#include "inspect/group_report.hpp"
#include "inspect/json_text.hpp"
#include "inspect/task_walk.hpp"

#include <vigil/stats.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

namespace VIGIL_DETAIL {
namespace {

namespace json = boost::json;

constexpr std::size_t deadlines_shown_at_most = 20;

struct worker_facts {
  unsigned index;
  int thread;
  std::uint64_t switches;
  std::uint64_t steals;
  nanos busy;
  bool runs_one = false;
  fiber_view one = {};

  // How long the fiber has run, at least; -1: there is none, or it is not known.
  nanos has_run() const noexcept {
    return runs_one && one.ran.has_value() ? one.ran->at_least : -1;
  }
};

struct observed_runtime {
  const scheduler* sched;  // only compared
  std::uint64_t number;
  runtime_stats stats;
  std::vector<worker_facts> workers;
};

struct wait_with_deadline {
  std::size_t runtime;
  nanos due_in;
  fiber_view fiber;
};

struct due_timer {
  std::size_t runtime;
  nanos due_in;
  timer_holder timer;
};

class survey {
 public:
  void add(const scheduler& s) {
    if (s.settings().is_observer) return;
    const std::size_t index = runtimes_.size();
    observed_runtime& r = runtimes_.emplace_back();
    r.sched = &s;
    r.number = s.number();
    s.add_stats(r.stats);
    for (const auto& w : s.workers()) {
      r.workers.push_back({.index = w->index,
                           .thread = w->kernel_thread.load(),
                           .switches = w->counters.switches.get(),
                           .steals = w->counters.steals.get(),
                           .busy = w->counters.busy.get()});
    }
    timer_holder next[deadlines_shown_at_most];
    const nanos now = s.clock.now();
    // The heap's lock is taken, so the service is not const.
    const std::size_t n =
        service_of(const_cast<scheduler&>(s)).list_next(next, deadlines_shown_at_most);
    for (std::size_t i = 0; i < n; ++i)
      timers_.push_back({index, next[i].deadline - now, next[i]});
    add_tasks(s);
  }

  void visit(const stack& where) {
    fiber_view s;
    if (!take_view(where, s)) return;
    if (s.role != fiber_role::user && s.role != fiber_role::main) return;
    for (std::size_t i = 0; i < runtimes_.size(); ++i) {
      if (runtimes_[i].sched == s.sched) return count(s, where, i);
    }
  }

  // Reads what the oldest one of each group waits for. Caller: as of take_view().
  void read_objects() {
    const fiber_row* const* const rows = fibers_->by_count();
    for (std::size_t i = 0; i < fibers_->rows(); ++i) {
      awaited_object o;
      json::object wait;
      if (read_awaited(rows[i]->where, rows[i]->oldest, o)) add_awaited(wait, o, {});
      objects_.push_back(std::move(wait));
    }
  }

  overview take() {
    return {json::serialize(fibers()),
            json::serialize(tasks()),
            json::serialize(workers()),
            json::serialize(deadlines()),
            json::serialize(lateness())};
  }

 private:
  void add_tasks(const scheduler& s) {
    const std::size_t room = fibers_shown_at_most - tasks_grouped_->all();
    const shown_tasks all = walk_tasks(s, room, [&](runtime_part&, const shown_tasks& some) {
      for (std::size_t i = 0; i < some.copied; ++i)
        tasks_grouped_->add(some.to[i], {});
    });
    tasks_.all += all.all;
    tasks_.runnable += all.runnable;
    tasks_.running += all.running;
  }

  void count(const fiber_view& s, const stack& where, std::size_t runtime) {
    fibers_->add(s, where);
    if (s.state == fiber_state::parked && s.until != never) add_wait({runtime, s.until - s.now, s});
    if (s.state == fiber_state::running) place(s, runtimes_[runtime]);
  }

  // Keeps the earliest, in order.
  void add_wait(wait_with_deadline&& w) {
    const auto later = [](const auto& a, const auto& b) { return a.due_in < b.due_in; };
    const bool is_full = waits_.size() == deadlines_shown_at_most;
    if (is_full && !later(w, waits_.back())) return;
    if (is_full) waits_.pop_back();
    waits_.insert(std::upper_bound(waits_.begin(), waits_.end(), w, later), std::move(w));
  }

  // A fiber that has just left its worker is left out.
  static void place(const fiber_view& s, observed_runtime& r) {
    for (worker_facts& w : r.workers) {
      if (s.thread == 0 || w.thread != s.thread) continue;
      w.runs_one = true;
      w.one = s;
    }
  }

  json::object fibers() {
    json::object o = groups_of(*fibers_, fibers_->all());
    add_keys(o, *fibers_);
    json::array& groups = o["groups"].as_array();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      json::object& oldest = groups[i].as_object()["oldest"].as_object();
      if (oldest.contains("waits_for")) {
        json::object& wait = oldest["waits_for"].as_object();
        wait.insert(objects_[i].begin(), objects_[i].end());
      }
    }
    return o;
  }

  static void add_keys(json::object& to, fiber_table& table) {
    const fiber_row* const* const rows = table.by_count();
    json::array& groups = to["groups"].as_array();
    for (std::size_t i = 0; i < groups.size(); ++i) {
      json::object& group = groups[i].as_object();
      group["key"] = group_key(rows[i]->oldest);
      if (rows[i]->has_other_objects) group["other_objects"] = true;
    }
  }

  json::object tasks() const {
    json::object o = groups_of(*tasks_grouped_, tasks_.all);
    add_keys(o, *tasks_grouped_);
    o["runnable"] = tasks_.runnable;
    o["running"] = tasks_.running;
    o["parked"] = tasks_.parked();
    return o;
  }

  static json::object worker(const worker_facts& w) {
    json::object o{{"index", w.index},
                   {"thread", w.thread},
                   {"switches", w.switches},
                   {"steals", w.steals},
                   {"busy_nanoseconds", w.busy}};
    if (w.runs_one) o["runs"] = json_of(w.one);
    return o;
  }

  json::array workers() const {
    json::array all;
    for (const observed_runtime& r : runtimes_) {
      json::array of;
      const worker_facts* longest = nullptr;
      for (const worker_facts& w : r.workers) {
        of.push_back(worker(w));
        if (w.has_run() > (longest != nullptr ? longest->has_run() : -1)) longest = &w;
      }
      json::object one{{"runtime", r.number},
                       {"asleep", r.stats.workers_asleep},
                       {"fibers_alive", r.stats.fibers_alive},
                       {"timers_pending", r.stats.timers_pending},
                       {"io_pending", r.stats.io_pending},
                       {"oldest_ready_nanoseconds", r.stats.oldest_ready.count()},
                       {"workers", std::move(of)}};
      if (longest != nullptr) one["longest_running"] = json_of(longest->one);
      all.push_back(std::move(one));
    }
    return all;
  }

  json::array deadlines() const {
    std::vector<std::pair<nanos, json::object>> all;
    for (const wait_with_deadline& w : waits_) {
      all.push_back({w.due_in,
                     {{"runtime", runtimes_[w.runtime].number},
                      {"due_in_nanoseconds", w.due_in},
                      {"fiber", json_of(w.fiber)},
                      {"waits_for", to_string(w.fiber.reason)}}});
    }
    for (const due_timer& t : timers_) {
      json::object timer{{"repeats", t.timer.periodic}};
      if (t.timer.made_at.file != nullptr) {
        timer["made_at"] = site_of(copied_text(t.timer.made_at.file).get(), t.timer.made_at.line);
      }
      all.push_back({t.due_in,
                     {{"runtime", runtimes_[t.runtime].number},
                      {"due_in_nanoseconds", t.due_in},
                      {"timer", std::move(timer)}}});
    }
    std::stable_sort(
        all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    json::array first;
    for (std::size_t i = 0; i < std::min(all.size(), deadlines_shown_at_most); ++i)
      first.push_back(std::move(all[i].second));
    return first;
  }

  static json::object histogram(const delay_histogram& h) {
    json::array buckets;
    for (std::size_t i = 0; i < delay_histogram::buckets; ++i)
      buckets.push_back(h.count[i]);
    return {{"buckets", std::move(buckets)},
            {"sum_nanoseconds", h.sum_nanos},
            {"max_nanoseconds", h.max_nanos}};
  }

  json::array lateness() const {
    json::array all;
    for (const observed_runtime& r : runtimes_) {
      all.push_back(json::object{{"runtime", r.number},
                                 {"timers", histogram(r.stats.lateness)},
                                 {"ready_fibers", histogram(r.stats.run_queue_delay)}});
    }
    return all;
  }

  std::vector<observed_runtime> runtimes_;
  const std::unique_ptr<fiber_table> fibers_ = std::make_unique<fiber_table>();
  std::vector<json::object> objects_;  // of its rows, in the order of by_count()
  shown_tasks tasks_;                  // the numbers alone
  const std::unique_ptr<fiber_table> tasks_grouped_ = std::make_unique<fiber_table>();
  std::vector<wait_with_deadline> waits_;
  std::vector<due_timer> timers_;
};

// Calls f, unless an earlier call has failed: the walks must not throw.
template <class F>
void guarded(std::exception_ptr& error, F f) noexcept {
  if (error != nullptr) return;
  try {
    f();
  } catch (...) {
    error = std::current_exception();
  }
}

}  // namespace

overview take_overview() {
  struct walk {
    survey all;
    std::exception_ptr error;
  } here;

  {
    const handler_scope inside;
    for_each_running([&here](const scheduler& s, runtime_slot&) {
      guarded(here.error, [&] { here.all.add(s); });
    });
    const slab_hold hold;
    for_each_stack_in_use(
        [](const stack& where, void* argument) noexcept {
          walk& w = *static_cast<walk*>(argument);
          guarded(w.error, [&] { w.all.visit(where); });
        },
        &here);
    guarded(here.error, [&] { here.all.read_objects(); });
  }
  if (here.error != nullptr) std::rethrow_exception(here.error);
  return here.all.take();
}

}  // namespace VIGIL_DETAIL
