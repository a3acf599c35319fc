// The options of a runtime: ranges, defaults, and the values that fibers get.
#include "core/machine/process_threads.hpp"
#include "core/runtime/runtime_test.hpp"

#include <csignal>

#include <sched.h>

using namespace vigil::testing_support;

TEST_SUITE("options") {
  template <class F>
  std::string refused(F change) {
    vigil::options o;
    change(o);
    try {
      const vigil::runtime rt(o);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  }

  TEST_CASE("a value out of range is refused by the constructor, with its name") {
    using opt = vigil::options;
    const auto has = [](const std::string& text, const char* part) {
      CHECK_MESSAGE(text.find(part) != std::string::npos, text);
    };
    has(refused([](opt& o) { o.workers = 1025; }), "options::workers");
    has(refused([](opt& o) { o.workers = SIZE_MAX; }), "1024");
    has(refused([](opt& o) { o.stack_size = 0; }), "options::stack_size");
    has(refused([](opt& o) { o.stack_size = 1; }), "16 KiB");
    has(refused([](opt& o) { o.stack_size = SIZE_MAX; }), "1 GiB");
    has(refused([](opt& o) { o.main_stack_size = 0; }), "options::main_stack_size");
    has(refused([](opt& o) { o.main_stack_size = std::size_t{1} << 31; }), "1 GiB");
    CHECK(refused([](opt& o) { o.stack_size = 16 * 1024; }).empty());
    CHECK(refused([](opt& o) { o.workers = 1024; }).empty());
  }

  TEST_CASE("a bad signal in stop_on is refused and leaves nothing changed") {
    for (const int signal : {0, -1, 64, 1000, SIGKILL, SIGSTOP}) {
      vigil::options o;
      o.stop_on = {SIGUSR1, signal};

      struct sigaction before {};

      struct sigaction after {};

      ::sigaction(SIGUSR1, nullptr, &before);
      CHECK_THROWS_AS(vigil::run(o, [] {}), std::invalid_argument);
      ::sigaction(SIGUSR1, nullptr, &after);
      CHECK(bool{before.sa_handler == after.sa_handler});
    }
    vigil::run([] { sleep_for(1us); });
  }

  TEST_CASE("a signal that comes as stop_on is refused finds no runtime that is gone") {
    struct sigaction earlier {};

    struct sigaction ignored {};

    ignored.sa_handler = SIG_IGN;
    ::sigaction(SIGUSR1, &ignored, &earlier);
    std::atomic<bool> over{false};
    std::thread sender([&] {
      while (!over.load())
        ::raise(SIGUSR1);
    });
    vigil::options o;
    o.stop_on = {SIGUSR1, SIGKILL};
    for (int i = 0; i < 300; ++i)
      CHECK_THROWS_AS(vigil::run(o, [] {}), std::invalid_argument);
    over.store(true);
    sender.join();
    ::sigaction(SIGUSR1, &earlier, nullptr);
  }

  TEST_CASE("negative times count as none") {
    vigil::options o;
    o.grace = -1s;
    o.stop_limit = -1s;
    CHECK(vigil::run(o, [] { return 1; }) == 1);
  }

  TEST_CASE("without a number there is a worker for each processor of the mask") {
    cpu_set_t mask;
    CPU_ZERO(&mask);
    ::sched_getaffinity(0, sizeof mask, &mask);
    const std::size_t before = vigil::detail::process_thread_count();
    std::size_t during = 0;
    vigil::run([&] { during = vigil::detail::process_thread_count(); });
    constexpr std::size_t overseer = 1;
    CHECK(during <= before + static_cast<std::size_t>(CPU_COUNT(&mask)) - 1 + overseer);
  }

  TEST_CASE("stack_size is the size that fibers get") {
    vigil::options o;
    o.workers = 1;
    o.stack_size = 1024 * 1024;
    CHECK(vigil::run(o, [] {
            return vigil::spawn([] {
                     volatile char room[700'000];
                     room[0] = 5;
                     room[sizeof room - 1] = 1;
                     return room[0] + room[sizeof room - 1];
                   })
                .join();
          }) == 6);
  }
}
