// monitor: asks the actors for a rest now and then, waits until nothing of theirs is
// left, and samples what must be flat.
#pragma once

#include "soak/slope.hpp"
#include "soak/world.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace vigil::soak {

// The resources of the process. -1: not known, for want of a descriptor to look.
struct holdings {
  double resident = -1;   // bytes
  double allocated = -1;  // bytes of malloc
  int descriptors = -1;
  int threads = -1;
};

holdings held_now();

class monitor {
 public:
  explicit monitor(world& w) : world_(w) {}

  // On the main fiber, after the casting: returns at the end of the soak, when no actor
  // is left, or as soon as something has failed.
  void watch();

  // Fails for the slopes that are above their bounds, and returns the table.
  std::string slopes();

  std::size_t rests() const noexcept { return rests_; }

 private:
  struct series {
    const char* name;
    std::vector<sample> samples;
  };

  // Ends the process if main does not call again: what lets it wait for the actors may be
  // what is lost.
  static void expect_main();
  void rest();
  // Tells what is left of the actors' work; "" if nothing is.
  std::string left() const;
  // Returns false after the patience has ended, with a dump.
  bool wait_until_quiet();
  void look();
  void show_progress() const;
  bool is_warm() const noexcept;
  double hours() const noexcept;

  world& world_;
  const time_point start_ = clock::now();
  std::size_t rests_ = 0;
  int descriptors_ = 0;  // the most in a warm-up rest
  int threads_ = 0;

  enum { allocated, resident, descriptors, threads, heap, wakes };

  std::vector<series> series_{{"allocated bytes", {}},
                              {"resident bytes", {}},
                              {"descriptors", {}},
                              {"threads", {}},
                              {"heap entries", {}},
                              {"wake-ups in 100 ms", {}}};
};

}  // namespace vigil::soak
