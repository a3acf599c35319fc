// Park and ready, on real workers: a fiber is queued exactly once for each park.
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

namespace {

vigil::options workers(unsigned n) {
  vigil::options o;
  o.workers = n;
  o.dump_on_sigquit = false;
  return o;
}

}  // namespace

TEST_CASE("park: a join and the end of the fiber meet") {
  prove("park: spawn and join, 2 workers", [] {
    vigil::run(workers(2), [] {
      vigil::sleep_for(1ms);  // both workers have begun
      const model::window w;
      model::require(vigil::spawn([] { return 7; }).join() == 7, "the result is there");
    });
  });
}
