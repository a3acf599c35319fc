// A group: a waiter hears of the last end, and may destroy the group at once; a stop
// finds only fibers that are alive (GR1 and GR2 of cancel/group_core.hpp).
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/group.hpp>
#include <vigil/vigil.hpp>

#include <memory>

#include <doctest/doctest.h>

using programs::let_the_other_rest;
using programs::workers;

namespace {

template <class F>
void with_group(F f) {
  vigil::runtime rt(workers(2));
  rt.run([&] {
    auto g = std::make_unique<vigil::group>();
    let_the_other_rest();
    const model::window looked_at;
    f(g);
  });
}

}  // namespace

TEST_CASE("group: the last fiber ends while its owner waits, and destroys the group") {
  prove("group: one ends, wait, destroyed", [] {
    with_group([](std::unique_ptr<vigil::group>& g) {
      bool ran = false;
      g->go([&ran] { ran = true; });
      g->wait();
      model::require(ran, "it has run");
      g.reset();
    });
  });
}

TEST_CASE("group: it is cancelled and destroyed while its fiber runs") {
  prove("group: one runs, destroyed", [] {
    with_group([](std::unique_ptr<vigil::group>& g) {
      bool ran = false;
      g->go([&ran] { ran = true; });
      g.reset();
      model::require(ran, "it has run");
    });
  });
}

TEST_CASE("group: a fiber that begins after the cancel is asked to stop as well") {
  prove("group: cancelled as one begins, wait", [] {
    with_group([](std::unique_ptr<vigil::group>& g) {
      const auto silent = vigil::make_channel<int>();
      g->go([&silent] { static_cast<void>(silent.recv()); });
      g->cancel();
      g->wait();
    });
  });
}
