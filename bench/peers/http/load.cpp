// The load of `./dev bench --peers http`: GETs over keep-alive connections, with epoll
// and nothing else. It has its own processor and spins on it, except for `pipelining`,
// whose two threads wait in the kernel, and with waits=1.
//
//   load closed     PORT [connections=N] [seconds=S] [pid=P] [waits=1]
//   load open       PORT [connections=N] [seconds=S] [pid=P] [rate=R] [slow=N]
//   load pipelining PORT [connections=N] [seconds=S] [pid=P] [pause=S]
//   load hold       PORT [connections=N]
//
// closed: each connection asks again as soon as it is answered. open: R requests a
// second, each at a time that was fixed beforehand. Its latency counts from that time, so
// a request that waits for a late answer on its connection is late itself (no coordinated
// omission). Beside them `slow` connections send half a header, a byte each 100 ms; one
// that the server has cut comes again. pipelining: each connection sends requests as long
// as the kernel takes them, and drops the answers as they come, so that the server always
// has some of each; beside them an honest client on one connection asks again `pause`
// after each answer. hold: asks once on each connection, says "ready" and keeps the
// connections until standard input ends.
//
// Prints key=value: requests, seconds, cpu (of the process `pid`, seconds), delay (how
// long its threads were ready without a processor, seconds); for open and for
// pipelining's honest client the latencies p50, p95, p99, max (microseconds); for
// open the number of slow connections that were cut, and after which times (seconds); for
// pipelining the number of the honest client's requests.
#include "clients.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <sys/epoll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace {

using namespace load_clients;

// In seconds, of all threads of a process.
struct spent {
  double cpu = 0;    // on a processor
  double delay = 0;  // ready, without one
};

spent spent_by(int pid) {
  spent sum;
  if (pid == 0) return sum;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::uint64_t ran = 0;
    std::uint64_t waited = 0;
    std::ifstream(task.path() / "schedstat") >> ran >> waited;
    sum.cpu += static_cast<double>(ran) / 1e9;
    sum.delay += static_cast<double>(waited) / 1e9;
  }
  return sum;
}

struct settings {
  std::string mode;
  int port = 0;
  std::size_t connections = 64;
  double seconds = 1;
  int pid = 0;
  double rate = 10'000;
  std::size_t slow = 0;
  double pause = 0.005;
  bool waits = false;
};

