// The workloads with Boost.Asio: steady_timer.
//
// A cancelled wait is not gone: its handler is queued and runs with an error. So arm+stop
// here runs inside handlers of the io_context, a few operations in each, and the handlers
// of the cancelled waits run in between. Single-threaded workloads give the io_context
// the concurrency hint 1; two workers are two threads that run one io_context. Asio
// itself has no fibers.
#include "peers.hpp"

#include <chrono>
#include <deque>
#include <memory>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

namespace {

using namespace peers;
using boost::asio::io_context;
using boost::asio::steady_timer;
using boost::system::error_code;
using std::chrono::nanoseconds;

// Operations in one handler: the fastest of 1, 8 and 64.
constexpr std::size_t batch = 64;

void start(steady_timer& t, nanos delay) {
  t.expires_after(nanoseconds(delay));
  t.async_wait([](error_code) {});
}

// Does `operation` n times, `batch` times in each handler, then `then`.
template <class Operation, class Then>
struct chain {
  io_context& io;
  std::size_t done;
  std::size_t n;
  Operation operation;
  Then then;

  void operator()() {
    const std::size_t end = std::min(n, done + batch);
    for (; done < end; ++done)
      operation(done);
    if (done < n) {
      boost::asio::post(io, std::move(*this));
    } else {
      then();
    }
  }
};

template <class Operation, class Then>
void post_chain(io_context& io, std::size_t n, Operation operation, Then then) {
  boost::asio::post(io, chain<Operation, Then>{io, 0, n, std::move(operation), std::move(then)});
}

double cpu_each(io_context& io, std::size_t n, const auto& operation) {
  const nanos begun = cpu_time();
  io.restart();
  post_chain(
      io, n, [&operation](std::size_t i) { operation(i); }, [] {});
  io.poll();
  return each(cpu_time() - begun, n);
}

// steady_timer can be moved, but a deque need not move it.
std::deque<steady_timer> make_timers(io_context& io, std::size_t n) {
  std::deque<steady_timer> timers;
  for (std::size_t i = 0; i < n; ++i)
    timers.emplace_back(io);
  return timers;
}

// Pending timers that nobody touches.
std::deque<steady_timer> make_others(io_context& io, std::size_t n) {
  std::deque<steady_timer> timers = make_timers(io, n);
  random_numbers dice(7);
  for (steady_timer& t : timers)
    start(t, dice.far());
  return timers;
}

int arm(const request& asked) {
  io_context io(1);
  const std::size_t ops = asked["ops"];
  random_numbers dice;
  std::deque<steady_timer> others = make_others(io, asked["others"]);
  std::deque<steady_timer> records = make_timers(io, asked["records"]);
  steady_timer one(io);
  return serve([&] {
    numbers result;
    result.push_back({"one", cpu_each(io, ops, [&](std::size_t) {
                        start(one, dice.far());
                        one.cancel();
                      })});
    result.push_back({"records", cpu_each(io, ops, [&](std::size_t i) {
                        steady_timer& t = records[i % records.size()];
                        start(t, dice.far());
                        t.cancel();
                      })});
    result.push_back({"fresh", cpu_each(io, ops, [&](std::size_t) {
                        const auto t = std::make_unique<steady_timer>(io);
                        start(*t, dice.far());
                      })});
    start(one, dice.far());
    result.push_back(
        {"reset_one", cpu_each(io, ops, [&](std::size_t) { start(one, dice.far()); })});
    one.cancel();
    if (!others.empty()) {
      result.push_back({"reset_any", cpu_each(io, ops, [&](std::size_t) {
                          start(others[dice.below(others.size())], dice.far());
                        })});
    }
    return result;
  });
}

int arm_parallel(const request& asked) {
  const std::size_t ops = asked["ops"];
  // Arms in `chains` chains of handlers of an io_context that is made for `threads`
  // threads; threads without a chain find nothing to do.
  const auto time = [&](std::size_t threads, std::size_t chains) {
    io_context io(static_cast<int>(threads));
    const auto open = boost::asio::make_work_guard(io);
    const std::deque<steady_timer> others = make_others(io, asked["others"]);
    std::vector<std::deque<steady_timer>> records;
    for (std::size_t i = 0; i < chains; ++i)
      records.push_back(make_timers(io, asked["records"]));
    std::atomic<std::size_t> left{chains};
    for (std::size_t i = 0; i < chains; ++i) {
      post_chain(
          io,
          ops,
          [&own = records[i], dice = random_numbers(i)](std::size_t k) mutable {
            steady_timer& t = own[k % own.size()];
            start(t, dice.far());
            t.cancel();
          },
          [&io, &left] {
            if (left.fetch_sub(1) == 1) io.stop();
          });
    }
    return time_threads(threads, [&](std::size_t) { return [&io] { io.run(); }; });
  };
  return serve([&] {
    const nanos alone = time(1, 1);
    const nanos one_of_two = time(2, 1);
    return scaling(ops, alone, one_of_two, time(2, 2));
  });
}

int burst(const request& asked) {
  const std::size_t n = asked["n"];
  const std::size_t workers = asked["workers"];
  const nanos spread = static_cast<nanos>(asked["spread_us"]) * microsecond;
  io_context io(static_cast<int>(workers));
  std::deque<steady_timer> timers = make_timers(io, n);
  random_numbers dice;
  return serve([&] {
    io.restart();
    std::atomic<std::size_t> early{0};
    std::atomic<nanos> latest{0};
    nanos cpu_before = 0;
    const nanos first = now() + 50 * millisecond + static_cast<nanos>(n) * 1000;
    steady_timer before(io);
    before.expires_after(nanoseconds(first - millisecond - now()));
    before.async_wait([&](error_code) { cpu_before = cpu_time(); });
    for (steady_timer& timer : timers) {
      const nanos t = first + dice.within(spread);
      timer.expires_after(nanoseconds(t - now()));
      timer.async_wait([t, &early, &latest](error_code) {
        const nanos late = now() - t;
        if (late < 0) early.fetch_add(1);
        nanos most = latest.load();
        while (late > most && !latest.compare_exchange_weak(most, late)) {
        }
      });
    }
    const bool in_time = now() < first;
    std::vector<std::thread> more;
    for (std::size_t i = 1; i < workers; ++i)
      more.emplace_back([&io] { io.run(); });
    io.run();
    for (std::thread& t : more)
      t.join();
    return numbers{{"cpu", each(cpu_time() - cpu_before, n)},
                   {"early", static_cast<double>(early.load())},
                   {"latest", static_cast<double>(latest.load()) / 1e6},
                   {"in_time", in_time ? 1.0 : 0.0}};
  });
}

struct sleeper {
  steady_timer& timer;
  lateness& late;
  std::size_t left;

