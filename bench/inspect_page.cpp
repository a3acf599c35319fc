// The live page of a program with 100 000 fibers: how long an answer takes, what the
// answers cost the program, and how long the page's fibers keep their worker.
#include "core/base/ticks.hpp"
#include "core/sched/record/record_trigger.hpp"
#include "core/sched/worker/running_runtimes.hpp"
#include "core/sched/worker/scheduler.hpp"
#include "harness.hpp"
#include "inspect_page/page_server.hpp"

#include <vigil/inspect.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace bench {

namespace {

using namespace std::chrono_literals;

constexpr int fibers = 100'000;

[[gnu::noinline]] void wait_for(const vigil::receiver<int>& from) {
  static_cast<void>(from.recv());
}

// The answer to a request: its head and its body.
std::string ask(const std::string& path, std::string_view request) {
  const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  path.copy(a.sun_path, sizeof a.sun_path - 1);
  std::string answer;
  if (::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) {
    static_cast<void>(!::send(s, request.data(), request.size(), MSG_NOSIGNAL));
    char piece[16384];
    ssize_t n = 0;
    while ((n = ::recv(s, piece, sizeof piece, 0)) > 0)
      answer.append(piece, static_cast<std::size_t>(n));
  }
  ::close(s);
  return answer;
}

std::string get(const std::string& target) {
  return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
}

std::string post(const std::string& target, std::string_view token) {
  return "POST " + target + " HTTP/1.1\r\nHost: localhost\r\nX-Vigil-Token: " + std::string(token) +
         "\r\n\r\n";
}

void require_good(const std::string& answer) {
  if (!answer.starts_with("HTTP/1.1 200 "))
    throw std::runtime_error("no answer: " + answer.substr(0, 1000));
}

std::string socket_path() {
  return std::filesystem::temp_directory_path() /
         ("vigil-bench-" + std::to_string(::getpid()) + ".sock");
}

std::vector<vigil::fiber<void>> waiting_fibers(const vigil::channel<int>& closed) {
  std::vector<vigil::fiber<void>> all;
  for (int i = 0; i < fibers; ++i)
    all.push_back(vigil::spawn(&wait_for, closed));
  vigil::sleep_for(300ms);
  return all;
}

// --- how long an answer takes

std::vector<double> answers(const std::string& path, const char* target, int times) {
  std::vector<double> taken;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    require_good(ask(path, get(target)));
    const std::chrono::duration<double, std::milli> t = std::chrono::steady_clock::now() - begin;
    taken.push_back(t.count());
  }
  std::sort(taken.begin(), taken.end());
  return taken;
}

void report_answers(report& out, const std::string& path, const std::string& beside) {
  for (const char* const target : {"/state.json", "/metrics"}) {
    const std::vector<double> taken = answers(path, target, out.is_long() ? 200 : 30);
    const std::string name = std::string(target) + ", 100 000 fibers" + beside;
    out.add(name, taken[taken.size() / 2], "ms", "median");
    out.add(name, taken.back(), "ms", "worst");
  }
}

}  // namespace

void inspect_page(report& out) {
  const std::string path = socket_path();
  const auto page = vigil::inspect::serve(path, {.announce = false});
  vigil::run([&] {
    auto closed = vigil::make_channel<int>();
    const auto all = waiting_fibers(closed);
    vigil::blocking([&] { report_answers(out, path, ""); });
    // On every worker there is always a fiber that runs.
    std::atomic<bool> stop{false};
    std::vector<vigil::fiber<void>> load;
    for (int i = 0; i < 64; ++i) {
      load.push_back(vigil::spawn([&] {
        while (!stop.load(std::memory_order_relaxed))
          vigil::this_fiber::yield();
      }));
    }
    vigil::blocking([&] { report_answers(out, path, ", under full load"); });
    stop.store(true);
    for (auto& f : load)
      f.join();
    closed.close();
  });
}

namespace {

// --- how long the page's fibers keep their worker

// The longest turn since take(): by the clock, and in processor time, which leaves out
// the time that other threads had meanwhile.
struct longest_turn {
  nanos ran_for = 0;
  nanos processor = 0;
};

// Watches the turns of the page's fibers by its recorder, which tells of each turn above
// a limit (inspect::record_on's ran_for). The program's runtime has a recorder as well;
// its turns are left out.
class turn_watch {
 public:
  // Caller: one page is served, and has a recorder.
  turn_watch() {
    vigil::detail::for_each_running([](const vigil::detail::scheduler& s, auto&) {
      if (s.settings().is_observer) thread = s.workers().front()->kernel_thread.load();
    });
    vigil::detail::record_triggers::limits limits;
    limits.ran_for = shortest;
    limits.ran_for_ticks = vigil::detail::ticks_in(shortest);
    vigil::detail::triggers.set(limits, &turn_watch::note);
  }

