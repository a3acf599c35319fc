#include "prove.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>

#include <doctest/doctest.h>

namespace {

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

// Ends the test as failed if a planted fault was expected and none was found, even if no
// proof was run at all.
struct expectation {
  bool expected = is_set("VIGIL_EXPECT_FAULT");
  bool found = false;

  ~expectation() {
    if (!expected || found) return;
    std::puts("model: the planted fault was NOT found");
    std::fflush(stdout);
    std::_Exit(1);
  }
};

expectation planted;

std::string bound_name(int n) {
  return n == model::unlimited ? "unlimited" : std::to_string(n);
}

void write_row(const char* name, const model::bounds& within, const model::report& r) {
  std::printf("model  %-44s %9s/%-9s %10llu interleavings %11llu states%s\n",
              name,
              bound_name(within.preemptions).c_str(),
              bound_name(within.stale_reads).c_str(),
              static_cast<unsigned long long>(r.interleavings),
              static_cast<unsigned long long>(r.states),
              r.complete ? ""
              : r.found  ? "  FAULT"
                         : "  NOT COMPLETE");
  std::fflush(stdout);
  const char* const path = std::getenv("VIGIL_MODEL_TABLE");
  if (path == nullptr) return;
  if (std::FILE* const f = std::fopen(path, "a")) {
    std::fprintf(f,
                 "%s\t%s\t%s\t%llu\t%llu\t%llu\t%s\n",
                 name,
                 bound_name(within.preemptions).c_str(),
                 bound_name(within.stale_reads).c_str(),
                 static_cast<unsigned long long>(r.interleavings),
                 static_cast<unsigned long long>(r.states),
                 static_cast<unsigned long long>(r.longest),
                 r.complete ? "complete" : "not complete");
    std::fclose(f);
  }
}

// Returns true if a fault was found. `whole`: too many states count as one, too.
bool run(const char* name,
         const std::function<void()>& program,
         const model::bounds& within,
         bool whole) {
  const model::report r = model::explore(program, within);
  write_row(name, within, r);
  if (!r.found) {
    if (!planted.expected && whole) CHECK(r.complete);
    return false;
  }
  const model::report again = model::replay(program, r.schedule);
  if (planted.expected) {
    std::printf("found     %s\nschedule  %s\nreplayed  %s\n%s\n",
                r.fault.c_str(),
                r.schedule.c_str(),
                again.fault.c_str(),
                again.trace.c_str());
    std::fflush(stdout);
    CHECK(again.fault == r.fault);
    planted.found = true;
  } else {
    FAIL_CHECK(name << ": " << r.fault << "\nschedule: " << r.schedule << "\n" << again.trace);
  }
  return true;
}

// --- tools/weaken_orders.py

// VIGIL_MODEL_STATES: gives up after this many.
std::uint64_t at_most(std::uint64_t states) {
  const char* const value = std::getenv("VIGIL_MODEL_STATES");
  return value == nullptr ? states
                          : std::min<std::uint64_t>(states, std::strtoull(value, nullptr, 10));
}

// VIGIL_MODEL_PROOFS=FILE: only the proofs whose names the file has, one a line.
bool is_asked_for(const char* name) {
  static const auto* const names = [] {
    const char* const path = std::getenv("VIGIL_MODEL_PROOFS");
    if (path == nullptr) return static_cast<std::set<std::string>*>(nullptr);
    auto* const all = new std::set<std::string>;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);)
      all->insert(line);
    return all;
  }();
  return names == nullptr || names->count(name) != 0;
}

// VIGIL_MODEL_WEAKEN: offsets in hexadecimal, separated by commas.
void weaken_as_asked() {
  const char* at = std::getenv("VIGIL_MODEL_WEAKEN");
  if (at == nullptr) return;
  std::set<unsigned long> offsets;
  while (*at != '\0') {
    char* end = nullptr;
    offsets.insert(std::strtoul(at, &end, 16));
    at = *end == ',' ? end + 1 : end;
  }
  model::weaken_orders(offsets);
}

// VIGIL_MODEL_SITES=FILE collects the places with orders stronger than relaxed, and the
// proofs that use them.
void write_sites(const char* name, const char* path) {
  if (std::FILE* const f = std::fopen(path, "a")) {
    for (const model::order_site& s : model::take_order_sites())
      std::fprintf(f, "%s\t%#lx\t%s\t%s\n", name, s.offset, s.what, s.order);
    std::fclose(f);
  }
}

}  // namespace

void prove(const char* name, const std::function<void()>& program, also more) {
  if (!is_asked_for(name) || (planted.expected && planted.found)) return;
  weaken_as_asked();
  const char* const sites = std::getenv("VIGIL_MODEL_SITES");
  if (sites != nullptr) {
    model::take_order_sites();
    model::explore(program, {2, 1, at_most(100'000'000)});
    write_sites(name, sites);
    return;
  }
  if (const char* const schedule = std::getenv("VIGIL_MODEL_SCHEDULE")) {
    const model::report r = model::replay(program, schedule);
    std::printf("%s\n%s\n", r.trace.c_str(), r.found ? r.fault.c_str() : "no fault");
    CHECK(!r.found);
    return;
  }
  // VIGIL_LONG=bounded leaves out the proofs without bounds; with VIGIL_MODEL_STATES the
  // run gives up on those that are too large for the time at hand, and says so.
  const bool is_long = is_set("VIGIL_LONG");
  const bool is_bounded = is_long && std::string(std::getenv("VIGIL_LONG")) == "bounded";
  const bool is_capped = is_long && std::getenv("VIGIL_MODEL_STATES") != nullptr;
  if (run(name,
          program,
          is_long ? model::bounds{3, 2, at_most(UINT64_MAX)}
                  : model::bounds{2, 1, at_most(100'000'000)},
          !is_capped)) {
    return;
  }
  if (is_bounded || (more != also::unbounded && !is_long)) return;
  run(name,
      program,
      {model::unlimited, model::unlimited, at_most(10'000'000)},
      more == also::unbounded);
}

void prove_at_length(const char* name, const std::function<void()>& program) {
  if (is_set("VIGIL_LONG")) prove(name, program);
}

void expect_outcomes(const std::set<std::string>& all) {
  const std::set<std::string> noted = model::take_outcomes();
  for (const char* const not_whole :
       {"VIGIL_MODEL_SCHEDULE", "VIGIL_MODEL_PROOFS", "VIGIL_MODEL_STATES"}) {
    if (std::getenv(not_whole) != nullptr) return;
  }
  if (!planted.expected) CHECK(noted == all);
}
