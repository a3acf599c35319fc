// Dumps and recordings: one at a time, and of bounded size.
#include "core/machine/sanitizer.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "inspect_page/page_client.hpp"
#include "inspect_page/page_server.hpp"
#include "support/at_rest.hpp"
#include "support/note.hpp"

#include <vigil/vigil.hpp>

#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

#include <poll.h>
#include <unistd.h>

using namespace vigil::testing_support;
using vigil::detail::page_settings;

namespace {

constexpr const char* acts[] = {"/dump.txt", "/dump.json", "/record", "/stuck.txt"};

#if !VIGIL_TSAN

// The thread that makes dumps and recordings: it has its name from the page's thread,
// which has started it. Caller: one of them was made, and no look.
int thread_of_acts() {
  int page = 0;
  vigil::detail::for_each_running([&](const vigil::detail::scheduler& s, auto&) {
    if (s.settings().is_observer) page = s.workers().front()->kernel_thread.load();
  });
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    const int thread = std::atoi(task.path().filename().c_str());
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    if (name == "vigil/page" && thread != page) return thread;
  }
  return 0;
}

// Keeps a thread of this process in a signal's handler. The signal is one that no thread
// of the library blocks.
class held_thread {
 public:
  explicit held_thread(int thread) {
    REQUIRE(::pipe(come) == 0);
    REQUIRE(::pipe(go) == 0);
    struct sigaction hold = {};
    hold.sa_handler = [](int) {
      char c = 0;
      static_cast<void>(!::write(come[1], &c, 1));
      static_cast<void>(!::read(go[0], &c, 1));
    };
    hold.sa_flags = SA_RESTART;
    REQUIRE(::sigaction(SIGSYS, &hold, &before_) == 0);
    REQUIRE(::tgkill(::getpid(), thread, SIGSYS) == 0);
    char c = 0;
    REQUIRE(::read(come[0], &c, 1) == 1);
  }

  void let_go() {
    const char c = 0;
    REQUIRE(::write(go[1], &c, 1) == 1);
  }

  ~held_thread() {
    ::sigaction(SIGSYS, &before_, nullptr);
    for (const int end : {come[0], come[1], go[0], go[1]})
      ::close(end);
  }

  held_thread(const held_thread&) = delete;
  held_thread& operator=(const held_thread&) = delete;

 private:
  static inline int come[2];
  static inline int go[2];
  struct sigaction before_ = {};
};

#endif

// Runs `body` on a plain thread, beside a runtime that records.
template <class F>
void beside_a_recorder(F body) {
  vigil::run({.workers = 2, .recorder_events = 1'024}, [&] {
    vigil::this_fiber::set_name("a fiber that is recorded");
    vigil::blocking(body);
  });
}

vigil::inspect::live_page page_with(const page_settings& settings) {
  return vigil::inspect::live_page(std::make_unique<vigil::detail::page_server>(
      vigil::detail::listening_socket::taken_over(listen_at("127.0.0.1").release(), false),
      vigil::inspect::page_options{.announce = false},
      settings));
}

}  // namespace

TEST_SUITE("live page's bounds") {
#if !VIGIL_TSAN  // it puts a signal off, and the thread would not be held
  TEST_CASE("beside a dump or a recording another one of either is refused") {
    const auto page = local_page();
    beside_a_recorder([&] {
      REQUIRE(act(page, "/record").status == 200);
      const int thread = thread_of_acts();
      REQUIRE(thread != 0);
      for (const std::string one : acts) {
        for (const std::string other : acts) {
          NOTE("one: ", one);
          NOTE("other: ", other);
          // It would be held with a lock that the page needs.
          while (!is_asleep(thread))
            std::this_thread::yield();
          held_thread held(thread);
          const descriptor both[2] = {connect_to(page), connect_to(page)};
          send_text(both[0], request("POST", one, "localhost", with_token(page)));
          send_text(both[1], request("POST", other, "localhost", with_token(page)));
          pollfd ready[2] = {{both[0].get(), POLLIN, 0}, {both[1].get(), POLLIN, 0}};
          REQUIRE(::poll(ready, 2, -1) == 1);
          const int refused = ready[0].revents != 0 ? 0 : 1;
          const http_answer second = answer_from(both[refused]);
          CHECK(second.status == 429);
          CHECK(second.field("Retry-After") == "1");
          held.let_go();
          CHECK(answer_from(both[1 - refused]).status == 200);
        }
      }
    });
  }
#endif

  TEST_CASE("a dump or a recording above the bound is refused, and the next one is served") {
    const auto page = page_with({.result_limit = 256});
    const auto plain = local_page();
    beside_a_recorder([&] {
      for (const std::string target : {"/dump.txt", "/dump.json", "/record"}) {
        NOTE("target: ", target);
        const http_answer whole = act(plain, target);
        CHECK(whole.status == 200);
        REQUIRE(whole.body.size() > 256);
        for (int i = 0; i < 2; ++i) {
          const http_answer refused = act(page, target);
          CHECK(refused.status == 507);
          CHECK(refused.body == "The result has more than 256 bytes.\n");
        }
      }
      CHECK(get(page, "/state.json").body.size() > 256);  // a look is not bounded
    });
  }

  TEST_CASE("the bound is the guide's unless a test sets another one") {
    // docs/guide/live-page.md: "of at most 64 MiB"
    CHECK(page_settings{}.result_limit == 64 * 1'024 * 1'024);
    CHECK(page_settings{}.recorder_events == 0);
  }
}
