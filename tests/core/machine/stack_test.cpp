#include "core/machine/stack.hpp"

#include "core/machine/stack_helpers.hpp"
#include "support/child.hpp"
#include "support/memory.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

#include <sys/mman.h>

using namespace vigil::detail;
using vigil::testing_support::has_sanitizer;
using vigil::testing_support::page;
using vigil::testing_support::resident_bytes;
using vigil::testing_support::run_child;
using vigil::testing_support::touch;

namespace {

std::set<const std::byte*> bottoms_in_use() {
  std::set<const std::byte*> found;
  const slab_hold hold;
  for_each_stack_in_use(
      [](const stack& s, void* set) noexcept {
        static_cast<std::set<const std::byte*>*>(set)->insert(s.bottom);
      },
      &found);
  return found;
}

// Maps and unmaps so much, and returns how much resident memory that costs for ever: none
// but under an emulator, which keeps tables of it.
std::size_t kept_of_address_space(std::size_t size) {
  const std::size_t before = resident_bytes();
  void* const at = ::mmap(
      nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  REQUIRE(at != MAP_FAILED);
  ::munmap(at, size);
  return resident_bytes() - std::min(before, resident_bytes());
}

std::string text_of_error(std::size_t usable) {
  try {
    release_stack(allocate_stack(usable));
  } catch (const std::exception& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("stack") {
  // Code built without -fstack-clash-protection touches the far end of a large frame
  // first.
  TEST_CASE("a frame of 256 KiB with its tail does not reach over the guard") {
    constexpr std::size_t page = 4096;
    constexpr std::size_t farthest = (256 + 16) * 1024;
    for (const std::size_t size : {min_stack_size, default_stack_size, std::size_t{1} << 20}) {
      CAPTURE(size);
      std::vector<stack> some;
      for (int i = 0; i < 3; ++i)
        some.push_back(allocate_stack(size));
      bool all_in_guard = true;
      for (const stack& s : some) {
        for (std::size_t below = page; below <= farthest; below += page) {
          stack_place place;
          all_in_guard = all_in_guard && find_stack(s.bottom - below, place) && place.in_guard &&
                         place.where.bottom == s.bottom;
        }
      }
      CHECK(all_in_guard);
      for (const stack& s : some)
        release_stack(s);
    }
  }

  TEST_CASE("a stack is as big as asked for and writable from end to end") {
    for (const std::size_t usable :
         {min_stack_size, std::size_t{20000}, default_stack_size, std::size_t{3} << 20}) {
      const stack s = allocate_stack(usable);
      CHECK(s.size() >= usable);
      CHECK(reinterpret_cast<std::uintptr_t>(s.top) % page == 0);
      std::memset(s.bottom, 1, s.size());
      release_stack(s);
    }
    const stack s = allocate_stack(default_stack_size);
    CHECK(s.size() == default_stack_size);
    release_stack(s);
  }

  TEST_CASE("the biggest stack can be had") {
    const stack s = allocate_stack(max_stack_size);
    touch(s);
    *s.bottom = std::byte{1};
    release_stack(s);
  }

  TEST_CASE("sizes out of range are refused with the range in the text") {
    CHECK_THROWS_AS(static_cast<void>(allocate_stack(0)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(allocate_stack(min_stack_size - 1)), std::invalid_argument);
    CHECK_THROWS_AS(static_cast<void>(allocate_stack(max_stack_size + 1)), std::invalid_argument);
    CHECK(text_of_error(100).find("the least is 16 KiB") != std::string::npos);
    CHECK(text_of_error(~std::size_t{0}).find("the most is 1024 MiB") != std::string::npos);
  }

  TEST_CASE("stacks taken and released at random never overlap and are found by address") {
    trim_stacks();
    const std::size_t before = read_stack_stats().in_use;
    std::mt19937 random(7);
    std::map<const std::byte*, stack> model;  // by bottom
    const std::size_t sizes[] = {min_stack_size, 64 * 1024, default_stack_size, 1 << 20};
    stack_cache cache;
    for (int step = 0; step < 6000; ++step) {
      const bool by_cache = random() % 2 == 0;
      if (model.size() < 1000 && random() % 5 < 3) {
        const std::size_t size = sizes[random() % 4];
        const stack s = by_cache ? cache.take(size) : allocate_stack(size);
        const auto above = model.lower_bound(s.bottom);
        if (above != model.end()) REQUIRE(s.top + stack_guard_size <= above->second.bottom);
        if (above != model.begin()) {
          REQUIRE(std::prev(above)->second.top + stack_guard_size <= s.bottom);
        }
        touch(s);
        model.emplace(s.bottom, s);
      } else if (!model.empty()) {
        auto chosen = model.begin();
        std::advance(chosen, static_cast<long>(random() % model.size()));
        if (by_cache) {
          cache.give(chosen->second);
        } else {
          release_stack(chosen->second);
        }
        model.erase(chosen);
      }
      if (step % 500 == 0) CHECK(read_stack_stats().in_use == before + model.size());
    }
    const auto walked = bottoms_in_use();
    CHECK(walked.size() == before + model.size());
    for (const auto& [bottom, s] : model) {
      CHECK(walked.count(bottom) == 1);
      stack_place place;
      REQUIRE(find_stack(s.top - 1, place));
      CHECK(place.where.bottom == bottom);
      CHECK(place.where.top == s.top);
      CHECK(place.in_use);
      CHECK_FALSE(place.in_guard);
      REQUIRE(find_stack(s.bottom - 1, place));
      CHECK(place.where.bottom == bottom);
      CHECK(place.in_guard);
    }
    for (const auto& [bottom, s] : model)
      release_stack(s);
    cache.flush();
    trim_stacks();
    CHECK(read_stack_stats().in_use == before);
  }

  TEST_CASE("addresses elsewhere are not stacks") {
    stack_place place;
    int local = 0;
    CHECK_FALSE(find_stack(&local, place));
    CHECK_FALSE(find_stack(nullptr, place));
  }

  TEST_CASE("a released stack is found but not in use") {
    stack_cache cache;
    const stack s = cache.take(default_stack_size);
    cache.give(s);
    stack_place place;
    REQUIRE(find_stack(s.bottom, place));
    CHECK_FALSE(place.in_use);
    CHECK(bottoms_in_use().count(s.bottom) == 0);
  }

  TEST_CASE("a cache gives the hottest stack first and serves other sizes as well") {
    stack_cache cache;
    const stack first = cache.take(default_stack_size);
    cache.give(first);
    const stack again = cache.take(default_stack_size);
    CHECK(again.bottom == first.bottom);
    const stack big = cache.take(1 << 20);
    CHECK(big.size() == 1 << 20);
    cache.give(big);
    cache.give(again);
  }

  TEST_CASE("slabs are unmapped when the last stack is released and trimmed") {
    trim_stacks();
    const std::size_t before = read_stack_stats().slabs;
    std::vector<stack> taken;
    for (int i = 0; i < 1000; ++i)
      taken.push_back(allocate_stack(256 * 1024));
    CHECK(read_stack_stats().slabs >= before + 1000 / 64);
    for (const stack& s : taken)
      release_stack(s);
    CHECK(read_stack_stats().slabs <= before + 1);
    trim_stacks();
    CHECK(read_stack_stats().slabs == before);
  }

  TEST_CASE("no slab is unmapped under a hold and they are afterwards") {
    trim_stacks();
    const std::size_t before = read_stack_stats().slabs;
    std::vector<stack> taken;
    for (int i = 0; i < 300; ++i)
      taken.push_back(allocate_stack(256 * 1024));
    const std::size_t most = read_stack_stats().slabs;
    {
      const slab_hold outer;
      const slab_hold inner;
      for (const stack& s : taken)
        touch(s);
      for (const stack& s : taken)
        release_stack(s);
      trim_stacks();
      CHECK(read_stack_stats().slabs == most);
      // Still mapped: reading does not fault.
      for (const stack& s : taken)
        CHECK(*(s.top - 2) == std::byte{0});
    }
    release_stack(allocate_stack(256 * 1024));
    CHECK(read_stack_stats().slabs <= before + 1);
  }

  TEST_CASE("walks and releases on several threads do not disturb each other") {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < 3; ++t) {
      threads.emplace_back([&stop, t] {
        std::mt19937 random(t);
        stack_cache cache;
        std::vector<stack> mine;
        while (!stop.load()) {
          if (mine.size() < 200 && random() % 2 == 0) {
            mine.push_back(cache.take(random() % 2 == 0 ? default_stack_size : 256 * 1024));
          } else if (!mine.empty()) {
            std::swap(mine[random() % mine.size()], mine.back());
            cache.give(mine.back());
            mine.pop_back();
          } else if (random() % 16 == 0) {
            trim_stacks();
          }
        }
        for (const stack& s : mine)
          cache.give(s);
      });
    }
    for (int i = 0; i < 300; ++i) {
      std::size_t bytes = 0;
      const slab_hold hold;
      for_each_stack_in_use(
          [](const stack& s, void* sum) noexcept {
            *static_cast<std::size_t*>(sum) +=
                s.size() +
                static_cast<std::size_t>(*static_cast<const volatile std::byte*>(s.bottom));
          },
          &bytes);
    }
    stop.store(true);
    for (std::thread& t : threads)
      t.join();
  }

  TEST_CASE("memory comes back after twenty thousand stacks ended in random order") {
    if (has_sanitizer) return;
    trim_stacks();
    constexpr std::size_t count = 20000;
    std::vector<stack> taken;
    taken.reserve(count);
    const std::size_t tables =
        kept_of_address_space(count * (default_stack_size + stack_guard_size));
    const std::size_t before = resident_bytes();
    for (std::size_t i = 0; i < count; ++i) {
      taken.push_back(allocate_stack(default_stack_size));
      touch(taken.back());
    }
    const std::size_t at_most = resident_bytes();
    CHECK(at_most - before >= count * page);
    std::shuffle(taken.begin(), taken.end(), std::mt19937(11));
    for (const stack& s : taken)
      release_stack(s);
    const std::size_t after = resident_bytes();
    // 256 hot stacks and 1024 of the floor: 6.4 % of so few.
    CHECK(after - std::min(before, after) <= count * page * 8 / 100 + tables);
  }

  TEST_CASE("child: a stack is released twice" * doctest::skip()) {
    const stack s = allocate_stack(default_stack_size);
    release_stack(s);
    release_stack(s);
  }

  TEST_CASE("releasing a stack twice ends the program") {
    const auto child = run_child("child: a stack is released twice");
    CHECK(child.died_by(SIGABRT));
    CHECK(child.says("released twice"));
  }
}
