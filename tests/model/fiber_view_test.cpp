// The snapshot of a fiber, taken by one worker while the other one may run the fiber: if
// it counts as unmoved, what was read from its stack in between is of one moment.
#include "core/sched/report/fiber_view.hpp"

#include "mailboxes.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using programs::gate;
using programs::workers;
using namespace programs::mailboxes;

namespace {

// Stands for the bytes of the stack, which x86 writes and reads in order.
struct two_words {
  std::atomic<int> first{0};
  std::atomic<int> second{0};
};

void write(two_words& words, int value) {
  words.first.store(value, std::memory_order_release);
  words.second.store(value, std::memory_order_release);
}

// Takes a snapshot, and reads the words before the second look.
void look(const vigil::detail::stack& where, const two_words& words) {
  vigil::detail::fiber_view s;
  if (!vigil::detail::take_view(where, s)) return;
  const int first = words.first.load(std::memory_order_acquire);
  const int second = words.second.load(std::memory_order_acquire);
  if (s.state != vigil::detail::fiber_state::parked) return;
  if (!vigil::detail::is_unmoved(where, s)) return;
  model::require(first == second, "no mixture of two moments counts");
}

}  // namespace

TEST_CASE("fiber_view: a fiber goes on while its stack is read") {
  prove("fiber_view: from one wait to the next", [] {
    vigil::run(workers(2), [] {
      two_words words;
      mailbox one;
      mailbox two;
      vigil::detail::stack where;
      auto f = vigil::spawn([&] {
        where = current_fiber()->own_stack.whole;
        write(words, 1);
        one.take();
        write(words, 2);
        two.take();
        write(words, 3);
      });
      vigil::sleep_for(1ms);  // it waits
      gate g;
      auto putter = about_to_end(g, [&] { one.put(1); });
      {
        const model::window w;
        g.open();
        look(where, words);
      }
      putter.join();
      two.put(2);
      f.join();
    });
  });
}
