// A load whose results are known, without dumps and beside a thread that dumps as often
// as it can: nothing may change but speed.
#include "core/machine/sanitizer.hpp"
#include "inspect/inspect_helpers.hpp"
#include "support/in_runtime.hpp"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <sys/socket.h>
#include <unistd.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

struct load_results {
  std::vector<int> unbuffered;
  std::array<std::vector<int>, 3> by_sender;
  long counted = 0;
  std::string from_pipe;
  std::string from_socket;
  int failed_calls = 0;  // of read and write
  int fired = 0;
  int fired_not_once = 0;
  int stopped_and_fired = 0;  // or neither
  int early = 0;              // sleeps and timers
  std::vector<std::uint64_t> computed;
  int errno_changed = 0;

  bool operator==(const load_results&) const = default;
};

constexpr int load_values = 300;
constexpr int load_adders = 6;
constexpr int load_bytes = 300;
constexpr int load_timers = 150;
constexpr int load_sleepers = 8;
constexpr int load_naps = 5;
constexpr int load_computers = 4;

// How many dumps have been made.
using dump_count = std::atomic<int>;

// Returns whether one has been made from begin to end since there were so many. True if
// none are made.
bool was_dumped(const dump_count* dumps, int before) {
  return dumps == nullptr || dumps->load() >= before + 2;
}

int dumps_so_far(const dump_count* dumps) {
  return dumps != nullptr ? dumps->load() : 0;
}

char load_byte(int i) {
  return static_cast<char>('a' + i % 23);
}

std::uint64_t load_sum(std::uint64_t of) {
  for (int i = 0; i < 200'000; ++i)
    of = (of ^ (of >> 29)) * 0x9e3779b97f4a7c15;
  return of;
}

// The results that the load must have.
load_results load_expected() {
  load_results r;
  r.unbuffered.resize(load_values);
  std::iota(r.unbuffered.begin(), r.unbuffered.end(), 0);
  r.by_sender.fill(r.unbuffered);
  r.counted = long{load_adders} * load_values;
  for (int i = 0; i < load_bytes; ++i)
    r.from_pipe += load_byte(i);
  r.from_socket = r.from_pipe;
  r.fired = load_timers;
  for (int i = 0; i < load_computers; ++i)
    r.computed.push_back(load_sum(static_cast<std::uint64_t>(i)));
  return r;
}

void send_and_receive(vigil::group& all, load_results& r) {
  auto direct = vigil::make_channel<int>();
  all.go([direct] {
    for (int i = 0; i < load_values; ++i)
      direct.send(i);
    direct.close();
  });
  all.go([direct, &r] {
    while (const auto v = direct.recv())
      r.unbuffered.push_back(*v);
  });
  auto shared = vigil::make_channel<int>(4);
  for (int s = 0; s < 3; ++s) {
    all.go([shared, s] {
      for (int i = 0; i < load_values; ++i)
        shared.send(s * load_values + i);
    });
  }
  all.go([shared, &r] {
    for (int i = 0; i < 3 * load_values; ++i) {
      const int v = shared.recv().value();
      r.by_sender[static_cast<std::size_t>(v / load_values)].push_back(v % load_values);
    }
  });
}

void count_under_mutex(vigil::group& all, load_results& r) {
  const auto m = std::make_shared<vigil::mutex>();
  for (int a = 0; a < load_adders; ++a) {
    all.go([m, a, &r] {
      for (int i = 0; i < load_values; ++i) {
        const std::lock_guard guard(*m);
        const long before = r.counted;
        if (i % 16 == a) vigil::this_fiber::yield();
        r.counted = before + 1;
      }
    });
  }
}

class two_ends {
 public:
  explicit two_ends(bool is_socket) {
    if (is_socket) {
      REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends_) == 0);
    } else {
      REQUIRE(::pipe(ends_) == 0);
    }
  }

  ~two_ends() {
    ::close(ends_[0]);
    ::close(ends_[1]);
  }

  two_ends(const two_ends&) = delete;
  two_ends& operator=(const two_ends&) = delete;

  int near() const noexcept { return ends_[0]; }

  int far() const noexcept { return ends_[1]; }

 private:
  int ends_[2] = {-1, -1};
};

