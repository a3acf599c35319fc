// A side pool whose threads cannot be started, or have not begun. The sanitizers have a
// pthread_create of their own.
#include "support/child.hpp"
#include "support/gate.hpp"
#include "support/hidden_deadlock.hpp"
#include "support/in_runtime.hpp"

#ifndef VIGIL_TEST_UNDER_SANITIZER

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// While it lives no thread can be started: each call fails once may_fail allows it.
class no_threads {
 public:
  // may_fail is called with the number of earlier calls.
  explicit no_threads(std::function<bool(int)> may_fail) : may_fail_(std::move(may_fail)) {
    active.store(this);
  }

  ~no_threads() { active.store(nullptr); }

  no_threads(const no_threads&) = delete;
  no_threads& operator=(const no_threads&) = delete;

  int create() {
    const int number = calls_.fetch_add(1);
    while (!may_fail_(number))
      std::this_thread::yield();
    return EAGAIN;
  }

  int calls() const { return calls_.load(); }

  static std::atomic<no_threads*> active;

 private:
  const std::function<bool(int)> may_fail_;
  std::atomic<int> calls_{0};
};

std::atomic<no_threads*> no_threads::active{nullptr};

// While it is active the second thread to be started waits before it does anything.
class late_thread {
 public:
  late_thread() { active.store(this); }

  ~late_thread() { active.store(nullptr); }

  late_thread(const late_thread&) = delete;
  late_thread& operator=(const late_thread&) = delete;

  // Returns true if this thread is the second one.
  bool takes(void* (*start)(void*), void* argument) {
    if (created_.fetch_add(1) != 1) return false;
    start_ = start;
    argument_ = argument;
    return true;
  }

  static void* body(void* of) {
    auto& self = *static_cast<late_thread*>(of);
    void* (*const start)(void*) = self.start_;
    void* const argument = self.argument_;
    self.gate_.wait();
    return start(argument);
  }

  bool exists() const { return gate_.entered(); }

  void open() { gate_.open(); }

  static std::atomic<late_thread*> active;

 private:
  std::atomic<int> created_{0};
  void* (*start_)(void*) = nullptr;
  void* argument_ = nullptr;
  gate gate_;
};

std::atomic<late_thread*> late_thread::active{nullptr};

// Set by a thread that exits: while it is to be waited for, the call that starts a thread
// returns only then.
std::atomic<bool> exits_first{false};
std::atomic<bool> exits{false};

// Three workers, and no other threads that may be started meanwhile.
real_options three_workers() {
  real_options how{.workers = {3}};
  how.settings.stuck_limit = std::chrono::seconds(0);
  return how;
}

std::string what_it_throws(vigil::blocking_pool& pool) {
  try {
    vigil::blocking(pool, [] {});
  } catch (const std::system_error& e) {
    return e.code() == std::errc::resource_unavailable_try_again ? e.what() : "another code";
  }
  return "nothing";
}

bool names_the_pool(const std::string& text) {
  return text.find("the first thread of the side pool \"files\"") != std::string::npos;
}

}  // namespace

extern "C" int pthread_create(pthread_t* thread,
                              const pthread_attr_t* attributes,
                              void* (*start)(void*),
                              void* argument) noexcept {
  using function = int (*)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (no_threads* const none = no_threads::active.load()) return none->create();
  late_thread* const late = late_thread::active.load();
  if (late != nullptr && late->takes(start, argument))
    return real(thread, attributes, &late_thread::body, late);
  const int result = real(thread, attributes, start, argument);
  while (exits_first.load() && !exits.load())
    std::this_thread::yield();
  return result;
}

