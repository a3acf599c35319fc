// The table that a dump begins with: all fibers, counted in a room of fixed size.
#include "core/sched/report/fiber_table.hpp"

#include "core/sched/report/dump.hpp"
#include "support/dumped.hpp"
#include "support/in_runtime.hpp"

#include <vigil/vigil.hpp>

#include <algorithm>
#include <memory>
#include <string>

#include <doctest/doctest.h>

using namespace std::chrono_literals;
using vigil::detail::fiber_row;
using vigil::detail::fiber_state;
using vigil::detail::fiber_table;
using vigil::detail::fiber_view;
using vigil::detail::wait_reason;
using vigil::testing_support::dumped;
using vigil::testing_support::in_virtual;

namespace {

fiber_view waiting(std::uint64_t id, std::uint32_t line, vigil::detail::nanos since) {
  fiber_view v;
  v.id = id;
  v.file = "a.cpp";
  v.line = line;
  v.state = fiber_state::parked;
  v.reason = wait_reason::sleep;
  v.since = since;
  v.now = 1000;
  return v;
}

}  // namespace

TEST_SUITE("fiber table") {
  TEST_CASE("equal births, states and reasons are one row, with the ages of the waits") {
    const auto table = std::make_unique<fiber_table>();
    CHECK(table->find(waiting(1, 7, 1)) == nullptr);
    table->add(waiting(1, 7, 900), {});
    table->add(waiting(2, 7, 400), {});
    table->add(waiting(3, 7, 0), {});  // since when is not known
    table->add(waiting(4, 8, 999), {});
    fiber_view other = waiting(5, 8, 999);
    other.reason = wait_reason::send;
    table->add(other, {});
    other.state = fiber_state::runnable;  // its last reason does not count
    table->add(other, {});
    CHECK(table->rows() == 4);
    CHECK(table->all() == 6);
    const fiber_row& first = *table->by_count()[0];
    CHECK(first.count == 3);
    CHECK(first.with_age == 2);
    CHECK(first.oldest.id == 2);
    CHECK(first.longest == 600);
    CHECK(first.newest == 100);
    CHECK(first.sum == 700);
    CHECK_FALSE(first.has_other_objects);
    CHECK(table->by_count()[1]->oldest.id == 4);
    CHECK(table->by_count()[2]->oldest.id == 5);
  }

  TEST_CASE("what there is no row for is counted") {
    const auto table = std::make_unique<fiber_table>();
    for (std::uint32_t line = 1; line <= fiber_table::most_rows + 100; ++line) {
      const fiber_row* const row = table->add(waiting(line, line, 1), {});
      CHECK((row != nullptr) == (line <= fiber_table::most_rows));
    }
    CHECK(table->rows() == fiber_table::most_rows);
    CHECK(table->all() == fiber_table::most_rows + 100);
    CHECK(table->find(waiting(1, 1, 1)) != nullptr);
    CHECK(table->find(waiting(1, fiber_table::most_rows + 1, 1)) == nullptr);
    CHECK(table->share_of(10'000) == 10'000);
    CHECK(table->share_of(500) == 1);
    table->clear();
    CHECK(table->rows() == 0);
    CHECK(table->find(waiting(1, 1, 1)) == nullptr);
    CHECK(table->share_of(0) == 0);
  }

  TEST_CASE("fifty rows are written, if one has more than twenty fibers") {
    const auto table = std::make_unique<fiber_table>();
    const auto text = [&table] {
      std::string said;
      vigil::detail::dump_writer out(said);
      write_table(out, *table, nullptr);
      out.flush();
      return said;
    };
    for (std::uint32_t line = 1; line <= 60; ++line)
      table->add(waiting(line, line, 1000), {});
    for (std::uint64_t id = 100; id < 119; ++id)
      table->add(waiting(id, 1, 1000), {});
    CHECK(text().empty());
    fiber_view other = waiting(200, 1, 999);
    other.object = &other;
    table->add(other, {});
    const std::string said = text();
    CHECK_MESSAGE(
        said.starts_with("  21 [parked: sleep, and others, for at most 0.000 s] started at "
                         "a.cpp:1\n  1 [parked: sleep, for at most 0.000 s] started at "
                         "a.cpp:2\n"),
        said);
    CHECK_MESSAGE(said.ends_with(" started at a.cpp:50\n  10 in smaller rows\n"), said);
    CHECK(std::count(said.begin(), said.end(), '\n') == 51);
  }

  TEST_CASE("of a fiber that has moved on its line says only which one it is") {
    fiber_view v = waiting(7, 9, 900);
    const auto line_of = [](const fiber_view& shown) {
      std::string line;
      vigil::detail::dump_writer out(line);
      const auto no_object = [] {};
      vigil::detail::dump_fiber(out, shown, no_object);
      out.flush();
      return line;
    };
    CHECK(line_of(v) == "fiber 7 [parked: sleep, for 0.000 s] started at a.cpp:9\n");
    v.state = fiber_state::running;
    v.ran = vigil::detail::run_bounds::span{.at_least = 2'000'000, .at_most = 3'000'000};
    CHECK(line_of(v) == "fiber 7 [running, for 0.002 s to 0.003 s] started at a.cpp:9\n");
    v.moved_on = true;
    CHECK(line_of(v) == "fiber 7 [has moved on] started at a.cpp:9\n");
    v.runtime = 2;
    v.has_others = true;
    CHECK(line_of(v) == "fiber 7 [has moved on] started at a.cpp:9 of runtime 2\n");
  }

  TEST_CASE("a leak of the youngest fibers stands at the head of a dump") {
    in_virtual([] {
      const auto full = vigil::make_channel<int>(1);
      full.send(0);
      for (int i = 0; i < 12'000; ++i)
        vigil::go([] { vigil::sleep_for(1h); });
      for (int i = 0; i < 15'000; ++i)
        vigil::go([full] { static_cast<void>(full.send(1)); });
      vigil::sleep_for(3s);
      const std::string text = dumped();
      const std::string head = text.substr(0, 1000);
      CHECK_MESSAGE(
          head.starts_with("vigil: fibers\n  15000 [parked: channel send, for at most 3.000 s] "
                           "started at "),
          head);
      CHECK_MESSAGE(head.find("\n  12000 [parked: sleep, for at most 3.000 s] ") != head.npos,
                    head);
      CHECK_MESSAGE(text.find("\n27003 fibers\n") != text.npos, text.substr(text.size() - 300));
    });
  }
}