// One plain call for each byte, and none is made again: a call that a signal ends would
// be counted. Each byte is asked for, so that the reader waits in the kernel for most.
[[gnu::noinline]] void read_asked_bytes(int from, int ask, std::string& to, int& failed) {
  for (int i = 0; i < load_bytes; ++i) {
    char c = '?';
    if (::write(ask, &c, 1) != 1) ++failed;
    if (::read(from, &c, 1) != 1) ++failed;
    to += c;
  }
}

// Some answers come only after a dump has found the reader in its call.
void answer_asked_bytes(int asked, int to, const dump_count* dumps, int& failed) {
  for (int i = 0; i < load_bytes; ++i) {
    char c = 0;
    if (::read(asked, &c, 1) != 1) ++failed;
    c = load_byte(i);
    const int before = dumps_so_far(dumps);
    while (i % 100 == 50 && !was_dumped(dumps, before))
      std::this_thread::yield();
    if (::write(to, &c, 1) != 1) ++failed;
  }
}

// A function on a side pool reads from a pipe, and a fiber, which keeps its worker, from
// a socket. Both threads are interrupted by dumps.
void read_in_the_kernel(const dump_count* dumps, load_results& r) {
  two_ends there(false);
  two_ends back(false);
  two_ends socket(true);
  std::array<int, 4> failed{};
  std::thread pipe_peer([&] { answer_asked_bytes(there.near(), back.far(), dumps, failed[0]); });
  std::thread socket_peer(
      [&] { answer_asked_bytes(socket.far(), socket.far(), dumps, failed[1]); });
  auto reads = vigil::spawn(vigil::fiber_options{.name = "reader"}, [&] {
    read_asked_bytes(socket.near(), socket.near(), r.from_socket, failed[2]);
  });
  vigil::blocking([&] { read_asked_bytes(back.near(), there.far(), r.from_pipe, failed[3]); });
  reads.join();
  pipe_peer.join();
  socket_peer.join();
  r.failed_calls = std::accumulate(failed.begin(), failed.end(), 0);
}

struct counted_timer {
  std::atomic<int> fired{0};
  bool was_stopped = false;
  vigil::timer handle;
};

