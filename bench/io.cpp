// Waiting inside the io_context beside waiting on the futex: how late they are, and the
// cost of a round trip and of a read that waits. io_kernel.cpp counts the system calls.
#include "io.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/io/use_fiber.hpp>
#include <vigil/vigil.hpp>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <unistd.h>

namespace bench {
namespace {

using namespace std::chrono_literals;
namespace asio = boost::asio;
using unix_socket = asio::local::stream_protocol::socket;
using vigil::io::use_fiber;

// --- how late

enum class watch { futex, io };

// The lateness of: a sleep of the only fiber; a callback that a computing fiber arms
// while another worker sleeps to a later deadline.
enum class kind { lone_sleep, earlier_deadline };

// A runtime on its own thread, which takes one sample whenever it is asked to.
class sleeper {
 public:
  sleeper(watch where, std::size_t workers)
      : thread_([this, where, workers] {
          vigil::run(with_workers(workers), [this, where] {
            if (where == watch::io) static_cast<void>(vigil::io::io_context());
            auto far = vigil::spawn([] { vigil::sleep_for(1h); });
            vigil::spawn([this] { serve(); }).join();
          });
        }) {}

  ~sleeper() {
    asked_.close();
    thread_.join();
  }

  nanos once(kind what) {
    asked_.send(what);
    return *late_.recv();
  }

 private:
  void serve() {
    for (const kind what : asked_)
      late_.send(what == kind::lone_sleep ? lone_sleep() : earlier_deadline());
  }

  static nanos lone_sleep() {
    const nanos deadline = now() + millisecond;
    vigil::sleep_until(vigil::clock::time_point(std::chrono::nanoseconds(deadline)));
    return now() - deadline;
  }

  static nanos earlier_deadline() {
    compute_until(now() + millisecond / 4);  // by then the other worker sleeps
    std::atomic<nanos> ran{0};
    const nanos deadline = now() + millisecond;
    const auto t =
        vigil::after_func(std::chrono::nanoseconds(millisecond), [&ran] { ran.store(now()); });
    while (ran.load() == 0) {
    }
    return ran.load() - deadline;
  }

  static void compute_until(nanos t) {
    while (now() < t) {
    }
  }

  vigil::channel<kind> asked_ = vigil::make_channel<kind>();
  vigil::channel<nanos> late_ = vigil::make_channel<nanos>();
  std::thread thread_;
};

void compare_watches(report& out, const std::string& name, kind what, std::size_t workers) {
  const std::size_t samples = out.is_asked_for() ? 3'000 : 500;
  sleeper futex(watch::futex, workers);
  sleeper again(watch::futex, workers);
  sleeper io(watch::io, workers);
  const std::array<sleeper*, 3> all{&futex, &again, &io};
  std::array<std::vector<nanos>, 3> late;
  for (std::size_t i = 0; i < samples * all.size(); ++i) {
    // Takes turns, forwards and backwards.
    const std::size_t which = (i / all.size()) % 2 == 0 ? i % 3 : 2 - i % 3;
    late[which].push_back(all[which]->once(what));
  }
  for (const auto& [label, q] : {std::pair{"p50", 0.5}, {"p99", 0.99}}) {
    const double bare = quantile(late[0], q);
    out.compare(name + ", " + label, quantile(late[2], q) / 1e3, "us", bare / 1e3, "futex watch");
    char noise[64];
    std::snprintf(noise,
                  sizeof noise,
                  "goal %s; A/A %.2f",
                  q < 0.6 ? "1.3" : "1.5",
                  quantile(late[1], q) / bare);
    out.add(name + ", " + label + ": ratio", quantile(late[2], q) / bare, "x", noise);
  }
}

// --- a round trip

struct pair {
  explicit pair(asio::io_context& context) : near(context), far(context) {
    asio::local::connect_pair(near, far);
  }

