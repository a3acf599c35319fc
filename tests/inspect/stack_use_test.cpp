// Stacks' use by place of birth.
#include "core/base/nanos.hpp"
#include "core/sched/fiber/stack_sampler.hpp"
#include "inspect/inspect_helpers.hpp"
#include "inspect/stack_use_table.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
using vigil::detail::stack_use_table;
using vigil::inspect::stack_use;

namespace {

constexpr std::size_t kib = 1024;

// Room for the frames around touch(), which sanitizers make larger.
#ifdef VIGIL_TEST_UNDER_SANITIZER
constexpr std::size_t slack = 32 * kib;
#else
constexpr std::size_t slack = 8 * kib;
#endif

// Touches each page of so much stack. A local array would lie elsewhere under
// AddressSanitizer.
[[gnu::noinline]] void touch(std::size_t bytes) {
  auto* const room = static_cast<volatile char*>(__builtin_alloca(bytes));
  for (std::size_t at = 0; at < bytes; at += kib)
    room[at] = 1;
  room[bytes - 1] = 1;
}

// Touches the lower end alone.
[[gnu::noinline]] void reach(std::size_t bytes) {
  auto* const room = static_cast<volatile char*>(__builtin_alloca(bytes));
  room[0] = 1;
}

// While one exists, stacks are measured.
class measuring {
 public:
  measuring() { vigil::inspect::install(); }

  ~measuring() { vigil::inspect::install({.stack_use = false}); }

  measuring(const measuring&) = delete;
  measuring& operator=(const measuring&) = delete;
};

bool is_drawn(std::uint64_t id) {
  return vigil::detail::is_drawn(vigil::detail::mixed(id));
}

// Returns the use of a place; an empty one if it is not there.
stack_use use_of(const std::string& place) {
  for (stack_use& u : vigil::inspect::stack_use_by_place()) {
    if (u.place == place) return u;
  }
  return {};
}

// Starts a fiber that is drawn. On virtual time numbers follow one another.
template <class F>
vigil::fiber<> spawn_drawn(std::size_t stack_size, const vigil::site& from, F body) {
  std::uint64_t last = 0;
  do {
    auto other = vigil::spawn([] {}, {"others of stack_use_test", 0});
    last = other.id();
    other.join();
  } while (!is_drawn(last + 1));
  auto f = vigil::spawn(vigil::fiber_options{.stack_size = stack_size}, body, from);
  REQUIRE(is_drawn(f.id()));
  return f;
}

void run_drawn(std::size_t stack_size, const vigil::site& from, void (*body)()) {
  spawn_drawn(stack_size, from, body).join();
}

std::size_t bucket_of(std::size_t bytes) {
  std::size_t i = 0;
  while (stack_use::first_bound << i < bytes)
    ++i;
  return i;
}

}  // namespace

