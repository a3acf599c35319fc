#include "core/blocking/side_pool.hpp"

#include "core/base/clock_source.hpp"
#include "core/machine/process_threads.hpp"
#include "core/sched/process/process_fork.hpp"
#include "core/sched/queue/delay_counters.hpp"
#include "core/sched/run_core.hpp"

#include <cerrno>
#include <cstdlib>
#include <stdexcept>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

constexpr std::size_t most_threads = 1024;
constexpr std::size_t default_threads = 4;
constexpr const char* variable = "VIGIL_BLOCKING_THREADS";

// The pool of the calling thread. A fiber that asks does not park in between (G10).
thread_local const side_pool* pool_of_thread = nullptr;

// Returns the whole text as a number; 0, which no size may be either, if it is not one.
std::size_t number_in(const char* text) noexcept {
  if (*text < '0' || *text > '9') return 0;
  char* end = nullptr;
  errno = 0;
  const unsigned long n = std::strtoul(text, &end, 10);
  return *end != '\0' || errno != 0 ? 0 : n;
}

// Counts a thread of a pool, from before it starts until after it has ended.
void count_thread(int change) noexcept {
  process_count_own_threads(change);
  process_count_quiet_threads(change);
}

// While it lives, the pool's thread runs the user's code, which may ready any fiber.
class users_code {
 public:
  users_code() noexcept { process_count_quiet_threads(-1); }

  ~users_code() { process_count_quiet_threads(1); }

  users_code(const users_code&) = delete;
  users_code& operator=(const users_code&) = delete;
};

}  // namespace

std::size_t side_pool_size(std::optional<std::size_t> asked) {
  if (asked.has_value()) {
    if (*asked >= 1 && *asked <= most_threads) return *asked;
    throw std::invalid_argument("vigil: a side pool of " + std::to_string(*asked) +
                                " threads; it must have 1 to 1024 (leave the number out for " +
                                variable + ", or else 4)");
  }
  const char* const given = std::getenv(variable);
  if (given == nullptr) return default_threads;
  const std::size_t n = number_in(given);
  if (n >= 1 && n <= most_threads) return n;
  throw std::invalid_argument("vigil: " + std::string(variable) + " is \"" + given +
                              "\"; it must be a number from 1 to 1024 (unset it for 4)");
}

side_pool::side_pool(std::optional<std::size_t> size, std::string_view name)
    : asked_(size), name_(name) {}

side_pool::~side_pool() {
  std::size_t places = 0;
  bool is_left = false;
  {
    const lock_guard guard(lock_);
    close();
    places = size_;
    is_left = is_left_;
  }
  // The caller that submitted the last function may still be starting its thread.
  while (somebody_starts())
    std::this_thread::yield();
  for (std::size_t i = 0; i < places; ++i) {
    std::thread& t = places_[i].thread;
    if (!t.joinable()) continue;
    if (is_left) {
      t.detach();  // BP7
    } else {
      t.join();
    }
    process_count_own_threads(-1);
  }
}

void side_pool::end(side_pool* pool) noexcept {
  if (pool_of_thread != pool) {
    delete pool;
    return;
  }
  const lock_guard guard(pool->lock_);
  pool->is_left_ = true;
  pool->close();
}

void side_pool::close() noexcept {
  closing_ = true;
  // Under the lock, as in submit(): before its release no woken thread can be the last.
  while (place* const p = resting_.pop_front())
    p->sleep.wake();
}

bool side_pool::is_last() const noexcept {
  return is_left_ && threads_ == 0 && starting_ == 0;
}

bool side_pool::somebody_starts() noexcept {
  const lock_guard guard(lock_);
  return starting_ != 0;
}

void side_pool::prepare() {
  {
    const lock_guard guard(lock_);
    if (size_ != 0) return;
  }
  const std::size_t size = side_pool_size(asked_);
  auto places = std::make_unique<place[]>(size);
  const lock_guard guard(lock_);
  if (size_ != 0) return;  // another caller was faster
  places_ = std::move(places);
  size_ = size;
}