  unix_socket near;
  unix_socket far;
};

template <class Read, class Write>
void talk(std::size_t n, bool begins, Read read, Write write) {
  char byte = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (begins) write(byte);
    read(byte);
    if (!begins) write(byte);
  }
}

void talk_by_token(unix_socket& s, std::size_t n, bool begins) {
  const auto soon = use_fiber.within(1min);
  talk(
      n,
      begins,
      [&](char& b) { s.async_read_some(asio::buffer(&b, 1), soon); },
      [&](char& b) { s.async_write_some(asio::buffer(&b, 1), soon); });
}

void talk_by_stream(unix_socket& s, std::size_t n, bool begins) {
  vigil::io::deadline_stream<unix_socket> stream(std::move(s));
  stream.set_deadline(vigil::clock::now() + 1min);
  talk(
      n,
      begins,
      [&](char& b) { stream.read_some(asio::buffer(&b, 1)); },
      [&](char& b) { stream.write_some(asio::buffer(&b, 1)); });
}

template <void (*Talk)(unix_socket&, std::size_t, bool)>
void fibers_talk_here(std::size_t n) {
  pair p(vigil::io::io_context());
  auto other = vigil::spawn([&] { Talk(p.far, n, false); });
  Talk(p.near, n, true);
  other.join();
}

template <void (*Talk)(unix_socket&, std::size_t, bool), std::size_t Workers>
void fibers_talk(std::size_t n) {
  vigil::run(with_workers(Workers), [n] { fibers_talk_here<Talk>(n); });
}

}  // namespace

void socket_round_trips(std::size_t n) {
  fibers_talk_here<&talk_by_stream>(n);
}

void io_overshoot(report& out) {
  compare_watches(out, "1 ms sleep, 1 worker", kind::lone_sleep, 1);
  compare_watches(out, "1 ms sleep, 2 workers", kind::lone_sleep, 2);
  compare_watches(out, "an earlier deadline from another worker", kind::earlier_deadline, 2);
}

const std::vector<talker>& talkers() {
  static const std::vector<talker> all{
      {"stream", "two fibers, deadline_stream", &fibers_talk<&talk_by_stream, 1>},
      {"token", "two fibers, use_fiber.within", &fibers_talk<&talk_by_token, 1>},
      {"token-2", "two fibers, use_fiber.within, 2 workers", &fibers_talk<&talk_by_token, 2>},
#ifdef BOOST_ASIO_HAS_CO_AWAIT
      {"asio", "two coroutines of Asio, no deadline", &asio_coroutines_talk},
#endif
#ifdef VIGIL_BENCH_LIBUV
      {"libuv", "libuv, no deadline", &libuv_talks},
#endif
  };
  return all;
}

void io_round_trip(report& out) {
  const std::size_t n = out.is_asked_for() ? 20'000 : 5'000;
  const std::size_t repetitions = out.is_asked_for() ? 9 : 3;
  const std::size_t count = talkers().size();
  std::vector<std::vector<double>> wall(count);
  std::vector<std::vector<double>> cpu(count);
  for (std::size_t round = 0; round <= repetitions; ++round) {
    for (std::size_t i = 0; i < count; ++i) {
      const nanos begun = now();
      const nanos cpu_begun = cpu_time();
      talkers()[i].talk(n);
      if (round == 0) continue;  // warms up
      cpu[i].push_back(static_cast<double>(cpu_time() - cpu_begun) / static_cast<double>(n));
      wall[i].push_back(static_cast<double>(now() - begun) / static_cast<double>(n));
    }
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::string name = talkers()[i].name;
    out.add("there and back, " + name, median(wall[i]) / 1e3, "us");
    out.add("CPU, " + name, median(cpu[i]) / 1e3, "us");
  }
}

void io_memory(report& out) {
  const std::size_t n = allowed_descriptors(10'000);
  const auto each = [n](std::size_t before) {
    return (static_cast<double>(memory_held()) - static_cast<double>(before)) /
           static_cast<double>(n);
  };
  double ours = 0;
  vigil::run(with_workers(1), [&] {
    pair p(vigil::io::io_context());
    const auto read_one = [&] {
      unix_socket own(
          vigil::io::io_context(), asio::local::stream_protocol(), ::dup(p.near.native_handle()));
      char byte = 0;
      own.async_read_some(asio::buffer(&byte, 1), use_fiber.within(1h));
    };
    vigil::spawn(read_one).request_stop();
    vigil::sleep_for(1ms);
    const std::size_t before = memory_held();
    std::vector<vigil::fiber<>> readers;
    readers.reserve(n);
    for (std::size_t i = 0; i < n; ++i)
      readers.push_back(vigil::spawn(read_one));
    vigil::sleep_for(10ms);
    ours = each(before);
  });
  out.add("memory of a fiber that waits to read, with a deadline",
          ours,
          "bytes",
          std::to_string(n) + " of them");
#ifdef BOOST_ASIO_HAS_CO_AWAIT
  out.add("memory of a coroutine of Asio that waits to read",
          asio_waiting_read_bytes(n),
          "bytes",
          std::to_string(n) + " of them, without a deadline");
#endif
}

}  // namespace bench
