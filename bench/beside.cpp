// Bytes and deadlines that come at random instants while a fiber computes and one worker
// is idle: how late the fiber that they make ready begins to run.
#include "harness.hpp"

#include <vigil/io/deadline_stream.hpp>
#include <vigil/io/io_context.hpp>
#include <vigil/vigil.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include <sys/socket.h>

namespace bench {
namespace {

using namespace std::chrono_literals;
using vigil::clock;
namespace asio = boost::asio;
using local = asio::local::stream_protocol;

struct lateness {
  std::vector<nanos> bare;       // of the plain thread that sends, for its sleeps
  std::vector<nanos> bytes;      // from just before they are sent
  std::vector<nanos> deadlines;  // of a fiber that sleeps
};

constexpr nanos farthest_apart = 2'000'000;

// Sleeps to random instants, as a bare thread does, and sends the time at each.
void send_at_random(int socket, std::size_t n, std::vector<nanos>& late) {
  exact_sleeps();
  std::minstd_rand dice(1);
  std::uniform_int_distribution<nanos> apart(0, farthest_apart);
  for (std::size_t i = 0; i < n; ++i) {
    late.push_back(bare_sleep_until(now() + apart(dice)));
    const nanos sent = now();
    if (::send(socket, &sent, sizeof sent, MSG_NOSIGNAL) != sizeof sent) std::abort();
  }
}

void receive(local::socket from, std::size_t n, std::vector<nanos>& late) {
  vigil::io::deadline_stream<local::socket> in(std::move(from));
  for (std::size_t i = 0; i < n; ++i) {
    nanos sent = 0;
    if (in.read_some(asio::buffer(&sent, sizeof sent)) != sizeof sent) std::abort();
    late.push_back(now() - sent);
  }
}

void sleep_at_random(std::size_t n, std::vector<nanos>& late) {
  std::minstd_rand dice(2);
  std::uniform_int_distribution<nanos> apart(0, farthest_apart);
  nanos due = now();
  for (std::size_t i = 0; i < n; ++i) {
    due += apart(dice);  // whenever the fiber runs: what is held up counts each time
    vigil::sleep_until(clock::time_point(std::chrono::nanoseconds(due)));
    late.push_back(now() - due);
  }
}

// The computing fiber waits for 100 us before each stretch, so that its worker has left
// the watch for it: beside stretches of 0.15 ms two fifths of the samples meet no
// computation.
lateness beside(std::chrono::nanoseconds stretch, std::size_t n) {
  lateness late;
  for (std::vector<nanos>* each : {&late.bare, &late.bytes, &late.deadlines})
    each->reserve(n);
  vigil::run(with_workers(2), [&] {
    local::socket near(vigil::io::io_context());
    local::socket far(vigil::io::io_context());
    asio::local::connect_pair(near, far);
    std::atomic<bool> over{false};
    vigil::group all;
    all.go([&] {
      while (!over.load()) {
        vigil::sleep_for(100us);
        const nanos until = now() + stretch.count();
        while (now() < until) {
        }
      }
    });
    std::jthread sender([&] { send_at_random(near.native_handle(), n, late.bare); });
    auto receiver = vigil::spawn([&] { receive(std::move(far), n, late.bytes); });
    auto sleeper = vigil::spawn([&] { sleep_at_random(n, late.deadlines); });
    receiver.join();
    sleeper.join();
    sender.join();
    over = true;
    all.wait();
  });
  return late;
}

void print(report& out, const std::string& name, const lateness& late) {
  const auto worst = [](const std::vector<nanos>& of) {
    return static_cast<double>(*std::max_element(of.begin(), of.end()));
  };
  for (const auto& [what, of] :
       {std::pair{"bytes", &late.bytes}, std::pair{"deadlines", &late.deadlines}}) {
    const std::string title = std::string(what) + " beside " + name;
    out.compare(title + ", p99",
                quantile(*of, 0.99) / 1e3,
                "us",
                quantile(late.bare, 0.99) / 1e3,
                "a bare thread's sleep");
    out.compare(title + ", latest",
                worst(*of) / 1e3,
                "us",
                worst(late.bare) / 1e3,
                "a bare thread's sleep");
  }
}

}  // namespace

void beside_computation(report& out) {
  const std::size_t n = out.is_long() ? 10'000 : 2'000;
  print(out, "0.15 ms", beside(150us, n));
  print(out, "0.5 ms", beside(500us, n));
  print(out, "5 ms", beside(5ms, n));
  print(out, "50 ms", beside(50ms, n));
}

}  // namespace bench
