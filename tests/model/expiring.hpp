// A timeout list whose entry is about to expire on the other worker.
#pragma once

#include "core/base/nanos.hpp"
#include "instants.hpp"
#include "programs.hpp"

#include <vigil/timeout_list.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <memory>

#include <doctest/doctest.h>

namespace programs::expiring_list {

using programs::at;
using programs::let_the_other_rest;
using vigil::timeout_list;
using vigil::detail::nanos;
using entry = timeout_list::entry;

inline constexpr nanos d = 1000;

struct connection {
  entry idle;
  std::atomic<nanos> promised{0};  // no expiry before this
  std::atomic<int> expired{0};
  int written = 0;  // by on_expire
};

// A list whose entry is about to expire on the other worker.
struct expiring {
  std::unique_ptr<connection> c = std::make_unique<connection>();
  timeout_list list;

  expiring() : expiring([](connection&) {}) {}

  template <class F>
  explicit expiring(F f)
      : list(std::chrono::nanoseconds(d), [f](entry& e) {
          connection& due = vigil::owner_of<&connection::idle>(e);
          model::require(model::now() >= due.promised.load(), "no entry expires early");
          due.expired.fetch_add(1);
          ++due.written;
          f(due);
        }) {
    add();
    let_the_other_rest();
  }

  void add() {
    c->promised.store(model::now() + d);
    list.add(c->idle);
  }

  // Touches at the current time. Announced before, so that no expiry sees less.
  static bool touch(connection& c) {
    const nanos time = model::now();
    if (!c.idle.touch(at(time))) return false;
    nanos seen = c.promised.load();
    while (seen < time + d && !c.promised.compare_exchange_strong(seen, time + d)) {
    }
    return true;
  }
};

}  // namespace programs::expiring_list
