// The workloads with vigil's tasks, where Tokio has tasks and vigil.cpp fibers (see
// workloads.py). As there, a sample runs in a task, and without a number of workers there
// are as many as vigil takes by default.
#include "peers.hpp"

#include <vigil/co.hpp>
#include <vigil/vigil.hpp>

#include <chrono>

namespace {

using namespace peers;
namespace co = vigil::co;
using std::chrono::nanoseconds;
using vigil::task;
using vigil::task_handle;

// Each sample is a task that `sample` makes.
int serve_in_tasks(const request& asked, const auto& sample) {
  vigil::options settings;
  settings.workers = asked["workers"];
  return vigil::run(settings, [&] { return serve([&] { return vigil::spawn(sample()).join(); }); });
}

task<> yields(std::size_t ops) {
  for (std::size_t i = 0; i < ops; ++i)
    co_await co::yield();
}

task<numbers> yield(std::size_t ops, std::size_t n) {
  const nanos start = cpu_time();
  std::vector<task_handle<>> all;
  for (std::size_t i = 0; i < n; ++i)
    all.push_back(vigil::spawn(yields(ops)));
  for (task_handle<>& t : all)
    co_await co::join(t);
  co_return numbers{{"yield", each(cpu_time() - start, n * ops)}};
}

task<> nothing() {
  co_return;
}

task<numbers> spawn(std::size_t ops) {
  const nanos start = now();
  for (std::size_t i = 0; i < ops; ++i) {
    task_handle<> t = vigil::spawn(nothing());
    co_await co::join(t);
  }
  const nanos middle = now();
  std::vector<task_handle<>> tasks(100);
  for (std::size_t i = 0; i < ops / 100; ++i) {
    for (task_handle<>& t : tasks)
      t = vigil::spawn(nothing());
    for (task_handle<>& t : tasks)
      co_await co::join(t);
  }
  co_return numbers{{"single", each(middle - start, ops)}, {"hundred", each(now() - middle, ops)}};
}

using items = vigil::channel<std::size_t>;

task<> receive(items from, bool timed) {
  if (timed) {
    static_cast<void>(co_await co::recv_for(from, nanoseconds(second)));
  } else {
    static_cast<void>(co_await co::recv(from));
  }
}

task<> answers(items ping, items pong, std::size_t ops, bool timed) {
  for (std::size_t i = 0; i < ops; ++i) {
    co_await receive(ping, timed);
    co_await co::send(pong, i);
  }
}

task<double> there_and_back(std::size_t ops, std::size_t capacity, bool timed) {
  const items ping = vigil::make_channel<std::size_t>(capacity);
  const items pong = vigil::make_channel<std::size_t>(capacity);
  const nanos start = now();
  task_handle<> other = vigil::spawn(answers(ping, pong, ops, timed));
  for (std::size_t i = 0; i < ops; ++i) {
    co_await co::send(ping, i);
    co_await receive(pong, timed);
  }
  co_await co::join(other);
  co_return each(now() - start, ops);
}

task<> sends(items to, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    co_await co::send(to, i);
}

task<> takes(items from, std::size_t n) {
  for (std::size_t i = 0; i < n; ++i)
    static_cast<void>(co_await co::recv(from));
}

// From some tasks to as many others.
task<double> through(std::size_t ops, std::size_t tasks, std::size_t capacity) {
  const items between = vigil::make_channel<std::size_t>(capacity);
  const nanos start = now();
  std::vector<task_handle<>> all;
  for (std::size_t t = 0; t < tasks; ++t) {
    all.push_back(vigil::spawn(sends(between, ops / tasks)));
    all.push_back(vigil::spawn(takes(between, ops / tasks)));
  }
  for (task_handle<>& t : all)
    co_await co::join(t);
  co_return each(now() - start, ops);
}

// The channels of Tokio have room for one value at least: `plain` is beside them.
task<numbers> channels(std::size_t ops) {
  const double rendezvous = co_await there_and_back(ops, 1, false);
  const double timed = co_await there_and_back(ops, 1, true);
  const double buffered = co_await through(ops, 1, 128);
  const double shared = co_await through(ops, 4, 8);
  co_return numbers(
      {{"rendezvous", rendezvous}, {"timed", timed}, {"buffered", buffered}, {"shared", shared}});
}

std::atomic<std::size_t> asleep;
std::atomic<std::size_t> done;

task<> sleeps_until(nanos t) {
  asleep.fetch_add(1);
  co_await co::sleep_until(vigil::clock::time_point(nanoseconds(t)));
  done.fetch_add(1);
}

task<numbers> sleepers(std::size_t n, nanos to_start) {
  asleep = 0;
  done = 0;
  random_numbers dice;
  const double memory = memory_held();
  const nanos start = cpu_time();
  const nanos first = now() + to_start;
  for (std::size_t i = 0; i < n; ++i)
    vigil::go(sleeps_until(first + dice.within(second)));
  while (asleep.load() < n)
    co_await co::sleep_for(nanoseconds(millisecond));
  const bool together = now() < first;
  const double held = memory_held() - memory;
  while (done.load() < n)
    co_await co::sleep_for(nanoseconds(5 * millisecond));
  co_return numbers{{"cpu", each(cpu_time() - start, n)},
                    {"memory", held / static_cast<double>(n)},
                    {"together", together ? 1.0 : 0.0}};
}

}  // namespace

int main(int count, char** arguments) {
  const request asked(count, arguments);
  const auto in_tasks = [&](const auto& sample) { return serve_in_tasks(asked, sample); };
  if (asked.is("yield")) return in_tasks([&] { return yield(asked["ops"], asked["fibers"]); });
  if (asked.is("spawn")) return in_tasks([&] { return spawn(asked["ops"]); });
  if (asked.is("channels")) return in_tasks([&] { return channels(asked["ops"]); });
  if (asked.is("sleepers"))
    return in_tasks([&] { return sleepers(asked["n"], time_to_start(asked)); });
  return unsupported();
}
