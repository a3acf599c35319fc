// Includes, names and helpers that the tests of timeout lists share.
#pragma once

#include "core/time/time_test.hpp"

#include <vigil/timeout_list.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

namespace vigil::testing_support {

using vigil::timeout_list;
using vigil::timeout_lists;
using entry = timeout_list::entry;

inline instant now() {
  return clock::now();
}

// The expired entries, in order, with their times.
struct expiries {
  struct one {
    int id;
    std::chrono::nanoseconds at;
  };

  std::vector<one> all;
  const instant start = now();

  void add(int id) { all.push_back({id, since(start)}); }

  std::vector<int> ids() const {
    std::vector<int> result;
    for (const one& e : all)
      result.push_back(e.id);
    return result;
  }

  std::vector<std::chrono::nanoseconds> times() const {
    std::vector<std::chrono::nanoseconds> result;
    for (const one& e : all)
      result.push_back(e.at);
    return result;
  }
};

struct connection {
  connection(int n = 0) : id(n) {}  // NOLINT(google-explicit-constructor): short in lists

  const int id;
  entry idle;
};

inline int id_of(entry& e) {
  return owner_of<&connection::idle>(e).id;
}

// A list that records its expiries.
struct noted_list {
  expiries seen;
  timeout_list list;

  template <class D>
  explicit noted_list(D d) : list(d, [this](entry& e) { seen.add(id_of(e)); }) {}
};

using ids = std::vector<int>;
using times = std::vector<std::chrono::nanoseconds>;

// The timers that fired during f, without those of the caller's own sleeps.
template <class F>
std::uint64_t rings_during(F f, std::uint64_t sleeps) {
  const std::uint64_t before = stats().timers_fired;
  f();
  return stats().timers_fired - before - sleeps;
}

}  // namespace vigil::testing_support