class load {
 public:
  explicit load(const settings& how) : how_(how), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    const std::uint32_t events = how_.mode == "pipelining" ? EPOLLIN | EPOLLOUT : EPOLLIN;
    for (std::size_t i = 0; i < how_.connections; ++i)
      all_.push_back(std::make_unique<connection>(how_.port, epoll_, events));
    for (std::size_t i = 0; i < how_.slow; ++i)
      slow_.push_back(std::make_unique<slow_client>(how_.port));
  }

  ~load() { close(epoll_); }

  load(const load&) = delete;
  load& operator=(const load&) = delete;

  void hold() {
    for (auto& c : all_) {
      c->ask();
      while (!c->is_answered())
        usleep(10);
    }
    std::puts("ready");
    std::fflush(stdout);
    while (std::getchar() != EOF) {
    }
  }

  void run_closed() {
    for (auto& c : all_)
      c->ask();
    const auto turn = [&] {
      each_answered([&](connection& c) {
        ++requests_;
        c.ask();
      });
    };
    measure(turn);
    std::printf("\n");
  }

  void run_open() {
    const double begin = now();
    std::uint64_t asked = 0;
    next_step_ = begin;
    const auto turn = [&] {
      const double time = now();
      for (; begin + static_cast<double>(asked) / how_.rate <= time; ++asked) {
        connection& c = *all_[asked % all_.size()];
        c.intended.push_back(begin + static_cast<double>(asked) / how_.rate);
        if (c.intended.size() == 1) c.ask();
      }
      step_slow(time);
      each_answered([&](connection& c) {
        ++requests_;
        latencies_.push_back(now() - c.intended.front());
        c.intended.pop_front();
        if (!c.intended.empty()) c.ask();
      });
    };
    measure(turn);
    print_latencies();
    std::printf(" cut=%zu", cuts_.size());
    if (!cuts_.empty()) {
      const auto [least, most] = std::minmax_element(cuts_.begin(), cuts_.end());
      std::printf(" cut_min=%.3f cut_max=%.3f", *least, *most);
    }
    std::printf("\n");
  }

  // The honest client has this thread; the others share one.
  void run_pipelining() {
    std::string requests;
    while (requests.size() < std::size_t{64} << 10)
      requests += request;
    connection honest(how_.port, epoll_create1(EPOLL_CLOEXEC));
    const auto ask = [&] {
      const double asked = now();
      honest.ask();
      while (!honest.is_answered(0)) {
      }
      return now() - asked;
    };
    ask();
    std::atomic<std::uint64_t> dropped{0};
    std::atomic<bool> has_failed{false};
    std::exception_ptr error;
    std::jthread others([&](const std::stop_token& over) {
      try {
        while (!over.stop_requested())
          pipeline(requests, dropped);
      } catch (...) {
        error = std::current_exception();
        has_failed.store(true);
      }
    });
    measure([&] {
      if (has_failed.load()) return;
      usleep(static_cast<useconds_t>(1e6 * how_.pause));
      latencies_.push_back(ask());
      // All answers are as long as the honest client's.
      requests_ += dropped.exchange(0) / honest.answer_size();
    });
    others.request_stop();
    others.join();
    if (error != nullptr) std::rethrow_exception(error);
    std::printf(" honest=%zu", latencies_.size());
    print_latencies();
    std::printf("\n");
  }

 private:
  void pipeline(std::string_view requests, std::atomic<std::uint64_t>& dropped) {
    epoll_event events[256];
    const int n = epoll_wait(epoll_, events, 256, 100);
    for (int i = 0; i < n; ++i) {
      auto& c = *static_cast<connection*>(events[i].data.ptr);
      if ((events[i].events & EPOLLIN) != 0) dropped.fetch_add(c.drop_answers());
      if ((events[i].events & EPOLLOUT) != 0) c.pipeline(requests);
    }
  }

  void print_latencies() {
    std::sort(latencies_.begin(), latencies_.end());
    const auto at = [&](double share) {
      if (latencies_.empty()) return 0.0;
      return 1e6 * latencies_[static_cast<std::size_t>(share *
                                                       static_cast<double>(latencies_.size() - 1))];
    };
    std::printf(" p50=%.1f p95=%.1f p99=%.1f max=%.1f", at(0.5), at(0.95), at(0.99), at(1));
  }

  template <class F>
  void each_answered(F f) {
    epoll_event events[256];
    const int n = epoll_wait(epoll_, events, 256, how_.waits ? 100 : 0);
    for (int i = 0; i < n; ++i) {
      auto& c = *static_cast<connection*>(events[i].data.ptr);
      if (c.is_answered()) f(c);
    }
  }

  // Steps each slow client in turn, evenly, a byte each 100 ms.
  void step_slow(double time) {
    if (slow_.empty()) return;
    while (next_step_ <= time) {
      const double cut = slow_[next_slow_++ % slow_.size()]->step(time);
      if (cut > 0) cuts_.push_back(cut);
      next_step_ += 0.1 / static_cast<double>(slow_.size());
    }
  }

  // Does not count the first quarter.
  template <class F>
  void measure(F turn) {
    const double warm = now() + how_.seconds / 4;
    while (now() < warm)
      turn();
    requests_ = 0;
    latencies_.clear();
    const spent before = spent_by(how_.pid);
    const double begin = now();
    double end = begin;
    while ((end = now()) < begin + how_.seconds)
      turn();
    const spent after = spent_by(how_.pid);
    std::printf("requests=%llu seconds=%.4f cpu=%.6f delay=%.6f",
                static_cast<unsigned long long>(requests_),
                end - begin,
                after.cpu - before.cpu,
                after.delay - before.delay);
  }

  const settings how_;
  const int epoll_;
  std::vector<std::unique_ptr<connection>> all_;
  std::vector<std::unique_ptr<slow_client>> slow_;
  std::uint64_t requests_ = 0;
  std::vector<double> latencies_;
  std::vector<double> cuts_;
  double next_step_ = 0;
  std::size_t next_slow_ = 0;
};

settings read_settings(int argc, char** argv) {
  if (argc < 3)
    throw std::runtime_error("usage: load closed|open|pipelining|hold PORT [key=value]...");
  settings how;
  how.mode = argv[1];
  how.port = std::atoi(argv[2]);
  for (int i = 3; i < argc; ++i) {
    const std::string_view text = argv[i];
    const auto value_of = [&](std::string_view key) {
      const bool is_it =
          text.size() > key.size() && text.substr(0, key.size()) == key && text[key.size()] == '=';
      return is_it ? argv[i] + key.size() + 1 : nullptr;
    };
    if (const char* v = value_of("connections"))
      how.connections = std::strtoul(v, nullptr, 10);
    else if (const char* s = value_of("seconds"))
      how.seconds = std::atof(s);
    else if (const char* p = value_of("pid"))
      how.pid = std::atoi(p);
    else if (const char* r = value_of("rate"))
      how.rate = std::atof(r);
    else if (const char* n = value_of("slow"))
      how.slow = std::strtoul(n, nullptr, 10);
    else if (const char* b = value_of("pause"))
      how.pause = std::atof(b);
    else if (const char* w = value_of("waits"))
      how.waits = std::atoi(w) != 0;
    else
      throw std::runtime_error("unknown: " + std::string(text));
  }
  return how;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const settings how = read_settings(argc, argv);
    load l(how);
    if (how.waits && how.mode != "closed") {
      throw std::runtime_error("waits: for `closed` alone");
    }
    if (how.mode == "closed") {
      l.run_closed();
    } else if (how.mode == "open") {
      l.run_open();
    } else if (how.mode == "pipelining") {
      l.run_pipelining();
    } else if (how.mode == "hold") {
      l.hold();
    } else {
      throw std::runtime_error("no such mode: " + how.mode);
    }
    return 0;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "load: %s\n", e.what());
    return 1;
  }
}
