// Ways in which one thread can wait for sockets, without fibers, deadlines or a
// scheduler: a byte there and back over TCP between two ends, in one or in 64 pairs.
// Decision 0013 has the table.
//
// Run:     ninja -C build/release bench/wait_shapes, then
//          build/release/bench/wait_shapes, or, to count what one of them does,
//          build/release/bench/wait_shapes SHAPE PAIRS ROUND_TRIPS
// Prints:  nanoseconds of processor time for a round trip, median of nine (least to
//          most); the shapes take turns.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr int most_events = 128;

std::int64_t cpu_time() {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

void check(bool holds, const char* what) {
  if (holds) return;
  std::perror(what);
  std::abort();
}

// One end of a pair: passes each byte back, `left` times.
struct end {
  tcp::socket socket;
  bool begins = false;
  std::size_t left = 0;
  std::size_t* unfinished = nullptr;

  void send() {
    const char byte = 1;
    check(::send(socket.native_handle(), &byte, 1, MSG_NOSIGNAL) == 1, "send");
  }

  // Returns false if nothing was there.
  bool receive() {
    char byte = 0;
    const ssize_t n = ::recv(socket.native_handle(), &byte, 1, 0);
    check(n == 1 || errno == EAGAIN, "recv");
    return n == 1;
  }

  // Called when a byte may be there. Returns whether the end waits for another one.
  bool goes_on() {
    if (!receive()) return true;
    --left;
    if (!begins || left != 0) send();
    if (left != 0) return true;
    --*unfinished;
    return false;
  }
};

struct pairs {
  asio::io_context context{1};
  std::deque<end> ends;  // 2i begins, 2i + 1 answers
  std::size_t unfinished = 0;

  explicit pairs(std::size_t n) {
    tcp::acceptor acceptor(context, {asio::ip::address_v4::loopback(), 0});
    for (std::size_t i = 0; i < n; ++i) {
      tcp::socket near(context);
      near.connect(acceptor.local_endpoint());
      tcp::socket far = acceptor.accept();
      for (tcp::socket* s : {&near, &far}) {
        s->set_option(tcp::no_delay(true));
        s->native_non_blocking(true);
        ends.push_back({std::move(*s), s == &near});
      }
    }
  }

  void begin(std::size_t round_trips) {
    unfinished = ends.size();
    for (end& e : ends) {
      e.left = round_trips;
      e.unfinished = &unfinished;
    }
  }

  void serve() {
    for (std::size_t i = 0; i < ends.size(); i += 2)
      ends[i].send();
  }
};

// --- the shapes

// async_wait of Asio for each wait, whose handler reads.
struct by_async_wait {
  static void wait(end& e) {
    e.socket.async_wait(tcp::socket::wait_read, [&e](boost::system::error_code) {
      if (e.goes_on()) wait(e);
    });
  }

  void run(pairs& p, std::size_t n) {
    p.begin(n);
    for (end& e : p.ends)
      wait(e);
    p.serve();
    p.context.restart();
    p.context.run();
  }
};

// async_read_some of Asio, which tries to read before it waits.
struct by_async_read {
  struct reader {
    end& e;
    char byte = 0;

    void read() {
      e.socket.async_read_some(asio::buffer(&byte, 1),
                               [this](boost::system::error_code, std::size_t) {
                                 --e.left;
                                 if (!e.begins || e.left != 0) e.send();
                                 if (e.left != 0) read();
                               });
    }
  };

  void run(pairs& p, std::size_t n) {
    p.begin(n);
    std::deque<reader> readers;
    for (end& e : p.ends)
      readers.push_back({e});
    for (reader& r : readers)
      r.read();
    p.serve();
    p.context.restart();
    p.context.run();
  }
};

// An epoll set without Asio, in which each socket stands once and for all,
// edge-triggered. (Asio has each of them in its own set as well, which takes the kernel a
// little time.)
struct by_own_set {
  int set = ::epoll_create1(EPOLL_CLOEXEC);
  bool added = false;
  std::array<epoll_event, most_events> events{};

  void add(pairs& p) {
    if (std::exchange(added, true)) return;
    for (end& e : p.ends) {
      epoll_event event{};
      event.events = EPOLLIN | EPOLLRDHUP | EPOLLET;
      event.data.ptr = &e;
      check(::epoll_ctl(set, EPOLL_CTL_ADD, e.socket.native_handle(), &event) == 0, "epoll_ctl");
    }
  }

  void take(int milliseconds) {
    const int n = ::epoll_wait(set, events.data(), most_events, milliseconds);
    for (int i = 0; i < n; ++i)
      static_cast<end*>(events[static_cast<std::size_t>(i)].data.ptr)->goes_on();
  }

  void run(pairs& p, std::size_t n) {
    add(p);
    p.begin(n);
    p.serve();
    while (p.unfinished != 0)
      take(-1);
  }
};

// That set beside Asio's, in which each socket stands as well: run_one() comes back at
// each event, although no handler has run, and the set says for which socket. Only one
// thread may run the io_context, or the other one takes the event and tells nobody.
struct by_set_beside {
  by_own_set own;

  void run(pairs& p, std::size_t n) {
    own.add(p);
    p.begin(n);
    const auto guard = asio::make_work_guard(p.context);
    p.serve();
    p.context.restart();
    while (p.unfinished != 0) {
      p.context.run_one();
      own.take(0);
    }
  }
};

// That set, entered in the io_context as one descriptor, with a wait of Asio's for it
// that its handler renews: any thread may run it.
struct by_nested_set {
  by_own_set own;
  std::unique_ptr<asio::posix::stream_descriptor> inside;
  pairs* of = nullptr;

  void wait() {
    inside->async_wait(asio::posix::stream_descriptor::wait_read, [this](auto error) {
      if (error) return;
      own.take(0);
      if (of->unfinished != 0) wait();
    });
  }

  void run(pairs& p, std::size_t n) {
    of = &p;
    own.add(p);
    if (!inside) inside = std::make_unique<asio::posix::stream_descriptor>(p.context, own.set);
    p.begin(n);
    wait();
    p.serve();
    p.context.restart();
    p.context.run();
  }
};

// --- the figures

template <class Shape>
struct measured {
  pairs p;
  Shape shape;
  std::vector<double> rounds;

  explicit measured(std::size_t n) : p(n) {}

  void round(std::size_t round_trips) {
    const std::int64_t begun = cpu_time();
    shape.run(p, round_trips);
    rounds.push_back(static_cast<double>(cpu_time() - begun) /
                     static_cast<double>(round_trips * p.ends.size() / 2));
  }

  void print(const char* name) {
    std::sort(rounds.begin(), rounds.end());
    std::printf("%-16s %3zu pairs %8.0f (%.0f-%.0f)\n",
                name,
                p.ends.size() / 2,
                rounds[rounds.size() / 2],
                rounds.front(),
                rounds.back());
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc == 4) {
    const std::string_view shape = argv[1];
    const std::size_t n = std::strtoul(argv[2], nullptr, 10);
    const auto once = [&](auto&& m) { m.round(std::strtoul(argv[3], nullptr, 10)); };
    if (shape == "async_wait") {
      once(measured<by_async_wait>(n));
    } else if (shape == "async_read_some") {
      once(measured<by_async_read>(n));
    } else if (shape == "alone") {
      once(measured<by_own_set>(n));
    } else if (shape == "beside") {
      once(measured<by_set_beside>(n));
    } else if (shape == "nested") {
      once(measured<by_nested_set>(n));
    } else {
      std::fputs("SHAPE: async_wait, async_read_some, alone, beside or nested\n", stderr);
      return 2;
    }
    return 0;
  }
  for (const std::size_t n : {std::size_t{1}, std::size_t{64}}) {
    measured<by_async_wait> async_wait(n);
    measured<by_async_read> async_read_some(n);
    measured<by_own_set> alone(n);
    measured<by_set_beside> beside(n);
    measured<by_nested_set> nested(n);
    for (int i = 0; i < 9; ++i) {
      const std::size_t round_trips = 20'000 / n;
      async_wait.round(round_trips);
      async_read_some.round(round_trips);
      alone.round(round_trips);
      beside.round(round_trips);
      nested.round(round_trips);
    }
    async_wait.print("async_wait");
    async_read_some.print("async_read_some");
    alone.print("alone");
    beside.print("beside");
    nested.print("nested");
  }
  return 0;
}