void side_pool::submit(side_job& job) noexcept {
  place* fresh = nullptr;
  std::size_t number = 0;
  {
    const lock_guard guard(lock_);
    queue_.push_back(job);
    if (place* const p = resting_.pop_front()) {
      // Under the lock: the pool cannot go before its thread has taken the lock.
      p->sleep.wake();
      return;
    }
    if (threads_ == size_) return;
    while (places_[number].used)
      ++number;
    fresh = &places_[number];
    fresh->used = true;
    ++threads_;
    ++starting_;
  }
  count_thread(1);
  if (const std::exception_ptr error = start_thread(*fresh, number)) start_failed(*fresh, error);
  bool last = false;
  {
    const lock_guard guard(lock_);
    --starting_;  // the last touch: the function may have run, and the pool may be about to go
    last = is_last();
  }
  if (last) delete this;
}

std::exception_ptr side_pool::start_thread(place& p, std::size_t number) noexcept {
  try {
    try {
      p.thread = std::thread([this, &p, number] { body(p, number); });
      return nullptr;
    } catch (const std::system_error& e) {
      throw std::system_error(e.code(),
                              "vigil::blocking: the first thread of the side pool \"" + name_ +
                                  "\" cannot be started; raise the limit on threads (ulimit -u, "
                                  "cgroup pids.max)");
    }
  } catch (...) {
    return std::current_exception();
  }
}

void side_pool::start_failed(place& p, const std::exception_ptr& error) noexcept {
  {
    const lock_guard guard(lock_);
    p.used = false;
    --threads_;
  }
  count_thread(-1);
  for (;;) {
    side_job* job = nullptr;
    {
      const lock_guard guard(lock_);
      if (threads_ == 0) job = queue_.pop_front();  // otherwise a thread takes it: BP5
    }
    if (job == nullptr) return;
    job->refused = error;
    give_back(*job);
  }
}

bool side_job::withdraw() noexcept {
  return pool->withdraw(*this);
}

bool side_pool::withdraw(side_job& job) noexcept {
  const lock_guard guard(lock_);
  if (!job.queued.linked) return false;
  queue_.remove(job);
  return true;
}

void side_pool::body(place& here, std::size_t number) noexcept {
  process_is_quiet_thread();
  const int thread = ::gettid();
  // The kernel keeps fifteen bytes; the number is worth more than the name.
  std::string suffix(1, '/');
  suffix += std::to_string(number + 1);
  pool_of_thread = this;
  ::pthread_setname_np(::pthread_self(), (name_.substr(0, 15 - suffix.size()) + suffix).c_str());
  bool last = false;
  for (;;) {
    side_job* job = nullptr;
    {
      const lock_guard guard(lock_);
      job = queue_.pop_front();
      if (job != nullptr) {
        ++running_;
      } else if (closing_) {
        --threads_;  // even when its owner joins it: nothing more comes
        last = is_last();
        break;
      } else {
        here.sleep.clear();
        resting_.push_front(here);  // the last to rest is the first to work: its caches are warm
      }
    }
    if (job != nullptr) {
      run(*job, thread);
    } else {
      here.sleep.sleep_until(never);
    }
  }
  if (last) delete this;
}

void side_pool::run(side_job& job, int thread) noexcept {
  shared_event_log& events = *job.sched->events_outside;
  events.write(event_kind::call_begins, job.by.id);
  const nanos began = monotonic_now();
  {
    const users_code runs;
    // Pairs with the reader of a dump (running_frames.hpp), which finds the number before
    // and after it has asked this thread: in between the function runs.
    job.thread.store(thread, order::release);
    job.table->run(job.record);
    job.thread.store(side_job::has_returned, order::release);  // ordering: as above
  }
  events.write(event_kind::call_ends, job.by.id);
  const nanos ended = monotonic_now();
  {
    const lock_guard guard(lock_);
    --running_;
    ++done_;
    note_delay(queue_times_, began - job.since);
    note_delay(run_times_, ended - began);
  }
  give_back(job);
}

// Ends the call: its caller goes on with the record, or has left, and it dies here.
void side_pool::give_back(side_job& job) noexcept {
  scheduler& sched = *job.sched;
  if (!run_of(sched).calls.returned(job)) return;
  {
    const users_code dies;
    job.table->destroy(job.record);
  }
  delete &job;
  run_of(sched).calls.over();
}

blocking_stats side_pool::stats() noexcept {
  blocking_stats s;
  const lock_guard guard(lock_);
  s.threads = threads_;
  s.queued = queue_.size();
  s.running = running_;
  s.done = done_;
  s.queue_time = queue_times_;
  s.run_time = run_times_;
  if (const side_job* const oldest = queue_.front()) {
    s.oldest_wait = std::chrono::nanoseconds(monotonic_now() - oldest->since);
  }
  return s;
}

}  // namespace VIGIL_DETAIL
