// select: nil and closed channels, no cases at all, and the time at which operands and
// functions are evaluated.
#include "core/chan/chan_test.hpp"

#include <array>
#include <optional>

using namespace vigil::testing_support;

TEST_SUITE("select") {
  // Go: chan/select.go; chan/select3.go: nil in a select; only nil.
  TEST_CASE("a nil channel is never chosen, and a select of nothing else waits for ever") {
    in_virtual([] {
      const channel<int> nil;
      CHECK(waits([&] { select(on_recv(nil)); }));
      CHECK(waits([&] { select(on_send(nil, 1)); }));
      CHECK(waits([&] { select(on_recv(nil), on_send(nil, 1), on_recv(receiver<void>())); }));
      CHECK(select(on_recv(nil), otherwise()) == 1);
      CHECK(select(on_send(nil, 1), on_recv(nil), otherwise()) == 2);
      CHECK(select(on_send(nil, 1), on_recv(with_value(1)), on_recv(nil)) == 1);
      const auto start = vigil::clock::now();
      CHECK(select(on_send(nil, 1), on_timeout(1s), on_recv(nil)) == 1);
      CHECK(since(start) == 1s);
    });
  }

  TEST_CASE("a case is switched off by a nil channel in its place") {
    in_virtual([] {
      auto a = make_channel<int>();
      auto b = make_channel<int>();
      go([a] {
        for (int i = 0; i < 5; ++i)
          a.send(i);
        a.close();
      });
      go([b] {
        for (int i = 0; i < 7; ++i)
          b.send(i);
        b.close();
      });
      int n = 0;
      while (a || b) {
        select(on_recv(a, [&](std::optional<int> v) { v ? void(++n) : void(a = {}); }),
               on_recv(b, [&](std::optional<int> v) { v ? void(++n) : void(b = {}); }));
      }
      CHECK(n == 12);
    });
  }

  // Go: chan/select3.go: empty select.
  TEST_CASE("without cases it waits until the fiber is stopped") {
    in_virtual([] {
      CHECK(waits([] { select(); }));
      CHECK(waits([] {
        vigil::case_list none;
        select(none);
      }));
    });
  }

  // Go: chan/select3.go: empty select.
  TEST_CASE("without cases, or with nil ones only, in every fiber it is a deadlock") {
    CHECK_THROWS_AS(vigil::testing::run_virtual([] { select(); }), vigil::deadlock);
    CHECK_THROWS_AS(vigil::testing::run_virtual([] {
                      go([] { select(on_recv(channel<int>()), on_send(channel<int>(), 1)); });
                      select_ordered();
                    }),
                    vigil::deadlock);
    vigil::options o;
    o.workers = 2;
    o.deadlock = vigil::on_deadlock::fatal;
    CHECK_THROWS_AS(vigil::run(o, [] { select(on_recv(make_channel<int>())); }), vigil::deadlock);
    // With a timeout among them it is not a deadlock.
    vigil::testing::run_virtual([] { select(on_recv(channel<int>()), on_timeout(24h)); });
  }

  // Go: chan/select3.go: receive from closed; closedchan.go: receives, plain and
  // in selects.
  TEST_CASE("a closed channel is always ready to receive, first its values, then nothing") {
    in_virtual([] {
      const auto c = make_channel<int>(2);
      c.send(1);
      c.send(2);
      c.close();
      std::vector<int> got;
      const auto keep = [&](std::optional<int> v) { got.push_back(v.value_or(-1)); };
      for (int i = 0; i < 2; ++i) {
        CHECK(select(on_recv(c, keep)) == 0);
        CHECK(select(on_recv(c, keep), otherwise()) == 0);
      }
      CHECK(select(on_recv(make_channel<int>()), on_recv(c, keep), on_timeout(1s)) == 1);
      CHECK(got == std::vector{1, 2, -1, -1, -1});
      const auto v = make_channel<void>(1);
      v.send();
      v.close();
      std::vector<bool> heard;
      for (int i = 0; i < 2; ++i)
        select(on_recv(v, [&](bool something) { heard.push_back(something); }));
      CHECK(heard == std::vector{true, false});
    });
  }

  // Go: chan/select3.go: send to closed, also in a select.
  TEST_CASE("a send case of a closed channel throws when it is drawn, the value is kept") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(1);
      c.close();
      auto value = std::make_unique<int>(1);
      const auto never = make_channel<int>();
      bool called = false;
      const auto call = [&] { called = true; };
      CHECK_THROWS_AS(select(on_send(c, std::move(value), call)), channel_closed);
      CHECK_THROWS_AS(select(on_send(c, std::move(value), call), otherwise()), channel_closed);
      CHECK_THROWS_AS(select(on_recv(never), on_send(c, std::move(value), call)), channel_closed);
      CHECK(value != nullptr);
      CHECK_FALSE(called);
      CHECK(c.size() == 0);
      check_nobody_waits(never);
    });
  }

  TEST_CASE("a close ends a select that waits: a receive with nothing, a send with the error") {
    for_each_seed(20, [] {
      const auto c = make_channel<std::unique_ptr<int>>();
      const auto other = make_channel<int>();
      auto f = spawn([&] {
        bool nothing = false;
        CHECK(select(on_recv(other), on_recv(c, [&](auto v) { nothing = !v; })) == 1);
        CHECK(nothing);
      });
      settle();
      c.close();
      f.join();
      const auto d = make_channel<std::unique_ptr<int>>();
      auto g = spawn([&] {
        auto value = std::make_unique<int>(3);
        CHECK_THROWS_AS(select(on_send(d, std::move(value)), on_recv(other)), channel_closed);
        CHECK(value != nullptr);
        wipe_stack_below();
      });
      settle();
      d.close();
      g.join();
      check_nobody_waits(other);
    });
  }

  // --- operands and functions

  // Go: chan/select.go.
  TEST_CASE("every operand is evaluated once, even of nil channels and cases not taken") {
    in_virtual([] {
      int evaluated = 0;
      const auto c = make_channel<int>(1);
      const auto ch = [&](channel<int> x) {
        ++evaluated;
        return x;
      };
      const auto value = [&](int v) {
        ++evaluated;
        return v;
      };
      const channel<int> nil;
      select(on_send(ch(c), value(1)), on_recv(ch(nil)));
      CHECK(evaluated == 3);
      select(on_recv(ch(c)), on_send(ch(nil), value(2)), otherwise());
      CHECK(evaluated == 6);
      select(on_send(ch(nil), value(3)), on_send(ch(nil), value(4)), otherwise());
      CHECK(evaluated == 10);
    });
  }

  // Go: chan/select5.go.
  TEST_CASE("in a list the operands are evaluated in the order in which they are added") {
    in_virtual([] {
      std::string order;
      const auto c = make_channel<int>(1);
      const auto ch = [&](char name) {
        order += name;
        return c;
      };
      vigil::case_list list;
      CHECK(list.add(on_recv(ch('a'))) == 0);
      CHECK(list.add(on_recv(ch('b'))) == 1);
      CHECK(list.add(otherwise()) == 2);
      CHECK(list.size() == 3);
      CHECK(order == "ab");
      CHECK(select(list) == 2);
      CHECK(order == "ab");
      list.clear();
      CHECK(list.size() == 0);
    });
  }

  // Go: chan/select4.go.
  TEST_CASE("only the function of the case taken is called, after everything else is undone") {
    in_virtual([] {
      const auto full = with_value(1);
      const auto empty = make_channel<int>();
      bool wrong = false;
      select(on_recv(empty, [&] { wrong = true; }),
             on_recv(full,
                     [&](std::optional<int>) {
                       check_nobody_waits(empty);
                       // so it may itself wait and select
                       CHECK(select(on_recv(empty), on_timeout(1s)) == 1);
                     }),
             on_send(empty, 1, [&] { wrong = true; }));
      CHECK_FALSE(wrong);
      // The same for a select that had to wait.
      auto f = spawn([&] {
        select(on_recv(empty,
                       [&](std::optional<int> v) {
                         CHECK(v == 9);
                         check_nobody_waits(empty);
                         sleep_for(1s);
                       }),
               on_send(empty, 1));
      });
      settle();
      CHECK(empty.try_send(9));
      f.join();
    });
  }

  // Go: chan/select7.go.
  TEST_CASE("a plain, a single-case and a two-case form of send meet the same forms of receive") {
    in_virtual([] {
      const channel<int> nil;
      const auto dummy = make_channel<int>();
      using operation = void (*)(const channel<int>&, const channel<int>&);
      constexpr std::array<operation, 3> sends{
          [](const channel<int>& c, const channel<int>&) { c.send(1); },
          [](const channel<int>& c, const channel<int>&) { select(on_send(c, 1)); },
          [](const channel<int>& c, const channel<int>& d) { select(on_send(c, 1), on_recv(d)); }};
      constexpr std::array<operation, 4> receives{
          [](const channel<int>& c, const channel<int>&) { static_cast<void>(c.recv()); },
          [](const channel<int>& c, const channel<int>&) { select(on_recv(c)); },
          [](const channel<int>& c, const channel<int>& d) { select(on_recv(c), on_recv(d)); },
          [](const channel<int>& c, const channel<int>& d) {
            select(on_recv(d), on_recv(c, [](std::optional<int> v) { CHECK(v == 1); }));
          }};
      for (const operation send : sends) {
        for (const operation recv : receives) {
          for (const bool send_first : {false, true}) {
            const auto c = make_channel<int>();
            auto f = spawn([&] { send_first ? send(c, dummy) : recv(c, dummy); });
            settle();
            send_first ? recv(c, dummy) : send(c, dummy);
            f.join();
            check_nobody_waits(c);
            check_nobody_waits(dummy);
          }
        }
      }
    });
  }

  TEST_CASE("a value that was not sent stays in the caller's hand, an lvalue is copied") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>();
      const auto d = make_channel<std::unique_ptr<int>>(1);
      auto a = std::make_unique<int>(1);
      auto b = std::make_unique<int>(2);
      CHECK(select(on_send(c, std::move(a)), otherwise()) == 1);
      CHECK(select(on_send(c, std::move(a)), on_timeout(1s)) == 1);
      CHECK(select(on_send(c, std::move(a)), on_send(d, std::move(b))) == 1);
      CHECK(a != nullptr);
      CHECK(b == nullptr);
      CHECK(**d.recv() == 2);
      auto f = spawn([&] {
        CHECK_THROWS_AS(select(on_send(c, std::move(a)), on_recv(d)), vigil::stopped);
        CHECK(a != nullptr);
      });
      settle();
      f.request_stop();
      f.join();
      const auto texts = make_channel<std::string>(2);
      std::string text = "a text that is too long for the string itself to hold";
      select(on_send(texts, text));
      CHECK(!text.empty());
      select(on_send(texts, "another"));  // converted to a string at once
      CHECK(texts.recv() == text);
      CHECK(texts.recv() == "another");
    });
  }

  TEST_CASE("functions may take the value or leave it, and be left out") {
    in_virtual([] {
      const auto c = make_channel<std::unique_ptr<int>>(4);
      for (int i = 0; i < 4; ++i)
        c.send(std::make_unique<int>(i));
      std::unique_ptr<int> mine;
      select(on_recv(c, [&](std::optional<std::unique_ptr<int>> v) { mine = std::move(*v); }));
      CHECK(*mine == 0);
      int calls = 0;
      select(on_recv(c, [&] { ++calls; }));
      select(on_recv(c, [&, only_moved = std::move(mine)](auto v) mutable {
        ++calls;
        CHECK(**v == 2);
        only_moved.reset();
      }));
      select(on_recv(c));
      CHECK(calls == 2);
      CHECK(c.size() == 0);
      const sender<void> in = make_channel<void>(1);
      CHECK(select(on_send(in, [&] { ++calls; }), otherwise()) == 0);
      CHECK(select(on_send(in), otherwise()) == 1);
      CHECK(calls == 3);
    });
  }
}
