// For tests that cut a task short at each point at which it waits.
#pragma once

#include "io/io_test.hpp"
#include "support/note.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace vigil::io_testing {

// The position of a task, which reports it before each call that may wait; after a cut,
// the position at which it was cut short.
class whereabouts {
 public:
  void at(const char* point) {
    point_ = point;
    ++points_;
  }

  void done() { point_ = "done"; }

  bool is_done() const { return point_ == "done"; }

  const std::string& point() const { return point_; }

  int points() const { return points_; }

 private:
  std::string point_ = "not begun";
  int points_ = 0;
};

// Ends the task early, by whatever means.
template <class R>
void join_cut(fiber<R>& f) {
  try {
    f.join();
  } catch (const cancelled&) {
  } catch (const boost::system::system_error&) {
  }
}

// The number of tasks that ended at each point without being done.
using cut_points = std::map<std::string, int>;

// Calls f(turns, task) for 0, 1, 2 ... turns of the scheduler, under several seeds, on
// virtual time. f begins a task and cuts it short after that many turns; the last task is
// done by then.
template <class F>
void cut_after_each_turn(std::uint64_t seeds, cut_points& ended, F f) {
  testing_support::for_each_seed(seeds, [&] {
    for (int turns = 0;; ++turns) {
      REQUIRE(turns < 2000);
      whereabouts task;
      f(turns, task);
      REQUIRE(stats().fibers_alive == 1);
      if (task.is_done()) break;
      ++ended[task.point()];
    }
  });
}

inline void check_cut_at(cut_points& ended, const std::vector<std::string>& points) {
  for (const std::string& point : points) {
    NOTE("point: ", point);
    CHECK(ended[point] > 0);
  }
}

inline void pass(int turns) {
  for (int i = 0; i < turns; ++i)
    this_fiber::yield();
}

}  // namespace vigil::io_testing
