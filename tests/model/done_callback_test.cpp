// after_func of a context: a caller that stops it and waits meets the cancel that calls
// it, and others that stop it (done_registration of cancel/done_callback.cpp).
//
// The function writes to plain memory: a caller that learns that it does not run and will
// not, and then reads, is in a data race with a run that goes on.
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/context.hpp>
#include <vigil/vigil.hpp>

#include <thread>

#include <doctest/doctest.h>

using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;

TEST_CASE("done callback: a wait for its end meets the cancel") {
  model::take_outcomes();
  prove("done callback: cancel against stop_and_wait", [] {
    run_with_outside_work(2, [] {
      const auto it = vigil::with_cancel(vigil::background());
      int runs = 0;
      const auto registered = vigil::after_func(it.ctx, [&runs] { ++runs; });
      let_the_other_rest();
      const model::window w;
      std::thread other([&it] { it.cancel(); });
      const bool prevented = registered.stop_and_wait();
      const int seen = runs;
      other.join();
      let_time_pass();
      model::require(runs == seen, "nor does it begin afterwards");
      model::require(prevented == (seen == 0), "prevented or run");
      model::note_outcome(prevented ? "prevented" : "run");
    });
  });
  expect_outcomes({"prevented", "run"});
}

TEST_CASE("done callback: exactly one of two stops prevents it") {
  prove("done callback: stop against stop_and_wait", [] {
    run_with_outside_work(2, [] {
      const auto it = vigil::with_cancel(vigil::background());
      int runs = 0;
      const auto registered = vigil::after_func(it.ctx, [&runs] { ++runs; });
      let_the_other_rest();
      const model::window w;
      bool there = false;
      std::thread other([&] { there = registered.stop(); });
      const bool here = registered.stop_and_wait();
      other.join();
      model::require(here != there, "exactly one");
      it.cancel();
      let_time_pass();
      model::require(runs == 0, "it does not run");
    });
  });
}
