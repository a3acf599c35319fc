// The guards and values that user code leaves on a runner, at the end of a task above
// all, are not there for the next task.
#include "core/task/task_test.hpp"
#include "support/child.hpp"

#include <csignal>
#include <exception>
#include <new>

using namespace vigil::testing_support;

namespace {

const vigil::fiber_local<int> mark;

// Calls the function at the end of its only owner.
class at_end {
 public:
  explicit at_end(void (*f)()) : called_(f) {}

  at_end(at_end&& other) noexcept : called_(std::exchange(other.called_, nullptr)) {}

  at_end& operator=(at_end&&) = delete;

  ~at_end() {
    if (called_ != nullptr) called_();
  }

 private:
  void (*called_)();
};

void set_mark() {
  CHECK(*mark == 0);
  *mark = 42;
}

// A guard that does not end on the fiber that has made it. It keeps no memory.
template <class Guard>
void leave_behind() {
  alignas(Guard) static unsigned char room[sizeof(Guard)];
  ::new (static_cast<void*>(room)) Guard;
}

task<> has_parameter(at_end) {
  co_return;
}

task<> waits_with_parameter(at_end) {
  co_await co::sleep_for(1ms);
}

task<at_end> has_result(void (*f)()) {
  co_return at_end(f);
}

task<> fails_alone() {
  co_await co::sleep_for(1ms);
  throw std::runtime_error("lost");
}

struct stopped_with_end : vigil::stopped {
  explicit stopped_with_end(void (*f)()) : end(std::make_shared<at_end>(f)) {}

  std::shared_ptr<at_end> end;
};

task<> throws_stopped() {
  throw stopped_with_end(&set_mark);
  co_return;
}

void set_mark_for(std::exception_ptr) {
  set_mark();
}

int seen = 0;

task<> looks() {
  ++seen;
  CHECK(*mark == 0);
  const vigil::this_fiber::pin still_works;
  co_return;
}

// Runs it fifty times, each with a task behind it.
template <class F>
void followed_by_looks(F start, const vigil::testing::virtual_options& setup = {}) {
  seen = 0;
  in_virtual(setup, [&] {
    for (int i = 0; i < 50; ++i) {
      start();
      vigil::go(looks());
      vigil::sleep_for(2ms);
      vigil::go(looks());
      vigil::sleep_for(2ms);
    }
  });
  CHECK(seen == 100);
}

// The program ends, since its only task leaves a guard behind.
template <class F>
void leaves(F start, void (*on_unhandled)(std::exception_ptr) = nullptr) {
  vigil::options settings;
  settings.on_unhandled = on_unhandled;
  vigil::testing::run_virtual({.runtime = settings}, [&] {
    start();
    vigil::sleep_for(2ms);
    vigil::go(looks());
    vigil::sleep_for(2ms);
  });
}

}  // namespace

TEST_SUITE("task: leftovers") {
  TEST_CASE("a fiber_local that is set at a task's end is not there for the next task") {
    followed_by_looks([] { vigil::go(has_parameter(at_end(&set_mark))); });
    followed_by_looks([] { vigil::go(waits_with_parameter(at_end(&set_mark))); });
    followed_by_looks([] { vigil::go(has_result(&set_mark)); });
    followed_by_looks([] { vigil::spawn(has_result(&set_mark)).detach(); });
    followed_by_looks([] { vigil::go(throws_stopped()); });
    followed_by_looks([] { vigil::go(fails_alone()); },
                      {.runtime = {.on_unhandled = &set_mark_for}});
  }

  TEST_CASE("a fiber_local that the destructor of another one sets is not there, either") {
    struct sets_mark {
      ~sets_mark() { *mark = 42; }
    };

    static const vigil::fiber_local<sets_mark> other;
    followed_by_looks([] { vigil::go(has_parameter(at_end([] { static_cast<void>(*other); }))); });
  }

  TEST_CASE("a guard that a fiber_local owns ends with it") {
    static const vigil::fiber_local<std::unique_ptr<vigil::this_fiber::pin>> kept;
    const auto keeps = []() -> task<> {
      *kept = std::make_unique<vigil::this_fiber::pin>();
      co_await co::sleep_for(1ms);
      CHECK(*kept == nullptr);
    };
    followed_by_looks([&] { vigil::go(keeps()); });
  }

  TEST_CASE("child: a parameter leaves a pin" * doctest::skip()) {
    leaves([] { vigil::go(has_parameter(at_end(&leave_behind<vigil::this_fiber::pin>))); });
  }

  TEST_CASE("child: a result leaves a shield" * doctest::skip()) {
    leaves([] { vigil::go(has_result(&leave_behind<vigil::this_fiber::shield>)); });
  }

  TEST_CASE("child: on_unhandled leaves a no_park" * doctest::skip()) {
    leaves([] { vigil::go(fails_alone()); },
           [](std::exception_ptr) { leave_behind<vigil::this_fiber::no_park>(); });
  }

  TEST_CASE("child: a fiber_local leaves a shield" * doctest::skip()) {
    struct leaves_shield {
      ~leaves_shield() { leave_behind<vigil::this_fiber::shield>(); }
    };

    static const vigil::fiber_local<leaves_shield> local;
    leaves([] {
      vigil::go([]() -> task<> {
        static_cast<void>(*local);
        co_return;
      }());
    });
  }

  TEST_CASE("a guard that is left at a task's end ends the program, with the task's name") {
    for (const char* const child : {"child: a parameter leaves a pin",
                                    "child: a result leaves a shield",
                                    "child: on_unhandled leaves a no_park",
                                    "child: a fiber_local leaves a shield"}) {
      const child_result r = run_child(child);
      CHECK_MESSAGE(r.died_by(SIGABRT), child);
      CHECK_MESSAGE(r.says("holds a this_fiber::pin, shield or no_park"), r.output);
      CHECK_MESSAGE(r.says("task 1 (started at"), r.output);
      CHECK_MESSAGE(r.says("task_leftovers_test.cpp"), r.output);
    }
  }
}