// The even ones are stopped when some may have fired.
class load_timer_set {
 public:
  load_timer_set() {
    all_.resize(2 * load_timers);
    open_.add(load_timers);
    for (std::size_t i = 0; i < all_.size(); ++i) {
      all_[i] = std::make_unique<counted_timer>();
      const auto delay = std::chrono::microseconds(i * 37 % 5'000);
      const auto due = vigil::clock::now() + delay;
      all_[i]->handle = vigil::after_func(delay, [this, due, i] {
        if (vigil::clock::now() < due) early_.fetch_add(1);
        all_[i]->fired.fetch_add(1);
        if (i % 2 == 1) open_.done();
      });
    }
  }

  void stop_half() {
    for (std::size_t i = 0; i < all_.size(); i += 2)
      all_[i]->was_stopped = all_[i]->handle.stop_and_wait();
  }

  void wait() { open_.wait(); }

  void add_results(load_results& r) const {
    for (std::size_t i = 0; i < all_.size(); ++i) {
      const int fired = all_[i]->fired.load();
      if (i % 2 == 0) {
        if (fired + int{all_[i]->was_stopped} != 1) ++r.stopped_and_fired;
      } else {
        r.fired += fired;
        if (fired != 1) ++r.fired_not_once;
      }
    }
    r.early += early_.load();
  }

 private:
  std::vector<std::unique_ptr<counted_timer>> all_;
  std::atomic<int> early_{0};
  vigil::wait_group open_;
};

// Goes on until a dump has been made beside it. Does not wait, so that it is one thread's
// errno.
[[gnu::noinline]] std::uint64_t sum_beside_errno(std::uint64_t of,
                                                 const dump_count* dumps,
                                                 std::atomic<int>& changed) {
  constexpr int mine = 12'345;
  errno = mine;
  const int before = dumps_so_far(dumps);
  const std::uint64_t first = load_sum(of);
  std::uint64_t sum = first;
  while (!was_dumped(dumps, before) && sum == first)
    sum = load_sum(of);
  if (errno != mine) changed.fetch_add(1);
  return sum;
}

load_results run_load(const dump_count* dumps) {
  load_results r;
  std::atomic<int> short_naps{0};
  std::atomic<int> errno_changed{0};
  load_timer_set timers;
  vigil::group all;
  send_and_receive(all, r);
  count_under_mutex(all, r);
  for (int s = 0; s < load_sleepers; ++s) {
    all.go([s, &short_naps] {
      for (int i = 0; i < load_naps; ++i) {
        const auto due = vigil::clock::now() + (200us + s * 50us);
        vigil::sleep_for(200us + s * 50us);
        if (vigil::clock::now() < due) short_naps.fetch_add(1);
      }
    });
  }
  r.computed.resize(load_computers);
  std::vector<vigil::fiber<void>> computers;
  for (std::size_t i = 0; i < load_computers; ++i) {
    computers.push_back(vigil::spawn(vigil::fiber_options{.name = "computer"}, [&, i] {
      r.computed[i] = sum_beside_errno(i, dumps, errno_changed);
    }));
  }
  read_in_the_kernel(dumps, r);
  timers.stop_half();
  all.wait();
  timers.wait();
  for (auto& f : computers)
    f.join();
  timers.add_results(r);
  r.early += short_naps.load();
  r.errno_changed = errno_changed.load();
  return r;
}

void check_same(const load_results& r, const load_results& expected) {
  CHECK(r.unbuffered == expected.unbuffered);
  CHECK(r.by_sender == expected.by_sender);
  CHECK(r.counted == expected.counted);
  CHECK(r.from_pipe == expected.from_pipe);
  CHECK(r.from_socket == expected.from_socket);
  CHECK(r.failed_calls == 0);
  CHECK(r.fired == expected.fired);
  CHECK(r.fired_not_once == 0);
  CHECK(r.stopped_and_fired == 0);
  CHECK(r.early == 0);
  CHECK(r.computed == expected.computed);
  CHECK(r.errno_changed == 0);
  CHECK(r == expected);
}

// Dumps all frames as often as it can.
class constant_dumps {
 public:
  constant_dumps()
      : thread_([this] {
          while (!over_.load()) {
            const std::string text = inspected();
            if (has(text, "(reader) [running")) readers_.fetch_add(1);
            if (has(text, "(computer) [running")) sums_.fetch_add(1);
            if (has(text, "(above: the function on a side pool")) functions_.fetch_add(1);
            dumps_.fetch_add(1);
          }
        }) {}

  ~constant_dumps() {
    over_.store(true);
    thread_.join();
  }

  constant_dumps(const constant_dumps&) = delete;
  constant_dumps& operator=(const constant_dumps&) = delete;

  const dump_count* count() const noexcept { return &dumps_; }

  // Each kind of thread that must not notice has been asked.
  void check() const {
    CHECK(readers_.load() > 0);
    CHECK(sums_.load() > 0);
    if (VIGIL_TSAN == 0) CHECK(functions_.load() > 0);
  }

 private:
  dump_count dumps_{0};
  std::atomic<int> readers_{0};
  std::atomic<int> functions_{0};
  std::atomic<int> sums_{0};
  std::atomic<bool> over_{false};
  std::thread thread_;
};

}  // namespace

TEST_SUITE("beside a load") {
  TEST_CASE("dumps of all frames change no result of a load") {
    vigil::inspect::install();
    const load_results expected = load_expected();
    in_runtime({.workers = {1, 2}}, [&] { check_same(run_load(nullptr), expected); });
    in_runtime({.workers = {1, 2}}, [&] {
      const constant_dumps beside;
      check_same(run_load(beside.count()), expected);
      beside.check();
    });
  }
}
