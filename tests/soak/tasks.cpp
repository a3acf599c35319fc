// Tasks: coroutines that sleep, exchange values and are stopped. Each ends, and what it
// owns is destroyed once.
#include "soak/world.hpp"

#include <vigil/co.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace vigil::soak {
namespace {

struct task_ledger : ledger {
  using ledger::ledger;
  opened begun{*this, "begun"};
  closed ended{*this, "ended"};
  note stops{*this, "asked to stop"};
};

struct number_ledger : ledger {
  using ledger::ledger;
  opened sent{*this, "sent"};
  closed received{*this, "received"};
};

// Counts a coroutine from its first step to the end of its frame.
class in_frame {
 public:
  explicit in_frame(task_ledger& l) : ledger_(l) { ++ledger_.begun; }

  ~in_frame() { ++ledger_.ended; }

  in_frame(const in_frame&) = delete;
  in_frame& operator=(const in_frame&) = delete;

 private:
  task_ledger& ledger_;
};

task<int> nap(world& w, task_ledger& l, nanoseconds length) {
  const in_frame here(l);
  const time_point due = clock::now() + length;
  co_await co::sleep_for(length);
  w.check_time(l, due, clock::now());
  co_return 1;
}

task<> send_numbers(world& w, task_ledger& l, number_ledger& n, dice d, channel<int> to) {
  const in_frame here(l);
  for (int i = 0; i < 8; ++i) {
    if (d.one_in(4)) {
      task<int> inner = nap(w, l, w.draw(d) / 4);
      const int one = co_await std::move(inner);
      l.must(one == 1, "a task's result was lost");
    }
    const send_result sent = co_await co::send_for(to, i, w.draw(d));
    if (sent) ++n.sent;
  }
}

task<int> receive_numbers(task_ledger& l, number_ledger& n, channel<int> from) {
  const in_frame here(l);
  int last = -1;
  int all = 0;
  for (;;) {
    const std::optional<int> got = co_await co::recv(from);
    if (!got.has_value()) break;
    ++n.received;
    ++all;
    l.must(*got > last, "numbers came out of order");
    last = *got;
  }
  co_return all;
}

task<> sleep_for_ever(task_ledger& l) {
  const in_frame here(l);
  co_await co::sleep_until(time_point::max());
}

void play_tasks(world& w, task_ledger& l, number_ledger& n, dice& d) {
  const channel<int> numbers = make_channel<int>(d.below(3));
  task_handle<int> receives = spawn(receive_numbers(l, n, numbers));
  try {
    task_handle<> sends = spawn(send_numbers(w, l, n, d.another(), numbers));
    sends.join();
  } catch (...) {
    numbers.close();
    receives.join();
    throw;
  }
  numbers.close();
  receives.join();
}

void play_stopped_tasks(world& w, task_ledger& l, dice& d) {
  std::vector<task_handle<>> all;
  for (std::uint32_t i = 1 + d.below(4); i != 0; --i)
    all.push_back(spawn(sleep_for_ever(l)));
  sleep_for(w.draw(d) / 4);
  for (task_handle<>& t : all) {
    ++l.stops;
    if (d.one_in(2)) {
      t.request_stop();
      try {
        t.join();
        l.fail("a task that sleeps for ever ended by itself");
      } catch (const cancelled&) {
      }
    } else {
      t = {};
    }
  }
}

}  // namespace

void cast_tasks(world& w) {
  auto& l = *w.keep<task_ledger>("tasks");
  auto& n = *w.keep<number_ledger>("numbers of tasks");
  w.cast("tasks", 3, [&](dice& d) { play_tasks(w, l, n, d); });
  w.cast("stopped tasks", 2, [&](dice& d) { play_stopped_tasks(w, l, d); });
}

}  // namespace vigil::soak
