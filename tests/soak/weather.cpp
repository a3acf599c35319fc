#include "soak/weather.hpp"

#include "core/base/random.hpp"
#include "core/machine/sanitizer.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <dirent.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace vigil::soak {
namespace {

using namespace std::chrono_literals;
using std::chrono::milliseconds;

std::vector<int> numbers_in(const std::string& folder) {
  std::vector<int> found;
  DIR* const d = ::opendir(folder.c_str());
  if (d == nullptr) return found;
  while (const dirent* const e = ::readdir(d))
    if (e->d_name[0] != '.') found.push_back(std::atoi(e->d_name));
  ::closedir(d);
  return found;
}

// Everything that the child does. It has one thread and shares only the counts.
class weather_maker {
 public:
  weather_maker(pid_t target, weather_counts& counts, std::uint64_t seed, bool gentle)
      : target_(target),
        folder_("/proc/" + std::to_string(target)),
        counts_(counts),
        draws_(seed),
        gentle_(gentle) {
    ::prlimit(target_, RLIMIT_NOFILE, nullptr, &files_);
    ::prlimit(target_, RLIMIT_AS, nullptr, &space_);
    ::prlimit(target_, RLIMIT_DATA, nullptr, &data_);
    ::sched_getaffinity(target_, sizeof processors_, &processors_);
  }

  void make() {
    while (!counts_.has_begun.load())
      if (!pause(10ms)) return;
    while (pause(draw(200ms, gentle_ ? 4s : 2s))) {
      switch (draws_.below(8)) {
        case 0:
        case 1:
        case 2:
          stop();
          break;
        case 3:
        case 4:
          squeeze();
          break;
        case 5:
        case 6:
          take_files();
          break;
        default:
          take_memory();
          break;
      }
    }
  }

 private:
  milliseconds draw(milliseconds least, milliseconds most) {
    return least + milliseconds(draws_.below(static_cast<std::uint32_t>((most - least).count())));
  }

  // Returns false if it is over.
  bool pause(milliseconds length) {
    const auto end = std::chrono::steady_clock::now() + length;
    while (std::chrono::steady_clock::now() < end) {
      if (counts_.is_over.load() || ::getppid() != target_) return false;
      std::this_thread::sleep_for(10ms);
    }
    return true;
  }

  void stop() {
    // One stop in ten is a long one.
    const bool is_long = !gentle_ && draws_.below(10) == 0;
    if (::kill(target_, SIGSTOP) != 0) return;
    ++(is_long ? counts_.long_stops : counts_.stops);
    pause(is_long ? 5s : 50ms);
    ::kill(target_, SIGCONT);
  }

  // Returns false if no thread may be moved.
  bool set_processors(const cpu_set_t& to) {
    bool done = false;
    for (const int thread : numbers_in(folder_ + "/task"))
      done |= ::sched_setaffinity(thread, sizeof to, &to) == 0;
    return done;
  }

  // All but one, or only one.
  void squeeze() {
    std::vector<int> has;
    for (int i = 0; i < CPU_SETSIZE; ++i)
      if (CPU_ISSET(i, &processors_)) has.push_back(i);
    if (has.size() < 2) return;
    cpu_set_t less;
    const int drawn = has[draws_.below(static_cast<std::uint32_t>(has.size()))];
    if (draws_.below(2) == 0) {
      less = processors_;
      CPU_CLR(drawn, &less);
    } else {
      CPU_ZERO(&less);
      CPU_SET(drawn, &less);
    }
    if (!set_processors(less)) return;
    ++counts_.squeezes;
    pause(draw(100ms, 2s));
    set_processors(processors_);
  }

  void take_files() {
    const auto now = static_cast<rlim_t>(numbers_in(folder_ + "/fd").size());
    shorten(RLIMIT_NOFILE, files_, now + draws_.below(4), counts_.no_files);
  }

  // Either no addresses or no writable pages. Only the second refuses mprotect, by which
  // the heap of timers grows in the addresses that it has.
  void take_memory() {
    unsigned long pages = 0;
    unsigned long writable = 0;
    std::FILE* const file = std::fopen((folder_ + "/statm").c_str(), "r");
    if (file == nullptr) return;
    const int got = std::fscanf(file, "%lu %*u %*u %*u %*u %lu", &pages, &writable);
    std::fclose(file);
    if (got != 2) return;
    const auto size = static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
    const unsigned more = draws_.below(512);
    if (draws_.below(2) == 0)
      shorten(RLIMIT_AS, space_, (pages + more) * size, counts_.no_memory);
    else
      shorten(RLIMIT_DATA, data_, (writable + more) * size, counts_.no_memory);
  }

  void shorten(__rlimit_resource which,
               const rlimit& as_before,
               rlim_t to,
               std::atomic<std::uint64_t>& count) {
    if (VIGIL_ASAN || VIGIL_TSAN) return;
    const rlimit less{std::min(to, as_before.rlim_max), as_before.rlim_max};
    ++counts_.shortage_edges;
    if (::prlimit(target_, which, &less, nullptr) == 0) {
      ++count;
      pause(draw(20ms, 500ms));
      ::prlimit(target_, which, &as_before, nullptr);
    }
    ++counts_.shortage_edges;
  }

  const pid_t target_;
  const std::string folder_;
  weather_counts& counts_;
  detail::random draws_;
  const bool gentle_;
  rlimit files_{};
  rlimit space_{};
  rlimit data_{};
  cpu_set_t processors_{};
};

}  // namespace

weather::weather(std::uint64_t seed, bool gentle) {
  void* const shared = ::mmap(
      nullptr, sizeof(weather_counts), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  counts_ = new (shared) weather_counts;
  const pid_t target = ::getpid();
  child_ = ::fork();
  if (child_ < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child_ != 0) return;
  // The end of the target ends it, and not a key that ends both: nobody else continues a
  // target that is stopped.
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    ::signal(number, SIG_IGN);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() == target) weather_maker(target, *counts_, seed, gentle).make();
  ::_exit(0);
}

weather::~weather() {
  end();
  ::munmap(counts_, sizeof(weather_counts));
}

bool weather::end() noexcept {
  if (child_ < 0) return true;
  counts_->is_over.store(true);
  int status = 0;
  while (::waitpid(child_, &status, 0) < 0 && errno == EINTR) {
  }
  child_ = -1;
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string weather::text() const {
  const auto n = [](const std::atomic<std::uint64_t>& c) { return std::to_string(c.load()); };
  return n(counts_->stops) + " stops of 50 ms, " + n(counts_->long_stops) + " of 5 s, " +
         n(counts_->squeezes) + " times fewer processors, " + n(counts_->no_files) +
         " times no descriptor, " + n(counts_->no_memory) + " times no memory";
}

}  // namespace vigil::soak