TEST_SUITE("side pool without threads") {
  TEST_CASE("two callers that each fail to start a thread both throw") {
    in_runtime(three_workers(), [] {
      vigil::blocking_pool pool({.threads = 2, .name = "files"});
      {
        const no_threads none([&pool](int number) {
          // The second call has queued before the first fails, and fails after it.
          return number == 0 ? no_threads::active.load()->calls() == 2 : pool.stats().threads == 1;
        });
        auto a = vigil::spawn([&pool] { return what_it_throws(pool); });
        auto b = vigil::spawn([&pool] { return what_it_throws(pool); });
        CHECK(names_the_pool(a.join()));
        CHECK(names_the_pool(b.join()));
      }
      CHECK(vigil::blocking(pool, [] { return 7; }) == 7);  // tried anew
    });
  }

  TEST_CASE("of one thread: a caller that waits for another's failing start throws as well") {
    in_runtime(three_workers(), [] {
      vigil::blocking_pool pool({.threads = 1, .name = "files"});
      {
        const no_threads none([&pool](int) { return pool.stats().queued == 2; });
        auto a = vigil::spawn([&pool] { return what_it_throws(pool); });
        auto b = vigil::spawn([&pool] { return what_it_throws(pool); });
        CHECK(names_the_pool(a.join()));
        CHECK(names_the_pool(b.join()));
        CHECK(pool.stats().queued == 0);
        CHECK(none.calls() == 1);
      }
      CHECK(vigil::blocking(pool, [] { return 7; }) == 7);
    });
  }

  TEST_CASE("child: deadlock beside a thread that has not begun" * doctest::skip()) {
    ::alarm(300);
    vigil::options o;
    o.stuck_limit = std::chrono::seconds(0);  // no threads but those that are counted here
    o.workers = 1;
    late_thread late;
    try {
      vigil::blocking_pool pool({.threads = 2, .name = "files"});

      struct opener {
        late_thread& late;

        ~opener() { late.open(); }
      } const before_the_pool_goes{late};

      vigil::run(o, [&] {
        const auto wait_for_ever = [] { vigil::make_channel<int>().recv(); };
        vigil::go([&] {
          vigil::blocking(pool, [&late] {
            while (!late.exists())
              std::this_thread::yield();
          });
          wait_for_ever();
        });
        vigil::go([&] {
          vigil::blocking(pool, [] {});  // runs on the first thread, after the other function
          wait_for_ever();
        });
        wait_for_ever();
      });
    } catch (const vigil::deadlock&) {
      std::puts("thrown");
    }
  }

  TEST_CASE("a thread that has not begun does not hide a deadlock") {
    if (is_deadlock_hidden()) return;
    const child_result child = run_child("child: deadlock beside a thread that has not begun");
    CHECK_MESSAGE(child.succeeded(), child.output);
    CHECK(child.says("thrown"));
  }

  // The caller that starts the thread is then the last to touch the pool.
  TEST_CASE("child: a thread that exits before its starter goes on" * doctest::skip()) {
    ::alarm(300);
    static std::atomic<bool> returned{false};

    struct exits_late {
      bool is_registered = true;

      ~exits_late() {
        exits.store(true);
        while (!returned.load())
          std::this_thread::yield();
      }
    };

    vigil::options o;
    o.stuck_limit = std::chrono::seconds(0);  // a thread of its own would be waited for
    o.workers = 1;
    vigil::run(o, [] {
      auto pool = std::make_unique<vigil::blocking_pool>(vigil::blocking_options{.threads = 1});
      vigil::blocking_pool& same = *pool;
      exits_first.store(true);
      vigil::blocking(same, [&pool] {
        thread_local exits_late here;
        static_cast<void>(here.is_registered);
        pool.reset();
      });
      returned.store(true);
      std::puts("returned");
    });
  }

  TEST_CASE("its starter does not wait for a thread that outlives the pool") {
    const child_result child = run_child("child: a thread that exits before its starter goes on");
    CHECK_MESSAGE(child.succeeded(), child.output);
    CHECK(child.says("returned"));
  }

  TEST_CASE("on virtual time it throws as well") {
    in_virtual([] {
      vigil::blocking_pool pool({.threads = 1, .name = "files"});
      const no_threads none([](int) { return true; });
      CHECK(names_the_pool(what_it_throws(pool)));
      CHECK_THROWS_AS(static_cast<void>(vigil::blocking_for(pool, 1h, [] {})), std::system_error);
    });
  }
}

#endif