  void sleep() {
    const nanos deadline = now() + millisecond;
    timer.expires_after(nanoseconds(millisecond));
    timer.async_wait([this, deadline](error_code) {
      late.add(now() - deadline);
      if (--left > 0) sleep();
    });
  }
};

int overshoot(const request& asked) {
  io_context io(1);
  steady_timer timer(io);
  return serve([&] {
    io.restart();
    lateness late(asked["n"]);
    sleeper s{timer, late, asked["n"]};
    s.sleep();
    io.run();
    return late.result();
  });
}

int kernel_random(const request& asked) {
  io_context io(1);
  std::deque<steady_timer> timers = make_timers(io, asked["n"]);
  random_numbers dice;
  return serve([&] {
    io.restart();
    return counted([&] {
      for (steady_timer& t : timers)
        start(t, dice.within(second));
      io.run();
    });
  });
}

struct beat {
  steady_timer& timer;
  std::size_t left;

  void next() {
    timer.expires_at(timer.expiry() + nanoseconds(millisecond));
    timer.async_wait([this](error_code) {
      if (--left > 0) next();
    });
  }
};

int kernel_ticks(const request& asked) {
  io_context io(1);
  steady_timer timer(io);
  return serve([&] {
    io.restart();
    return counted([&] {
      timer.expires_after(nanoseconds(0));
      beat b{timer, asked["n"]};
      b.next();
      io.run();
    });
  });
}

int kernel_stopped(const request& asked) {
  io_context io(1);
  const auto open = boost::asio::make_work_guard(io);
  steady_timer timeout(io);
  return serve([&] {
    return counted([&] {
      for (std::size_t i = 0; i < asked["n"]; ++i) {
        start(timeout, hour);
        io.poll();
        work(20 * microsecond);
        timeout.cancel();
      }
      io.poll();
    });
  });
}

// expires_after ends the pending wait, so another is begun.
int touch(const request& asked) {
  io_context io(1);
  std::deque<steady_timer> timers = make_others(io, asked["n"]);
  random_numbers dice;
  return serve([&] {
    return numbers{{"touch", cpu_each(io, asked["ops"], [&](std::size_t) {
                      start(timers[dice.below(timers.size())], hour);
                    })}};
  });
}

}  // namespace

int main(int count, char** arguments) {
  const request asked(count, arguments);
  if (asked.is("arm")) return arm(asked);
  if (asked.is("arm-parallel")) return arm_parallel(asked);
  if (asked.is("touch")) return touch(asked);
  if (asked.is("burst")) return burst(asked);
  if (asked.is("overshoot")) return overshoot(asked);
  if (asked.is("kernel-random")) return kernel_random(asked);
  if (asked.is("kernel-ticks")) return kernel_ticks(asked);
  if (asked.is("kernel-stopped")) return kernel_stopped(asked);
  return unsupported();
}
