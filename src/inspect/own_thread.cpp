#include "inspect/own_thread.hpp"

#include "core/base/clock_source.hpp"
#include "core/base/futex.hpp"
#include "core/machine/detached_thread.hpp"
#include "core/machine/process_threads.hpp"

#include <cstring>
#include <exception>
#include <memory>
#include <utility>

namespace VIGIL_DETAIL {
namespace {

struct shared_work {
  std::function<void()> f;
  std::exception_ptr error;  // written before `done`
  futex_word done{0};
};

[[gnu::noinline]] void call(shared_work& w) noexcept {
  try {
    w.f();
  } catch (...) {
    w.error = std::current_exception();
  }
}

void do_work(shared_work& w) noexcept {
  call(w);
  clear_stack();
  w.done.store(1);
  futex_wake_one(w.done);
}

}  // namespace

[[gnu::noinline]] void clear_stack() noexcept {
  char kept[std::size_t{32} << 10];
  std::memset(kept, 0, sizeof kept);
  asm volatile("" : : "r"(kept) : "memory");
}

void start_own_thread(std::function<void()> f) {
  process_count_quiet_threads(1);  // it starts nothing
  try {
    start_detached([f = std::move(f)] {
      process_is_quiet_thread();
      f();
    });
  } catch (...) {
    process_count_quiet_threads(-1);
    throw;
  }
}

bool on_own_thread(nanos patience, std::function<void()> f) {
  const auto work = std::make_shared<shared_work>();
  work->f = std::move(f);
  start_own_thread([work] { do_work(*work); });
  const nanos until = saturating_add(monotonic_now(), patience);
  while (work->done.load() == 0) {
    if (monotonic_now() >= until) return false;
    futex_wait(work->done, 0, until);
  }
  if (work->error != nullptr) std::rethrow_exception(work->error);
  return true;
}

bool written_elsewhere(std::string& out,
                       nanos patience,
                       std::function<std::string()> write) noexcept {
  try {
    const auto text = std::make_shared<std::string>();
    if (!on_own_thread(patience, [text, write = std::move(write)] { *text = write(); }))
      return false;
    out += *text;
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace VIGIL_DETAIL
