// idle_connections: a table of 100 000 connections with an idle timeout each.
//
// Each connection has a timeout of 30 seconds, which counts from its last activity. The
// program plays two minutes of random activity, most of it on few connections, and prints
// how many timers that took, and how exact they were.
//
// Run it:     VIGIL_EXAMPLE_VIRTUAL=1 build/release/examples/idle_connections
//             (without the variable it takes three minutes)
// It prints:  the text of idle_connections.expected: one timer, 40 bytes for each
//             connection, every expiry exactly 30 s after its last activity.
#include "example.hpp"

#include <vigil/timeout_list.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <random>
#include <vector>

using namespace std::chrono_literals;

namespace {

//! [connection]
struct connection {
  vigil::clock::time_point last_activity;
  vigil::timeout_list::entry idle;  // last, so it dies before the members that on_expire uses
};

//! [connection]

}  // namespace

int main() {
  return example_main([] {
    constexpr std::size_t n = 100'000;
    std::size_t expired = 0;
    std::chrono::nanoseconds worst{};

    //! [list]
    vigil::timeout_list idle(30s, [&](vigil::timeout_list::entry& e) {
      const connection& c = vigil::owner_of<&connection::idle>(e);
      worst = std::max(worst, vigil::clock::now() - c.last_activity - 30s);
      ++expired;
    });
    //! [list]

    std::vector<connection> table(n);
    for (connection& c : table) {
      idle.add(c.idle);
      c.last_activity = vigil::clock::now();
    }
    const auto armed = vigil::stats();
    std::printf("%s connections, %s timer, %zu bytes each\n",
                example::grouped(idle.size()).c_str(),
                example::grouped(armed.timers_pending).c_str(),
                sizeof(vigil::timeout_list::entry));

    std::mt19937 dice(1);
    std::size_t touched = 0;
    std::size_t too_late = 0;
    for (int step = 0; step < 12'000; ++step) {  // two minutes
      vigil::sleep_for(10ms);
      //! [touch]
      const auto now = vigil::clock::now();
      for (int i = 0; i < 100; ++i) {
        connection& c = table[std::min(dice() % n, dice() % n)];
        if (c.idle.touch(now)) {
          c.last_activity = now;
          ++touched;
        } else {
          ++too_late;  // it has expired: a server has closed it
        }
      }
      //! [touch]
    }
    std::printf("%s activities: %s in time, %s after the timeout\n",
                example::grouped(touched + too_late).c_str(),
                example::grouped(touched).c_str(),
                example::grouped(too_late).c_str());
    std::printf("%s connections expired, %s are left\n",
                example::grouped(expired).c_str(),
                example::grouped(idle.size()).c_str());
    std::printf("timers pending: %s\n", example::grouped(vigil::stats().timers_pending).c_str());
    vigil::sleep_for(31s);
    std::printf("all expired: %s; the latest by %lld ns\n",
                expired == n ? "yes" : "no",
                static_cast<long long>(worst.count()));
  });
}
