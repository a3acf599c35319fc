#include "inspect_page/page_jobs.hpp"

#include "inspect/own_thread.hpp"

#include <vigil/channel.hpp>
#include <vigil/semaphore.hpp>

#include <exception>
#include <new>
#include <utility>

#include <sched.h>

namespace VIGIL_DETAIL {
namespace {

struct job_end {
  std::string text;
  std::exception_ptr error;
};

struct bounded_text {
  std::string text;
  std::size_t limit;
  bool is_over = false;
  bool lacks_memory = false;
};

// In the manner of write(2); 0 is an error.
ssize_t add_text(void* cookie, const char* bytes, std::size_t n) noexcept {
  bounded_text& to = *static_cast<bounded_text*>(cookie);
  to.is_over = to.is_over || n > to.limit - to.text.size();
  if (to.is_over) return 0;
  try {
    to.text.append(bytes, n);
  } catch (...) {
    to.is_over = to.lacks_memory = true;
    return 0;
  }
  return static_cast<ssize_t>(n);
}

// A job that is woken does not take the processor from the thread that wakes it, nor from
// one of the program's workers: it begins when one has nothing to do, or a little later.
// If the kernel refuses, it is as other threads are.
void give_way_when_woken() noexcept {
  const sched_param none{};
  if (::sched_getscheduler(0) == SCHED_OTHER) ::sched_setscheduler(0, SCHED_BATCH, &none);
}

struct closes_file {
  void operator()(std::FILE* f) const noexcept { std::fclose(f); }
};

}  // namespace

struct job_slot::core {
  // The thread ends when it has done what is queued.
  ~core() { jobs.close(); }

  core() = default;
  core(const core&) = delete;
  core& operator=(const core&) = delete;

  semaphore free{1};
  channel<std::function<void()>> jobs = vigil::make_channel<std::function<void()>>(1);
  bool has_thread = false;  // guarded by the permit
};

job_slot::job_slot() : core_(std::make_shared<core>()) {}

job_slot::hold job_slot::take_for(std::chrono::nanoseconds patience) {
  if (!core_->free.try_acquire_for(patience)) return nullptr;
  // The deleter keeps the core: the job may outlive the page.
  return {core_.get(), [kept = core_](core*) { kept->free.release(); }};
}

std::optional<std::string> done_elsewhere(job_slot::hold slot,
                                          std::chrono::nanoseconds patience,
                                          std::function<std::string()> f) {
  job_slot::core& line = *slot;
  if (!line.has_thread) {
    start_own_thread([jobs = line.jobs] {
      give_way_when_woken();
      while (const auto job = jobs.recv())
        (*job)();
    });
    line.has_thread = true;
  }
  const auto ended = vigil::make_channel<job_end>(1);
  static_cast<void>(line.jobs.try_send([slot, f = std::move(f), ended]() mutable {
    job_end end;
    try {
      end.text = f();
    } catch (...) {
      end.error = std::current_exception();
    }
    slot.reset();
    static_cast<void>(ended.try_send(std::move(end)));
  }));
  slot.reset();
  auto end = ended.recv_for(patience);
  if (!end) return std::nullopt;
  if (end->error != nullptr) std::rethrow_exception(end->error);
  return std::move(end->text);
}

std::optional<std::string> written_within(std::size_t limit,
                                          const std::function<void(std::FILE*)>& write) {
  bounded_text to{.text = {}, .limit = limit};
  {
    const std::unique_ptr<std::FILE, closes_file> file(::fopencookie(
        &to, "w", {.read = nullptr, .write = &add_text, .seek = nullptr, .close = nullptr}));
    if (file == nullptr) throw std::bad_alloc();
    try {
      write(file.get());
    } catch (...) {
      // A writer that is told of the bound, as of a full disk, may throw for that.
      if (!to.is_over) throw;
    }
  }
  if (to.lacks_memory) throw std::bad_alloc();
  if (to.is_over) return std::nullopt;
  return std::move(to.text);
}

}  // namespace VIGIL_DETAIL
