// Places in which a search for stuck fibers must find a pointer, and threads that it must
// stop: each has deceived it once.
#include "core/machine/detached_thread.hpp"
#include "inspect/leaks_helpers.hpp"
#include "inspect/stopped_threads.hpp"
#include "support/child.hpp"
#include "support/note.hpp"

#include <atomic>
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace vigil::testing_support {
namespace {

using namespace std::chrono_literals;

using held_channel = channel<int>;

// Starts a fiber that receives from a channel whose only other handle is given to `keep`.
template <class Keep>
void start_reader_of(Keep keep) {
  start_and_settle([&keep] {
    const auto c = make_channel<int>();
    start("reader", [c] { c.recv(); });
    keep(c);
  });
}

bool is_certain(const char* name) {
  return names_of(find_stuck().certain).count(name) != 0;
}

// A page in which one handle lies, at some distance from its beginning.
class page_with_handle {
 public:
  explicit page_with_handle(void* at, std::size_t distance)
      : page_(at), place_(static_cast<std::byte*>(at) + distance) {}

  void put(held_channel c) {
    std::memcpy(place_, static_cast<const void*>(&c), sizeof c);
    new (room_) held_channel(std::move(c));
    std::memset(room_, 0, sizeof room_);
  }

  void* page() const noexcept { return page_; }

  held_channel take() {
    std::memcpy(room_, place_, sizeof room_);
    std::memset(place_, 0, sizeof room_);
    auto* const c = std::launder(reinterpret_cast<held_channel*>(room_));
    held_channel result = std::move(*c);
    c->~held_channel();
    return result;
  }

 private:
  void* page_;
  std::byte* place_;
  alignas(held_channel) std::byte room_[sizeof(held_channel)] = {};
};

constexpr std::size_t page_size = 4096;

}  // namespace

// Each of the following has a process of its own: among other tests an old pointer may
// stand for the one that is looked for.

TEST_CASE("child: nobody has the handle" * doctest::skip()) {
  in_leaky_virtual([] {
    start_reader_of([](const held_channel&) {});
    check_certain(find_stuck(), {"reader"});
  });
}

TEST_CASE("child: a handle at a multiple of four alone" * doctest::skip()) {
  in_leaky_virtual([] {
    void* const page =
        ::mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    page_with_handle held(page, 12);
    start_reader_of([&held](held_channel c) { held.put(std::move(c)); });
    CHECK_FALSE(is_certain("reader"));
    held.take().send(1);
    testing::settle();
    ::munmap(page, page_size);
  });
}

TEST_CASE("child: a handle in a changed page of a read-only file" * doctest::skip()) {
  in_leaky_virtual([] {
    std::FILE* const file = std::tmpfile();
    REQUIRE(::ftruncate(::fileno(file), page_size) == 0);
    void* const page =
        ::mmap(nullptr, page_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, ::fileno(file), 0);
    page_with_handle held(page, 64);
    start_reader_of([&held](held_channel c) { held.put(std::move(c)); });
    ::mprotect(page, page_size, PROT_READ);
    CHECK_FALSE(is_certain("reader"));
    ::mprotect(page, page_size, PROT_READ | PROT_WRITE);
    held.take().send(1);
    testing::settle();
    ::munmap(page, page_size);
    std::fclose(file);
  });
}

TEST_CASE("child: a lock of an earlier run" * doctest::skip()) {
  const auto lock = std::make_unique<mutex>();
  // The same fibers in the same order, so that numbers come again.
  in_leaky_virtual([&lock] {
    start("holder", [&lock] { lock->lock(); });
    testing::settle();
  });
  in_leaky_virtual([&lock] {
    start("stuck", [] { channel<int>().recv(); });
    start("waiter", [&lock] { lock->lock(); });
    testing::settle();
    CHECK_FALSE(is_certain("waiter"));
    lock->unlock();
    testing::settle();
    CHECK(names_of(find_stuck().possible).count("waiter") == 0);
    lock->unlock();
  });
}

TEST_CASE("a handle is seen wherever it lies, and a lock's holder is of its own run") {
  for (const char* const name : {"child: nobody has the handle",
                                 "child: a handle at a multiple of four alone",
                                 "child: a handle in a changed page of a read-only file",
                                 "child: a lock of an earlier run"}) {
    const child_result child = run_child(name);
    NOTE(child.output);
    CHECK(child.succeeded());
  }
}

TEST_CASE("a search does not make shared memory that was never touched") {
  if (VIGIL_TSAN) return;  // there it does not search
  in_leaky_virtual([] {
    constexpr std::size_t pages = 4096;
    void* const memory = ::mmap(
        nullptr, pages * page_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    static_cast<char*>(memory)[7 * page_size] = 1;
    start_reader_of([](const held_channel&) {});
    REQUIRE(find_stuck().why_none_certain == "");
    std::vector<unsigned char> in_core(pages);
    REQUIRE(::mincore(memory, pages * page_size, in_core.data()) == 0);
    std::size_t there = 0;
    for (const unsigned char page : in_core)
      there += page & 1u;
    CHECK(there <= 512);  // a huge page, if the system makes such
    ::munmap(memory, pages * page_size);
  });
}

TEST_CASE("threads that start the next one and end are stopped as well") {
  if (VIGIL_TSAN) return;  // it delivers signals late
  inspect::install();
  std::atomic<bool> is_over{false};
  std::atomic<bool> has_ended{false};
  std::atomic<std::uint64_t> links{0};
  std::function<void()> pass = [&] {
    links.fetch_add(1);
    if (is_over.load()) {
      has_ended.store(true);
    } else {
      detail::start_detached(pass);
    }
  };
  detail::start_detached(pass);
  int ran_on = 0;
  for (int i = 0; i < rounds(40); ++i) {
    detail::own_memory memory(std::size_t{16} << 20);
    const detail::stopped_threads stopped(memory, ::gettid());
    if (!stopped.all()) continue;
    const std::uint64_t before = links.load();
    ::usleep(2000);  // in which a thread that was not stopped would go on
    ran_on += links.load() != before ? 1 : 0;
  }
  CHECK(ran_on == 0);
  is_over.store(true);
  while (!has_ended.load())
    std::this_thread::yield();
}

TEST_CASE("on real time the simplest leak is possible at least, each time") {
  inspect::install();
  real_options setup;
  setup.workers = {1};
  // The worker's own stack may keep a pointer to the fiber, so it need not be certain.
  in_runtime(setup, [] {
    go([] {
      this_fiber::set_name("reader");
      make_channel<int>().recv();
    });
    for (int i = 0; i < 3; ++i) {
      CHECK_THROWS_AS(testing::check_no_leaks({.possible = true}), testing::leak);
    }
  });
}

}  // namespace vigil::testing_support
