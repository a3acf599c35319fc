#include "core/machine/process_threads.hpp"

#include "core/base/atomic.hpp"
#include "core/base/clock_source.hpp"

#include <cstdlib>
#include <iterator>
#include <mutex>

#include <dirent.h>
#include <unistd.h>

namespace VIGIL_DETAIL {
namespace {

atomic<int> quiet_threads{0};

// The latest quiet threads that have done all that they do: the system lists a thread
// for a moment after its end, even when it was joined. With a time, since the numbers
// of threads are used again.
struct leaving_thread {
  pid_t id = 0;
  nanos since = 0;
};

std::mutex leaving_lock;  // guards these two
leaving_thread leaving_threads[64];
std::size_t left_so_far = 0;

// A compiler may make it for other threads as well: with the first thread_local object of
// a file that they use.
struct quiet_thread {
  bool is_counted = false;

  ~quiet_thread() {
    if (!is_counted) return;
    const std::lock_guard guard(leaving_lock);
    leaving_threads[left_so_far++ % std::size(leaving_threads)] = {::gettid(), monotonic_now()};
    quiet_threads.fetch_sub(1);
  }
};

thread_local quiet_thread this_quiet_thread;

// Caller: holds leaving_lock.
bool is_leaving(pid_t id, nanos now) noexcept {
  constexpr nanos at_most = 10'000'000'000;
  for (const leaving_thread& t : leaving_threads) {
    if (t.id == id && now - t.since < at_most) return true;
  }
  return false;
}

// Calls f with the number of each thread of the process.
template <class F>
void for_each_thread(F&& f) noexcept {
  DIR* const tasks = ::opendir("/proc/self/task");
  if (tasks == nullptr) return;
  while (const dirent* const entry = ::readdir(tasks)) {
    if (entry->d_name[0] != '.') f(static_cast<pid_t>(std::atol(entry->d_name)));
  }
  ::closedir(tasks);
}

}  // namespace

std::size_t process_thread_count() noexcept {
  std::size_t n = 0;
  for_each_thread([&n](pid_t) { ++n; });
  return n;
}

bool process_has_only(std::size_t workers) noexcept {
  const std::lock_guard guard(leaving_lock);
  const nanos now = monotonic_now();
  std::size_t n = 0;
  for_each_thread([&n, now](pid_t id) { n += is_leaving(id, now) ? 0 : 1; });
  return n == workers + process_quiet_threads();
}

void process_count_quiet_threads(int change) noexcept {
  quiet_threads.fetch_add(change);
}

void process_is_quiet_thread() noexcept {
  this_quiet_thread.is_counted = true;
}

std::size_t process_quiet_threads() noexcept {
  return static_cast<std::size_t>(quiet_threads.load());
}

void process_threads_lock() noexcept {
  leaving_lock.lock();
}

void process_threads_unlock() noexcept {
  leaving_lock.unlock();
}

void process_threads_forget_quiet() noexcept {
  quiet_threads.store(0);
}

}  // namespace VIGIL_DETAIL
