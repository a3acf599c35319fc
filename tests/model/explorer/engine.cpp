#include "explorer/engine.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>

#include <boost/context/detail/fcontext.hpp>

#include <cxxabi.h>
#include <sys/mman.h>

namespace model {

engine* the_engine = nullptr;

namespace {

namespace fcontext = boost::context::detail;

constexpr std::size_t stack_size = 512 * 1024;
constexpr std::uint64_t longest_run = 100'000;
// How often threads may spin in turn without anybody writing.
constexpr std::uint64_t patience = 400;

constexpr thread_mask bit(unsigned t) noexcept {
  return thread_mask{1} << t;
}

}  // namespace

struct thread_entry {
  // The first instruction of each thread, on its own stack.
  static void run(fcontext::transfer_t from) {
    static_cast<thread*>(from.data)->context = from.fctx;
    engine& e = engine::get();
    thread& self = e.threads_[e.current_];
    e.enter_locals(self);
    e.inside = false;
    try {
      self.start(self.argument);
    } catch (...) {
      e.fail("an exception leaves the thread");
    }
    e.end_thread();
  }
};

engine::engine() {
  void* const mapped = ::mmap(nullptr,
                              stack_size * max_threads,
                              PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                              -1,
                              0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  stacks_ = static_cast<std::byte*>(mapped);
  for (thread& t : threads_)
    t.locals.resize(thread_locals_size());
  main_.locals.resize(thread_locals_size());
}

engine& engine::get() {
  if (the_engine == nullptr) the_engine = new engine;
  return *the_engine;
}

// --- threads

void engine::leave_locals(thread& t) {
  std::memcpy(t.locals.data(), thread_locals(), t.locals.size());
  std::memcpy(t.exceptions.data(), abi::__cxa_get_globals(), sizeof t.exceptions);
  t.error_number = errno;
}

void engine::enter_locals(thread& t) {
  std::memcpy(thread_locals(), t.locals.data(), t.locals.size());
  std::memcpy(abi::__cxa_get_globals(), t.exceptions.data(), sizeof t.exceptions);
  errno = t.error_number;
}

void engine::switch_to(unsigned t) {
  thread& from = threads_[current_];
  leave_locals(from);
  current_ = t;
  ++switches_;
  const auto back = fcontext::jump_fcontext(threads_[t].context, &from);
  static_cast<thread*>(back.data)->context = back.fctx;
  enter_locals(threads_[current_]);
}

unsigned engine::create_thread(void (*start)(void*), void* argument) {
  reach({});
  if (thread_count_ == max_threads) fail("the program starts more threads than the explorer has");
  const unsigned t = thread_count_++;
  thread& made = threads_[t];
  made.start = start;
  made.argument = argument;
  made.state = thread_state::ready;
  made.next = {};
  made.context = fcontext::make_fcontext(
      stacks_ + stack_size * (t + 1) - 64, stack_size - 128, &thread_entry::run);
  std::memcpy(made.locals.data(), thread_locals_image(), made.locals.size());
  made.exceptions = {};
  if (t != 0) {
    memory_.hand_over(current_, t);
    comes_after(t, current_);
  }
  return t;
}

void engine::end_thread() {
  inside = true;
  threads_[current_].next = {};
  threads_[current_].state = thread_state::ended;
  memory_.tick(current_);
  ++writes_;
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (threads_[t].state != thread_state::ended) {
      schedule();
      break;
    }
  }
  end_run();
}

void engine::end_run() {
  inside = true;
  fcontext::jump_fcontext(main_.context, &threads_[current_]);
  std::abort();
}

void engine::fail(const std::string& fault) {
  inside = true;
  fault_ = fault;
  end_run();
}

void engine::ends(const void* start, std::size_t size) {
  if (!running_) return;
  const char* const fault = memory_.end_of(reinterpret_cast<std::uintptr_t>(start), size, current_);
  if (fault == nullptr) return;
  trace(__builtin_return_address(0), "%s", fault);
  fail(fault);
}

void engine::comes_after(unsigned to, unsigned from) {
  for (unsigned i = 0; i < max_threads; ++i) {
    threads_[to].clock[i] = std::max(threads_[to].clock[i], threads_[from].clock[i]);
  }
}

// --- who goes on

bool engine::can_run(unsigned t) {
  thread& it = threads_[t];
  switch (it.state) {
    case thread_state::ready:
      return true;
    case thread_state::paused:
      return writes_ > it.paused_at;
    case thread_state::joining:
      return threads_[it.joined].state == thread_state::ended;
    case thread_state::waiting:
      return it.condition(it.condition_argument);
    case thread_state::locked:
      return writes_ > it.paused_at;
    case thread_state::absent:
    case thread_state::sleeping:
    case thread_state::ended:
      return false;
  }
  return false;
}

thread_mask engine::enabled_threads() {
  thread_mask mask = 0;
  for (unsigned t = 0; t < thread_count_; ++t) {
    if (can_run(t)) mask |= bit(t);
  }
  return mask;
}

// Nobody can go on by himself: spinning threads look again, or time passes.
unsigned engine::choose_without_ready() {
  ++idle_rounds_;
  unsigned spins = max_threads;
  unsigned sleeps = max_threads;
  // Of equals the next one round, so that each has its turn.
  for (unsigned i = 1; i <= thread_count_; ++i) {
    const unsigned t = (current_ + i) % thread_count_;
    const thread& it = threads_[t];
    if (it.state == thread_state::paused &&
        (spins == max_threads || it.paused_at < threads_[spins].paused_at)) {
      spins = t;
    }
    if (it.state == thread_state::sleeping && it.until != INT64_MAX &&
        (sleeps == max_threads || it.until < threads_[sleeps].until)) {
      sleeps = t;
    }
  }
  if (spins != max_threads && idle_rounds_ < patience) return spins;
  if (sleeps != max_threads) {
    idle_rounds_ = 0;
    if (!exploring()) return sleeps;
    // Who sleeps longer may still be the first to go on.
    thread_mask timed = 0;
    for (unsigned t = 0; t < thread_count_; ++t) {
      const thread& it = threads_[t];
      if (it.state == thread_state::sleeping && it.until != INT64_MAX) timed |= bit(t);
    }
    return std::popcount(timed) == 1 ? sleeps : decide(0, timed, sleeps);
  }
  if (spins != max_threads) {
    if (idle_rounds_ < 4 * patience) return spins;
    fail("a thread spins for ever: nobody can change what it waits for");
  }
  std::string who;
  for (unsigned t = 0; t < thread_count_; ++t) {
    const char* what = "";
    switch (threads_[t].state) {
      case thread_state::sleeping:
        what = "sleeps on a futex";
        break;
      case thread_state::joining:
        what = "joins a thread";
        break;
      case thread_state::waiting:
        what = "is busy until something happens";
        break;
      case thread_state::locked:
        what = "waits for a mutex";
        break;
      case thread_state::ended:
        continue;
      default:
        what = "?";
    }
    who += (who.empty() ? "thread " : ", thread ") + std::to_string(t) + " " + what;
  }
  fail("nobody can ever go on: " + who);
}

unsigned engine::choose_thread() {
  last_decision_ = -1;
  const thread_mask ready = enabled_threads();
  if (ready == 0) return choose_without_ready();
  thread_mask enabled = ready;
  if (exploring()) {
    for (unsigned t = 0; t < thread_count_; ++t) {
      if (threads_[t].state == thread_state::sleeping && threads_[t].until != INT64_MAX)
        enabled |= bit(t);
    }
  }
  // The same thread goes on; if it cannot, the first that can. Who spins comes
  // last, so that spinning threads do not go round among themselves.
  unsigned usual = current_;
  if ((ready & bit(current_)) == 0) {
    thread_mask spinning = 0;
    for (unsigned t = 0; t < thread_count_; ++t) {
      if (threads_[t].state == thread_state::paused) spinning |= bit(t);
    }
    const thread_mask first = (ready & ~spinning) != 0 ? ready & ~spinning : ready;
    usual = static_cast<unsigned>(std::countr_zero(first));
    for (unsigned t = 0; first == ready && (first & spinning) != 0 && t < thread_count_; ++t) {
      if ((first & bit(t)) != 0 && threads_[t].paused_at < threads_[usual].paused_at) usual = t;
    }
  }
  if (!exploring()) return usual;
  if (std::popcount(enabled) == 1) {
    if (!replaying_ && (asleep_ & enabled) != 0) {
      cut_ = true;
      end_run();
    }
    return usual;
  }
  return decide(ready, enabled, usual);
}

// `ready`: those of the enabled that go on without a timeout.
// What a new decision finds used up: what the one before did, and what that cost.
void engine::count_budget(decision& d) const {
  if (depth_ == 0) return;
  const decision& before = path_[depth_ - 1];
  const bool paid = before.what == decision::kind::thread && before.taken != before.previous &&
                    (before.ready & bit(before.previous)) != 0;
  d.preemptions = static_cast<std::int16_t>(before.preemptions + (paid ? 1 : 0));
  d.stale = static_cast<std::int16_t>(
      before.stale + (before.what == decision::kind::value && before.chosen != 0 ? 1 : 0));
}

unsigned engine::decide(thread_mask ready, thread_mask enabled, unsigned usual) {
  const bool all_unlimited = uses_sleep();
  if (depth_ == path_.size()) {
    decision d;
    d.what = decision::kind::thread;
    d.open = true;
    d.previous = static_cast<std::uint8_t>(current_);
    d.ready = ready;
    d.enabled = enabled;
    d.asleep = all_unlimited ? asleep_ : 0;
    count_budget(d);
    unsigned taken = max_threads;
    if (replaying_) {
      taken = depth_ < script_.size() ? script_[depth_] : max_threads;
      if (taken < max_threads && (enabled & bit(taken)) == 0) {
        fail("the schedule does not fit the program: it was made from another one");
      }
    }
    if (taken == max_threads) {
      thread_mask awake = ready & ~d.asleep;
      if (awake == 0) awake = enabled & ~d.asleep;
      if (awake == 0) {
        cut_ = true;  // all that could follow has been seen in another order
        end_run();
      }
      taken = (awake & bit(usual)) != 0 ? usual : static_cast<unsigned>(std::countr_zero(awake));
    }
    d.taken = static_cast<std::uint8_t>(taken);
    d.wanted = bounds_.reduce ? bit(taken) : enabled;
    path_.push_back(d);
  }
  decision& d = path_[depth_];
  if (d.what != decision::kind::thread || d.enabled != enabled ||
      d.previous != static_cast<std::uint8_t>(current_)) {
    std::fprintf(stderr,
                 "model: the program does not repeat itself: its run depends on something beyond "
                 "the schedule, such as an address or a real clock\n");
    std::abort();
  }
  last_decision_ = static_cast<std::int32_t>(depth_);
  asleep_ = all_unlimited ? (d.asleep | d.done) & ~bit(d.taken) : 0;
  ++depth_;
  return d.taken;
}

std::uint16_t engine::choose_value(std::uint16_t n) {
  if (n <= 1 || !exploring()) return 0;
  if (depth_ == path_.size()) {
    decision d;
    d.what = decision::kind::value;
    d.open = true;
    d.choices = n;
    count_budget(d);
    if (replaying_ && depth_ < script_.size()) {
      d.chosen = script_[depth_];
      if (d.chosen >= n)
        fail("the schedule does not fit the program: it was made from another one");
    }
    path_.push_back(d);
  }
  return path_[depth_++].chosen;
}

bool engine::affords(const decision& d, unsigned t) const noexcept {
  if (bounds_.preemptions == unlimited) return true;
  const bool pays = t != d.previous && (d.ready & bit(d.previous)) != 0;
  return d.preemptions + (pays ? 1 : 0) <= bounds_.preemptions;
}

void engine::schedule() {
  const unsigned t = choose_thread();
  if (threads_[current_].state == thread_state::ready && t == current_) return;
  if (t != current_) block_decision_ = last_decision_;
  if (t == current_) return;
  switch_to(t);
}

void engine::reach(const pending& next) {
  threads_[current_].next = next;
  threads_[current_].state = thread_state::ready;
  schedule();
  threads_[current_].state = thread_state::ready;
  record(next);
}

void engine::block() {
  schedule();
  threads_[current_].state = thread_state::ready;
}

// --- the reduction

void engine::want(std::int32_t index, unsigned t) {
  if (index < 0) return;
  decision& d = path_[static_cast<std::size_t>(index)];
  if (d.what != decision::kind::thread) return;
  d.wanted |= (d.enabled & bit(t)) != 0 ? bit(t) : d.enabled;
}

// The present operation of thread t meets an earlier one of thread q: the other
// order is to be tried.
void engine::want_before(unsigned q,
                         const location::access& a,
                         unsigned t,
                         const step_clock& clock_of_present) {
  if (a.decision < 0) return;
  if (!uses_sleep()) {
    want(a.decision, t);
    // With few preemptions the other order may be within reach only if the
    // thread in between did not even begin its turn.
    want(a.block, t);
    return;
  }
  // Who may begin it: the threads whose first operation since then comes after
  // nothing but what came before. Threads that sleep at that decision have
  // begun there before.
  decision& d = path_[static_cast<std::size_t>(a.decision)];
  std::size_t first = history_.size();
  while (first > 0 && !(history_[first - 1].thread == q && history_[first - 1].after[q] == a.step))
    --first;
  thread_mask seen = 0;
  thread_mask initial = 0;
  between_.clear();
  for (std::size_t j = first; j <= history_.size(); ++j) {
    const bool present = j == history_.size();
    const unsigned who = present ? t : history_[j].thread;
    const step_clock& after = present ? clock_of_present : history_[j].after;
    if (!present && after[q] >= a.step) continue;  // comes after the earlier one
    if ((seen & bit(who)) == 0) {
      seen |= bit(who);
      bool begins = true;
      for (const std::size_t k : between_) {
        const past_step& before = history_[k];
        if (after[before.thread] >= before.after[before.thread]) begins = false;
      }
      if (begins) initial |= bit(who);
    }
    if (!present) between_.push_back(j);
  }
  if ((initial & (d.wanted | d.asleep)) != 0) return;
  const thread_mask possible = initial & d.enabled;
  d.wanted |= possible != 0 ? possible & (~possible + 1) : d.enabled;
}

bool engine::uses_sleep() const noexcept {
  return bounds_.preemptions == unlimited && bounds_.reduce;
}

void engine::record(const pending& done) {
  if (++steps_ > longest_run) fail("a run has more than 100 000 operations: does it loop?");
  if (depth_ == path_.size()) ++report_.states;
  thread& self = threads_[current_];
  ++self.clock[current_];
  if (done.location < 0) {
    if (uses_sleep()) history_.push_back({current_, self.clock});
    return;
  }
  location& l = memory_.at(static_cast<unsigned>(done.location));
  const step_clock& after = done.writes ? l.after_all : l.after_writes;
  step_clock joined = self.clock;
  for (unsigned i = 0; i < max_threads; ++i)
    joined[i] = std::max(joined[i], after[i]);
  for (unsigned q = 0; q < thread_count_; ++q) {
    if (q == current_) continue;
    const location::access& a = done.writes ? l.last_any[q] : l.last_write[q];
    if (a.step > self.clock[q]) want_before(q, a, current_, joined);
  }
  self.clock = joined;
  for (unsigned i = 0; i < max_threads; ++i) {
    l.after_all[i] = std::max(l.after_all[i], self.clock[i]);
    if (done.writes) l.after_writes[i] = std::max(l.after_writes[i], self.clock[i]);
  }
  if (uses_sleep()) history_.push_back({current_, self.clock});
  const location::access here{self.clock[current_], last_decision_, block_decision_};
  l.last_any[current_] = here;
  if (done.writes) l.last_write[current_] = here;
  // Whoever slept because his next operation had been tried wakes up if this
  // one meets it.
  for (unsigned q = 0; asleep_ != 0 && q < thread_count_; ++q) {
    if ((asleep_ & bit(q)) == 0) continue;
    const pending& his = threads_[q].next;
    const bool meets = his.location == done.location && (his.writes || done.writes);
    if (meets || threads_[q].state != thread_state::ready) asleep_ &= ~bit(q);
  }
}

void engine::offer_timeouts(const void* word) {
  for (unsigned t = 0; t < thread_count_; ++t) {
    const thread& it = threads_[t];
    if (it.state != thread_state::sleeping || it.until == INT64_MAX) continue;
    if (word != nullptr && it.futex != word) continue;
    want(last_decision_, t);
    want(block_decision_, t);
  }
}

// The deepest decision with something left to try.
bool engine::next_run() {
  while (!path_.empty()) {
    decision& d = path_.back();
    if (d.what == decision::kind::value) {
      const bool affordable = bounds_.stale_reads == unlimited || d.stale < bounds_.stale_reads;
      if (d.open && affordable && d.chosen + 1 < d.choices) {
        ++d.chosen;
        return true;
      }
    } else if (d.open) {
      d.done |= bit(d.taken);
      const thread_mask left = d.wanted & d.enabled & ~d.done & ~d.asleep;
      for (unsigned t = 0; t < max_threads; ++t) {
        if ((left & bit(t)) == 0 || !affords(d, t)) continue;
        d.taken = static_cast<std::uint8_t>(t);
        return true;
      }
    }
    path_.pop_back();
  }
  return false;
}

// --- a run

void engine::run_once(const std::function<void()>& program) {
  world_restore();
  memory_.begin_run();
  for (thread& t : threads_) {
    t.state = thread_state::absent;
    t.clock = {};
    t.futex = nullptr;
    t.repeated_at = -1;
    t.looked_at.fill(-1);
    t.in_vain_at = 0;
  }
  program_ = &program;
  depth_ = 0;
  last_decision_ = block_decision_ = -1;
  asleep_ = 0;
  writes_ = steps_ = idle_rounds_ = 0;
  switches_ = 1;
  observing = false;
  windows_ = 0;
  clock = 1'000'000'000;
  cut_ = false;
  fault_.clear();
  trace_.clear();
  history_.clear();
  current_ = 0;
  thread_count_ = 1;
  thread& first = threads_[0];
  first.state = thread_state::ready;
  first.start = [](void* self) { (*static_cast<engine*>(self)->program_)(); };
  first.argument = this;
  first.context =
      fcontext::make_fcontext(stacks_ + stack_size - 64, stack_size - 128, &thread_entry::run);
  std::memcpy(first.locals.data(), thread_locals_image(), first.locals.size());
  first.exceptions = {};
  leave_locals(main_);
  running_ = true;
  inside = true;
  fcontext::jump_fcontext(first.context, &main_);
  running_ = false;
  enter_locals(main_);
  inside = false;
  report_.longest = std::max(report_.longest, steps_);
}

report engine::explore(const std::function<void()>& program, const bounds& within) {
  report_ = {};
  bounds_ = within;
  path_.clear();
  replaying_ = false;
  tracing = false;
  uses_windows_ = false;
  world_begin();
  for (;;) {
    run_once(program);
    if (restart_) {
      restart_ = false;
      path_.clear();
      report_ = {};
      continue;
    }
    if (!cut_) ++report_.interleavings;
    if (!fault_.empty()) {
      report_.found = true;
      report_.fault = fault_;
      report_.schedule = schedule_text();
      break;
    }
    if (!next_run()) {
      report_.complete = true;
      break;
    }
    if (report_.states >= bounds_.states) break;
  }
  world_end();
  report r = report_;
  if (r.found) {
    const report again = replay(program, r.schedule);
    r.trace = again.trace;
  }
  return r;
}

report engine::replay(const std::function<void()>& program, const std::string& schedule) {
  report_ = {};
  bounds_ = {unlimited, unlimited, 0, false};
  path_.clear();
  replaying_ = true;
  tracing = true;
  parse_schedule(schedule);
  world_begin();
  run_once(program);
  world_end();
  replaying_ = false;
  tracing = false;
  report_.interleavings = 1;
  report_.found = !fault_.empty();
  report_.fault = fault_;
  report_.schedule = schedule;
  std::set<const void*> codes;
  for (const trace_line& line : trace_)
    codes.insert(line.from);
  const auto names = source_lines(codes);
  for (const trace_line& line : trace_) {
    char text[400];
    std::snprintf(text,
                  sizeof text,
                  "%*sthread %u  %-28s %s\n",
                  static_cast<int>(line.thread * 2),
                  "",
                  line.thread,
                  names.at(line.from).c_str(),
                  line.text.c_str());
    report_.trace += text;
  }
  return report_;
}

// "w" first if the program uses windows; then "3x12" is twelve decisions in a
// row that took number 3.
std::string engine::schedule_text() const {
  std::string text = uses_windows_ ? "w" : "a";
  std::size_t i = 0;
  while (i < depth_) {
    const auto value = [this](std::size_t k) {
      const decision& d = path_[k];
      return d.what == decision::kind::thread ? std::uint16_t{d.taken} : d.chosen;
    };
    std::size_t n = 1;
    while (i + n < depth_ && value(i + n) == value(i))
      ++n;
    text += " " + std::to_string(value(i)) + (n > 1 ? "x" + std::to_string(n) : "");
    i += n;
  }
  return text;
}

void engine::parse_schedule(const std::string& text) {
  script_.clear();
  uses_windows_ = !text.empty() && text[0] == 'w';
  const char* at = text.c_str();
  if (*at != '\0') ++at;
  while (*at != '\0') {
    char* end = nullptr;
    const unsigned long value = std::strtoul(at, &end, 10);
    if (end == at) break;
    at = end;
    unsigned long n = 1;
    if (*at == 'x') {
      n = std::strtoul(at + 1, &end, 10);
      at = end;
    }
    script_.insert(script_.end(), n, static_cast<std::uint16_t>(value));
    while (*at == ' ')
      ++at;
  }
}

void engine::trace(const void* from, const char* format, ...) {
  if (!tracing) return;
  char text[200];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  trace_.push_back({current_, from, text});
}

// A program that uses windows is explored in them only: what was decided before
// the first one is forgotten.
void engine::open_window() {
  ++windows_;
  if (uses_windows_) return;
  uses_windows_ = true;
  restart_ = true;
  end_run();
}

// --- for programs

report explore(const std::function<void()>& program, const bounds& within) {
  return engine::get().explore(program, within);
}

report replay(const std::function<void()>& program, const std::string& schedule) {
  return engine::get().replay(program, schedule);
}

}  // namespace model
