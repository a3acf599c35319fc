#include "prove.hpp"

#include <cstdio>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>

namespace {

bool is_set(const char* name) {
  const char* const value = std::getenv(name);
  return value != nullptr && *value != '\0' && std::string(value) != "0";
}

// Ends the test as failed if a planted fault was to be found and was not.
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

expectation& planted() {
  static expectation the;
  return the;
}

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
              r.complete ? "" : r.found ? "  FAULT" : "  NOT COMPLETE");
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

// True if a fault was found.
bool run(const char* name, const std::function<void()>& program, const model::bounds& within) {
  const model::report r = model::explore(program, within);
  write_row(name, within, r);
  if (!r.found) {
    if (!planted().expected) CHECK(r.complete);
    return false;
  }
  const model::report again = model::replay(program, r.schedule);
  if (planted().expected) {
    std::printf("found     %s\nschedule  %s\nreplayed  %s\n%s\n",
                r.fault.c_str(),
                r.schedule.c_str(),
                again.fault.c_str(),
                again.trace.c_str());
    std::fflush(stdout);
    CHECK(again.fault == r.fault);
    planted().found = true;
  } else {
    FAIL_CHECK(name << ": " << r.fault << "\nschedule: " << r.schedule << "\n" << again.trace);
  }
  return true;
}

}  // namespace

void prove(const char* name, const std::function<void()>& program, also more) {
  static_cast<void>(planted());
  if (const char* const schedule = std::getenv("VIGIL_MODEL_SCHEDULE")) {
    const model::report r = model::replay(program, schedule);
    std::printf("%s\n%s\n", r.trace.c_str(), r.found ? r.fault.c_str() : "no fault");
    CHECK(!r.found);
    return;
  }
  const bool is_long = is_set("VIGIL_LONG");
  if (run(name, program, is_long ? model::bounds{3, 2, UINT64_MAX} : model::bounds{2, 1})) return;
  if (more == also::unbounded || is_long) {
    const model::bounds whole{model::unlimited, model::unlimited};
    const model::report r = model::explore(program, whole);
    write_row(name, whole, r);
    CHECK(!r.found);
    if (more == also::unbounded) CHECK(r.complete);
  }
}
