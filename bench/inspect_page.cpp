// The live page of a program with 100 000 fibers: how long an answer takes, and what the
// answers cost the program.
#include "harness.hpp"

#include <vigil/inspect.hpp>
#include <vigil/inspect_page.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <thread>
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

// The body of the answer.
std::string ask(const std::string& path, const char* target) {
  const int s = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un a{};
  a.sun_family = AF_UNIX;
  path.copy(a.sun_path, sizeof a.sun_path - 1);
  std::string answer;
  if (::connect(s, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) {
    const std::string request =
        std::string("GET ") + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    static_cast<void>(!::send(s, request.data(), request.size(), MSG_NOSIGNAL));
    char piece[16384];
    ssize_t n = 0;
    while ((n = ::recv(s, piece, sizeof piece, 0)) > 0)
      answer.append(piece, static_cast<std::size_t>(n));
  }
  ::close(s);
  if (!answer.starts_with("HTTP/1.1 200 ")) throw std::runtime_error("no answer: " + answer);
  return answer.substr(answer.find("\r\n\r\n") + 4);
}

std::vector<double> answers(const std::string& path, const char* target, int times) {
  std::vector<double> taken;
  for (int i = 0; i < times; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    ask(path, target);
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
  const std::string path = std::filesystem::temp_directory_path() /
                           ("vigil-bench-" + std::to_string(::getpid()) + ".sock");
  const auto page = vigil::inspect::serve(path, {.announce = false});
  vigil::run([&] {
    auto closed = vigil::make_channel<int>();
    std::vector<vigil::fiber<void>> all;
    for (int i = 0; i < fibers; ++i)
      all.push_back(vigil::spawn(&wait_for, closed));
    vigil::sleep_for(300ms);
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

}  // namespace bench
