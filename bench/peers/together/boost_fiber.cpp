// Boost.Fiber, for `./dev bench --peers together`: a value there and back over channels.
// One thread uses round_robin, several share a queue (shared_work).
#include "together/measure.hpp"

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <boost/fiber/algo/shared_work.hpp>
#include <boost/fiber/condition_variable.hpp>
#include <boost/fiber/fiber.hpp>
#include <boost/fiber/mutex.hpp>
#include <boost/fiber/unbuffered_channel.hpp>

namespace {

using boost::fibers::fiber;
using boost::fibers::algo::shared_work;
using channel = boost::fibers::unbuffered_channel<int>;

void hops() {
  constexpr std::size_t n = 300'000;
  channel there;
  channel back;
  together::measure(n, [&] {
    fiber far([&] {
      for (std::size_t i = 0; i < n; ++i)
        back.push(there.value_pop());
    });
    fiber near([&] {
      for (std::size_t i = 0; i < n; ++i) {
        there.push(1);
        back.value_pop();
      }
    });
    far.join();
    near.join();
  });
}

// Runs f while `threads` of them run fibers.
template <class F>
void with_threads(int threads, F f) {
  if (threads == 1) {
    f();
    return;
  }
  boost::fibers::mutex lock;
  boost::fibers::condition_variable over;
  bool is_over = false;
  std::vector<std::thread> more;
  for (int i = 1; i < threads; ++i) {
    more.emplace_back([&] {
      boost::fibers::use_scheduling_algorithm<shared_work>(true);
      std::unique_lock guard(lock);
      over.wait(guard, [&] { return is_over; });
    });
  }
  boost::fibers::use_scheduling_algorithm<shared_work>(true);
  f();
  {
    const std::lock_guard guard(lock);
    is_over = true;
  }
  over.notify_all();
  for (std::thread& t : more)
    t.join();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "hops") {
    std::fputs("usage: together_boost_fiber hops THREADS\n", stderr);
    return 2;
  }
  with_threads(std::atoi(argv[2]), hops);
  return 0;
}