TEST_SUITE("stack use") {
  TEST_CASE("of a place is what its fibers have touched, whatever was on their stacks before") {
    const measuring now;
    in_virtual([] {
      const auto run = [](const vigil::site& from, std::size_t bytes) {
        std::uint64_t drawn = 0;
        for (int i = 0; i < 1'000; ++i) {
          auto f = vigil::spawn([bytes] { touch(bytes); }, from);
          drawn += is_drawn(f.id());
          f.join();
        }
        return drawn;
      };
      // One after another they have the same few stacks.
      const std::uint64_t deep = run({"deep.cpp", 7}, 60 * kib);
      const std::uint64_t flat = run({"flat.cpp", 7}, 1);
      const std::uint64_t deep_again = run({"deep.cpp", 7}, 60 * kib);
      const stack_use d = use_of("deep.cpp:7");
      CHECK(deep >= 10);
      CHECK(d.total() == deep + deep_again);
      CHECK(d.most_bytes >= 60 * kib);
      CHECK(d.most_bytes <= 60 * kib + slack);
      CHECK(d.sum_bytes >= d.total() * 60 * kib);
      CHECK(d.sum_bytes <= d.total() * d.most_bytes);
      CHECK(d.least_stack == 128 * kib);
      CHECK(d.count[bucket_of(d.most_bytes)] >= 1);
      CHECK(d.count[bucket_of(60 * kib) - 1] == 0);
      const stack_use f = use_of("flat.cpp:7");
      CHECK(flat >= 10);
      CHECK(f.total() == flat);
      CHECK(f.most_bytes >= stack_use::first_bound);
      CHECK(f.most_bytes <= slack);
    });
  }

  TEST_CASE("of stacks of any size up to 16 MiB is measured, also below pages left out") {
    const measuring now;
    in_virtual([] {
      run_drawn(16 * kib, {"small.cpp", 1}, [] { touch(2 * kib); });
      run_drawn(1'024 * kib, {"medium.cpp", 1}, [] { reach(700 * kib); });
      run_drawn(16'384 * kib, {"large.cpp", 1}, [] { touch(9'000 * kib); });
      run_drawn(16'384 * kib, {"large.cpp", 2}, [] { reach(15'000 * kib); });
      run_drawn(32'768 * kib, {"too_large.cpp", 1}, [] { touch(1); });
    });
    const auto check = [](const char* place, std::size_t bytes, std::size_t stack) {
      NOTE(place);
      const stack_use u = use_of(place);
      CHECK(u.total() == 1);
      CHECK(u.sum_bytes == u.most_bytes);
      CHECK(u.most_bytes >= bytes);
      CHECK(u.most_bytes <= bytes + slack);
      CHECK(u.least_stack == stack);
    };
    check("small.cpp:1", 2 * kib, 16 * kib);
    check("medium.cpp:1", 700 * kib, 1'024 * kib);
    check("large.cpp:1", 9'000 * kib, 16'384 * kib);
    check("large.cpp:2", 15'000 * kib, 16'384 * kib);
    CHECK(use_of("too_large.cpp:1").total() == 0);
  }

  TEST_CASE("of a fiber that is alive counts as the most, and among the ended ones at its end") {
    const measuring now;
    in_virtual([] {
      auto f = spawn_drawn(0, {"alive.cpp", 1}, [] {
        touch(40 * kib);
        vigil::sleep_for(1h);
        touch(80 * kib);
      });
      CHECK(use_of("alive.cpp:1").most_bytes <= slack);  // it has not run yet
      vigil::sleep_for(1s);
      const stack_use half = use_of("alive.cpp:1");
      CHECK(half.total() == 0);
      CHECK(half.most_bytes >= 40 * kib);
      CHECK(half.most_bytes <= 40 * kib + slack);
      CHECK(half.least_stack == 128 * kib);
      f.join();
      const stack_use whole = use_of("alive.cpp:1");
      CHECK(whole.total() == 1);
      CHECK(whole.most_bytes >= 80 * kib);
    });
  }

  TEST_CASE("of fibers that fail or are stopped is measured as well") {
    const measuring now;
    in_virtual([] {
      auto failing = spawn_drawn(0, {"failing.cpp", 1}, [] {
        touch(20 * kib);
        throw 1;
      });
      CHECK_THROWS_AS(failing.join(), int);
      auto stopped = spawn_drawn(0, {"failing.cpp", 1}, [] { vigil::sleep_for(1h); });
      vigil::sleep_for(1s);
      stopped.request_stop();
      CHECK_THROWS_AS(stopped.join(), vigil::cancelled);
      CHECK(use_of("failing.cpp:1").total() == 2);
      CHECK(use_of("failing.cpp:1").most_bytes >= 20 * kib);
    });
  }

  TEST_CASE("is measured on any number of workers") {
    const measuring now;
    unsigned line = 0;
    in_runtime({}, [&line] {
      ++line;
      const auto from = vigil::site{"workers.cpp", line};
      std::atomic<std::uint64_t> drawn{0};
      std::vector<vigil::fiber<>> starters;
      for (int i = 0; i < 4; ++i) {
        starters.push_back(vigil::spawn([&drawn, &from] {
          for (int n = 0; n < rounds(10'000); ++n) {
            auto f = vigil::spawn([] { touch(30 * kib); }, from);
            drawn += is_drawn(f.id());
            f.join();
          }
        }));
      }
      for (auto& s : starters)
        s.join();
      const stack_use u = use_of("workers.cpp:" + std::to_string(line));
      CHECK(u.total() >= std::min<std::uint64_t>(drawn, stack_use_table::first_ones));
      CHECK(u.total() <= drawn);
      CHECK(u.most_bytes >= 30 * kib);
      CHECK(u.most_bytes <= 30 * kib + slack);
    });
  }

  TEST_CASE("is not measured if install() was told so") {
    vigil::inspect::install({.stack_use = false});
    in_virtual([] {
      run_drawn(0, {"off.cpp", 1}, [] { touch(1); });
      CHECK(use_of("off.cpp:1").total() == 0);
    });
  }

  TEST_CASE("and the seed decides the same with it and without") {
    const auto order_of = [](std::uint64_t seed, bool measured) {
      vigil::inspect::install({.stack_use = measured});
      std::vector<int> order;
      in_virtual({.seed = seed, .runtime = {}}, [&order] {
        std::vector<vigil::fiber<>> all;
        for (int i = 0; i < 200; ++i) {
          all.push_back(vigil::spawn([&order, i] {
            order.push_back(i);
            vigil::this_fiber::yield();
            order.push_back(i);
          }));
        }
        for (auto& f : all)
          f.join();
      });
      return order;
    };
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      NOTE("seed: ", seed);
      CHECK(order_of(seed, false) == order_of(seed, true));
    }
    CHECK(order_of(1, false) != order_of(2, false));
    vigil::inspect::install({.stack_use = false});
  }

  TEST_CASE("is measured of the first fibers of a place, and then ten times a second") {
    static stack_use_table table;  // keeps the names for ever
    constexpr auto gap = stack_use_table::spacing;
    for (unsigned i = 0; i < stack_use_table::first_ones; ++i)
      CHECK(table.begin("a.cpp", 1, 5 * gap));
    CHECK(table.begin("a.cpp", 1, 5 * gap));
    CHECK_FALSE(table.begin("a.cpp", 1, 5 * gap));
    CHECK(table.begin("a.cpp", 2, 5 * gap));  // another place
    CHECK_FALSE(table.begin("a.cpp", 1, 6 * gap - 1));
    CHECK(table.begin("a.cpp", 1, 6 * gap));
    // Another runtime's clock, which is far behind.
    CHECK(table.begin("a.cpp", 1, gap));
    CHECK_FALSE(table.begin("a.cpp", 1, gap + 1));
  }

  TEST_CASE("is kept for 256 places, which keep their names, and what is more counts together") {
    static stack_use_table table;  // keeps the names for ever
    for (unsigned i = 0; i < 300; ++i) {
      std::string file = "file " + std::to_string(i);
      CHECK(table.begin(file.c_str(), i, 1));
      table.end(file.c_str(), i, 4'096 * (i + 1), 1 << 20);
      file.assign(file.size(), '?');
    }
    stack_use_table::reading now(table);
    now.add_alive("file 7", 7, 3 << 20, 4 << 20);
    now.add_alive("file 299", 299, 5 << 20, 8 << 20);
    const std::vector<stack_use> all = std::move(now).take();
    REQUIRE(all.size() == 257);
    CHECK(all[0].place == "others");
    CHECK(all[0].total() == 44);
    CHECK(all[0].most_bytes == 5 << 20);
    CHECK(all[0].least_stack == 1 << 20);
    CHECK(all[1].place == "file 7:7");
    CHECK(all[1].total() == 1);
    CHECK(all[1].sum_bytes == 8 * 4'096);
    CHECK(all[1].count[3] == 1);
    CHECK(all[1].most_bytes == 3 << 20);
    CHECK(all[2].place == "file 255:255");
    CHECK(all[256].place == "file 0");  // without a line
    CHECK(all[256].count[0] == 1);
  }
}
