#include "core/base/record_pool.hpp"

#include <atomic>
#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include <doctest/doctest.h>

using vigil::detail::record_pool;

TEST_SUITE("record_pool") {
  TEST_CASE("knows how many records are out, and looks at every place that was ever taken") {
    for (const std::size_t size : {std::size_t{64}, std::size_t{192}}) {
      record_pool pool(size);
      record_pool::cache mine;
      CHECK(pool.out() == 0);
      std::set<void*> taken;
      for (int i = 0; i < 20'000; ++i)
        taken.insert(i % 3 == 0 ? pool.take() : mine.take(pool));
      mine.flush(pool);
      CHECK(pool.out() == taken.size());
      std::set<void*> seen;
      bool is_once = true;
      pool.look_through([&](void* place) { is_once = seen.insert(place).second && is_once; });
      CHECK(is_once);
      bool all = true;
      for (void* const r : taken)
        all = all && seen.count(r) == 1;
      CHECK(all);
      CHECK(seen.size() < taken.size() + 100);  // at most some bundles more
      int given = 0;
      for (void* const r : taken) {
        if (++given % 2 == 0) {
          mine.give(pool, r);
        } else {
          pool.give(r);
        }
      }
      mine.flush(pool);
      CHECK(pool.out() == 0);
      CHECK(pool.take() != nullptr);
      CHECK(pool.out() == 1);
    }
  }

  TEST_CASE("records in use at the same time are different and do not overlap") {
    record_pool pool(64);
    record_pool::cache mine;
    std::vector<unsigned char*> records;
    for (int i = 0; i < 5000; ++i) {
      auto* const r = static_cast<unsigned char*>(i % 3 == 0 ? pool.take() : mine.take(pool));
      std::memset(r, i & 0xff, 64);
      records.push_back(r);
    }
    CHECK(std::set<unsigned char*>(records.begin(), records.end()).size() == records.size());
    bool intact = true;
    for (std::size_t i = 0; i < records.size(); ++i) {
      for (int k = 0; k < 64; ++k)
        intact = intact && records[i][k] == (i & 0xff);
    }
    CHECK(intact);
    for (auto* r : records)
      mine.give(pool, r);
    mine.flush(pool);
  }

  TEST_CASE("a returned record is used again, no matter which thread returned it") {
    record_pool pool(64);
    record_pool::cache mine;
    std::set<void*> seen;
    for (int round = 0; round < 50; ++round) {
      std::vector<void*> records;
      for (int i = 0; i < 1000; ++i)
        records.push_back(mine.take(pool));
      seen.insert(records.begin(), records.end());
      // A thread without a cache returns records one by one.
      for (void* r : records)
        pool.give(r);
    }
    // One slab holds 1 024 records of 64 bytes; the cut may touch two slabs.
    CHECK(seen.size() <= 2048);
    mine.flush(pool);
  }

  TEST_CASE("threads exchange records without losing or doubling one") {
    record_pool pool(64);
    std::atomic<bool> doubled{false};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        record_pool::cache mine;
        for (int round = 0; round < 200; ++round) {
          std::vector<std::uint64_t*> records;
          for (int i = 0; i < 100; ++i) {
            auto* const r = static_cast<std::uint64_t*>(mine.take(pool));
            r[2] = static_cast<std::uint64_t>(t * 1'000'000 + round * 1000 + i);
            records.push_back(r);
          }
          for (std::size_t i = 0; i < records.size(); ++i) {
            const auto mark = static_cast<std::uint64_t>(t * 1'000'000 + round * 1000) + i;
            if (records[i][2] != mark) doubled = true;
            if (i % 2 == 0) {
              mine.give(pool, records[i]);
            } else {
              pool.give(records[i]);
            }
          }
        }
        mine.flush(pool);
      });
    }
    for (auto& t : threads)
      t.join();
    CHECK(!doubled);
  }
}
