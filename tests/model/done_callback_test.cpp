// after_func of a context: who stops it and waits meets the cancel that calls it, and
// others who stop it (done_registration of cancel/done_callback.cpp).
//
// What the function writes is plain memory: who is told that it does not run and will
// not, and reads it then, is in a data race with one that does.
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/context.hpp>
#include <vigil/vigil.hpp>

#include <thread>

#include <doctest/doctest.h>

using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::run_with_outside_work;

TEST_CASE("done callback: who waits for its end meets the cancel") {
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

TEST_CASE("done callback: of two who stop it one has prevented it") {
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
