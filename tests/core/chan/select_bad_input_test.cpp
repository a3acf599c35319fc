// Refused selects: the text of the refusal, and that nothing is left behind.
#include "core/chan/chan_test.hpp"
#include "core/chan/copy_throws.hpp"
#include "support/text_of.hpp"

#include <optional>
#include <stdexcept>

using namespace vigil::testing_support;

TEST_SUITE("select: bad input") {
  TEST_CASE("otherwise alone is taken at once, twice is refused before anything is looked at") {
    in_virtual([] {
      bool called = false;
      CHECK(select(otherwise([&] { called = true; })) == 0);
      CHECK(called);
      called = false;
      const auto call = [&] { called = true; };
      const auto c = make_channel<int>(1);
      c.send(1);
      const std::string text = text_of<std::invalid_argument>(
          [&] { select(on_recv(c, call), otherwise(call), otherwise(call)); });
      CHECK(holds(text, "two otherwise"));
      CHECK(holds(text, "only one"));
      vigil::case_list list;
      list.add(otherwise(call));
      list.add(on_recv(c, call));
      list.add(otherwise(call));
      CHECK_THROWS_AS(select(list), std::invalid_argument);
      CHECK_THROWS_AS(select_ordered(list), std::invalid_argument);
      CHECK_FALSE(called);
      CHECK(c.recv() == 1);  // nothing was taken
      check_nobody_waits(c);
      // The list is unchanged, and a valid one works.
      list.clear();
      list.add(otherwise(call));
      CHECK(select(list) == 0);
    });
  }

  TEST_CASE("a function that throws: its case is taken, the exception is thrown on, nobody waits") {
    in_virtual([] {
      const auto full = make_channel<std::unique_ptr<int>>(1);
      const auto other = make_channel<std::unique_ptr<int>>();
      const auto room = make_channel<std::unique_ptr<int>>(1);
      const auto fail = [](auto&&...) { throw std::runtime_error("no"); };
      full.send(std::make_unique<int>(1));
      CHECK(text_of<std::runtime_error>([&] {
              select(on_recv(full,
                             [&](std::optional<std::unique_ptr<int>> v) {
                               CHECK(**v == 1);
                               check_nobody_waits(other);
                               throw std::runtime_error("from the function");
                             }),
                     on_recv(other));
            }) == "from the function");
      CHECK(full.size() == 0);  // taken
      auto value = std::make_unique<int>(2);
      CHECK_THROWS_AS(select(on_send(room, std::move(value), fail), on_recv(other)),
                      std::runtime_error);
      CHECK(value == nullptr);
      CHECK(**room.recv() == 2);
      CHECK_THROWS_AS(select(on_recv(other), otherwise(fail)), std::runtime_error);
      CHECK_THROWS_AS(select(on_recv(other), on_timeout(1s, fail)), std::runtime_error);
      CHECK_THROWS_AS(select_ordered(on_timeout(0s, fail)), std::runtime_error);
      vigil::case_list list;
      list.add(on_recv(other));
      list.add(otherwise([&] { fail(); }));
      CHECK_THROWS_AS(select(list), std::runtime_error);
      check_nobody_waits(other);
      check_nobody_waits(full);
      check_nobody_waits(room);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("a function that throws after a wait leaves its peer served and nobody in a queue") {
    for_each_seed(10, [] {
      const auto a = make_channel<int>();
      const auto b = make_channel<int>();
      auto f = spawn([&] {
        CHECK_THROWS_AS(select(on_recv(a, [](std::optional<int>) { throw 1; }),
                               on_send(b, 2),
                               on_recv(b),
                               on_timeout(1h, [] { throw 2; })),
                        int);
        wipe_stack_below();
      });
      settle();
      a.send(1);
      f.join();
      check_nobody_waits(a);
      check_nobody_waits(b);
      auto g = spawn([&] {
        CHECK_THROWS_AS(select(on_send(a, 5, [] { throw 1; }), on_recv(b)), int);
        wipe_stack_below();
      });
      settle();
      CHECK(a.recv() == 5);
      g.join();
      check_nobody_waits(a);
      check_nobody_waits(b);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  TEST_CASE("an exception of an operand is thrown on before anything is looked at") {
    in_virtual([] {
      const auto c = make_channel<copy_throws>(1);
      const auto full = make_channel<int>(1);
      full.send(1);
      const copy_throws value(1);
      CHECK_THROWS_AS(select(on_recv(full), on_send(c, value)), std::runtime_error);
      CHECK(full.size() == 1);
      CHECK(c.size() == 0);
      vigil::case_list list;
      list.add(on_recv(full));
      CHECK_THROWS_AS(list.add(on_send(c, value)), std::runtime_error);
      CHECK(list.size() == 1);
      CHECK(select(list) == 0);
    });
  }
}