  ~turn_watch() { vigil::detail::triggers.set({}, nullptr); }

  turn_watch(const turn_watch&) = delete;
  turn_watch& operator=(const turn_watch&) = delete;

  static longest_turn take() noexcept {
    return {longest.exchange(0), longest_processor.exchange(0)};
  }

 private:
  static constexpr nanos shortest = 1'000;

  static void note(vigil::detail::trigger_kind kind,
                   nanos by,
                   vigil::detail::event_clock) noexcept {
    using vigil::detail::trigger_kind;
    if (kind != trigger_kind::ran_long || ::gettid() != thread) return;
    // This includes all that the thread did since the turn that was told before.
    const nanos before = std::exchange(processor_before, thread_cpu_time());
    const nanos processor = std::min(processor_before - before, by);
    if (by > longest.load()) longest.store(by);
    if (processor > longest_processor.load()) longest_processor.store(processor);
  }

  static inline std::atomic<int> thread{0};
  static inline std::atomic<nanos> longest{0};
  static inline std::atomic<nanos> longest_processor{0};
  static inline nanos processor_before = 0;  // only the page's thread
};

// The fiber of a connection ends after its answer has been read.
void wait_for_page_to_rest() {
  for (;;) {
    std::size_t alive = 0;
    vigil::detail::for_each_running([&](const vigil::detail::scheduler& s, auto&) {
      vigil::runtime_stats stats;
      s.add_stats(stats);
      if (s.settings().is_observer) alive = stats.fibers_alive;
    });
    if (alive == 1) return;
    std::this_thread::sleep_for(1ms);
  }
}

void report_turns(report& out,
                  const std::string& path,
                  const std::string& name,
                  const std::string& request,
                  int times) {
  std::vector<nanos> ran_for;
  std::vector<nanos> processor;
  std::size_t size = 0;
  for (int i = 0; i < times; ++i) {
    wait_for_page_to_rest();
    turn_watch::take();
    const std::string answer = ask(path, request);
    wait_for_page_to_rest();
    require_good(answer);
    size = answer.size();
    const longest_turn turn = turn_watch::take();
    ran_for.push_back(turn.ran_for);
    processor.push_back(turn.processor);
  }
  const auto row = [&](const char* of, std::vector<nanos>& turns) {
    std::sort(turns.begin(), turns.end());
    const std::string title = name + ", longest turn" + of;
    out.add(title, static_cast<double>(turns[turns.size() / 2]) / 1e3, "us", "median");
    out.add(title, static_cast<double>(turns.back()) / 1e3, "us", "worst");
  };
  row((" of " + std::to_string(size) + " bytes").c_str(), ran_for);
  row(", processor time", processor);
}

}  // namespace

void page_turns(report& out) {
  const std::string path = socket_path();
  const vigil::inspect::page_options options{.announce = false};
  auto server = std::make_unique<vigil::detail::page_server>(
      vigil::detail::listening_socket::at_path(path.c_str()),
      options,
      vigil::detail::page_settings{.recorder_events = 4'096});
  const vigil::inspect::live_page page(std::move(server));
  vigil::options settings;
  settings.recorder_events = 4'096;
  vigil::run(settings, [&] {
    auto closed = vigil::make_channel<int>();
    const auto all = waiting_fibers(closed);
    vigil::blocking([&] {
      const turn_watch turns;
      const int times = out.is_long() ? 100 : 20;
      for (const char* const target : {"/",
                                       "/state.json",
                                       "/fibers.json",
                                       "/tasks.json",
                                       "/workers.json",
                                       "/deadlines.json",
                                       "/lateness.json",
                                       "/metrics"})
        report_turns(out, path, target, get(target), times);
      for (const char* const target : {"/dump.txt", "/dump.json", "/record"})
        report_turns(out, path, target, post(target, page.token()), out.is_long() ? 20 : 5);
    });
    closed.close();
  });
}

}  // namespace bench
