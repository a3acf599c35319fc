// Stacks at the limits of the process: mappings, address space, locked memory.
#include "core/machine/stack.hpp"
#include "core/machine/stack_helpers.hpp"
#include "support/child.hpp"
#include "support/memory.hpp"

#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include <sys/mman.h>
#include <sys/resource.h>

using namespace vigil::detail;
using vigil::testing_support::has_sanitizer;
using vigil::testing_support::limits_are_kept;
using vigil::testing_support::most_mappings;
using vigil::testing_support::no_limits;
using vigil::testing_support::page;
using vigil::testing_support::reachable_mappings;
using vigil::testing_support::run_child;
using vigil::testing_support::take_all;
using vigil::testing_support::touch;

namespace {

// Whether memory of this size is refused with this error.
bool is_refused(std::size_t size, int error) {
  void* const at =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return errno == error;
  ::munmap(at, size);
  return false;
}

}  // namespace

TEST_SUITE("stack") {
  TEST_CASE("child: stacks until vm.max_map_count" * doctest::skip()) {
    std::string error;
    std::vector<stack> taken = take_all(default_stack_size, 60000, error);
    std::printf("%zu stacks: %s\n", taken.size(), error.c_str());
    REQUIRE(taken.size() > 1000);
    REQUIRE(taken.size() < 60000);
    CHECK(error.find("vm.max_map_count = ") != std::string::npos);
    CHECK(read_stack_stats().in_use == taken.size());
    for (const stack& s : taken)
      touch(s);
    // A release makes room again, wherever the stack was.
    for (const std::size_t i : {taken.size() - 1, taken.size() / 2, std::size_t{5}}) {
      release_stack(taken[i]);
      taken[i] = allocate_stack(default_stack_size);
      touch(taken[i]);
    }
    CHECK_THROWS_AS(static_cast<void>(allocate_stack(default_stack_size)), stack_error);
    CHECK_THROWS_AS(static_cast<void>(allocate_stack(1 << 20)), stack_error);
    // Low slabs are unmapped and mapped anew while others use up the mappings, so the
    // lowest slab with room has no guards for a stack. A stack released in a high slab
    // keeps its guard and must be found.
    for (std::size_t i = 0; i < 640; ++i)
      release_stack(taken[i]);
    taken.erase(taken.begin(), taken.begin() + 640);
    constexpr std::size_t eaten = 400;
    auto* const eater = static_cast<std::byte*>(
        ::mmap(nullptr, eaten * page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    for (std::size_t i = 0; i < eaten; i += 2)
      ::mprotect(eater + i * page, page, PROT_NONE);
    const std::vector<stack> low = take_all(default_stack_size, 640, error);
    REQUIRE(low.size() < 640);
    taken.insert(taken.end(), low.begin(), low.end());
    release_stack(taken[20000]);
    // The failed call takes the hot stack back into its slab.
    CHECK_THROWS_AS(static_cast<void>(allocate_stack(1 << 20)), stack_error);
    taken[20000] = allocate_stack(default_stack_size);
    ::munmap(eater, eaten * page);
    for (std::size_t i = 0; i < 2000; ++i) {
      release_stack(taken.back());
      taken.pop_back();
    }
    std::vector<stack> again = take_all(default_stack_size, 1900, error);
    CHECK(again.size() == 1900);
    for (const stack& s : again)
      release_stack(s);
    for (const stack& s : taken)
      release_stack(s);
    trim_stacks();
    CHECK(read_stack_stats().in_use == 0);
    CHECK(read_stack_stats().slabs == 0);
  }

  TEST_CASE("guards by mprotect end at vm.max_map_count with an error that says so") {
    if (has_sanitizer) return;
    if (most_mappings() > reachable_mappings) {
      MESSAGE("skipped: vm.max_map_count is too high here to be reached");
      return;
    }
    const auto child =
        run_child("child: stacks until vm.max_map_count", {{"VIGIL_STACK_GUARD", "mprotect"}});
    CAPTURE(child.output);
    CHECK(child.succeeded());
    CHECK(child.says("vm.max_map_count"));
  }

  TEST_CASE("child: stacks until RLIMIT_AS" * doctest::skip()) {
    std::string error;
    const rlimit limit{rlim_t{256} << 20, rlim_t{256} << 20};
    REQUIRE(::setrlimit(RLIMIT_AS, &limit) == 0);
    const std::vector<stack> taken = take_all(default_stack_size, 5000, error);
    std::printf("%zu stacks: %s\n", taken.size(), error.c_str());
    CHECK(taken.size() > 100);
    CHECK(error.find("RLIMIT_AS to 262144 KiB") != std::string::npos);
    for (const stack& s : taken)
      release_stack(s);
    const std::vector<stack> again = take_all(default_stack_size, taken.size(), error);
    // The second list also takes some of the address space.
    CHECK(again.size() + 8 >= taken.size());
  }

  TEST_CASE("a limit on the address space is named and its last megabytes are used") {
    if (has_sanitizer) return;
    if (!limits_are_kept()) {
      MESSAGE(no_limits);
      return;
    }
    const auto child = run_child("child: stacks until RLIMIT_AS");
    CAPTURE(child.output);
    CHECK(child.succeeded());
  }

  TEST_CASE("child: stacks under mlockall" * doctest::skip()) {
    const rlimit limit{rlim_t{6} << 20, rlim_t{6} << 20};
    REQUIRE(::setrlimit(RLIMIT_MEMLOCK, &limit) == 0);
    const bool was_root = ::geteuid() == 0;
    if (was_root) REQUIRE(::setresuid(65534, 65534, 65534) == 0);
    if (::mlockall(MCL_FUTURE) != 0) {
      std::puts("skipped: mlockall is not allowed here");
      return;
    }
    if (!is_refused(2 * limit.rlim_cur, EAGAIN)) {
      std::puts("skipped: mmap does not say here that RLIMIT_MEMLOCK is reached");
      return;
    }
    std::string error;
    const std::vector<stack> taken = take_all(default_stack_size, 200, error);
    for (const stack& s : taken)
      touch(s);
    std::printf("%zu stacks: %s\n", taken.size(), error.c_str());
    CHECK(taken.size() > 0);
    CHECK(taken.size() < 200);
    CHECK(error.find("RLIMIT_MEMLOCK allows 6144 KiB") != std::string::npos);
    for (const stack& s : taken)
      release_stack(s);
  }

  TEST_CASE("under mlockall stacks are mapped one by one and the limit is named") {
    if (has_sanitizer) return;
    const auto child = run_child("child: stacks under mlockall");
    CAPTURE(child.output);
    CHECK(child.succeeded());
    if (const std::string why = child.skipped(); !why.empty()) MESSAGE(why);
  }

  TEST_CASE("child: stacks under mlockall without a limit" * doctest::skip()) {
    const rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
    if (::setrlimit(RLIMIT_MEMLOCK, &limit) != 0 || ::mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
      std::puts("skipped: mlockall without a limit is not allowed here");
      return;
    }
    std::string error;
    const std::vector<stack> taken = take_all(default_stack_size, 200, error);
    CHECK(taken.size() == 200);
    for (const stack& s : taken)
      release_stack(s);
    trim_stacks();
    CHECK(read_stack_stats().slabs == 0);
  }

  TEST_CASE("under mlockall without a limit stacks can be had") {
    if (has_sanitizer) return;
    const auto child = run_child("child: stacks under mlockall without a limit");
    CAPTURE(child.output);
    CHECK(child.succeeded());
    if (const std::string why = child.skipped(); !why.empty()) MESSAGE(why);
  }
}
