#include "inspect/inspect_helpers.hpp"
#include "inspect/ten_waits.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <string>
#include <vector>

#include <boost/json/parse.hpp>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

std::string here(int line) {
  return "awaited_test.cpp:" + std::to_string(line);
}

}  // namespace

TEST_SUITE("awaited") {
  TEST_CASE("a receiver and a sender name their channel, how full it is, and the context") {
    in_virtual([] {
      auto lines = vigil::make_channel<int>(3);
      const std::string made = here(__LINE__ - 1);
      const vigil::cancellable c = vigil::with_cancel(vigil::background());
      const std::string context_made = here(__LINE__ - 1);
      const auto r = vigil::spawn(vigil::fiber_options{.name = "r"},
                                  [&] { static_cast<void>(lines.recv(c.ctx)); });
      vigil::testing::settle();
      std::string line = fiber_line(inspected(), "r");
      CHECK(has(line, "parked: channel receive from the channel made at "));
      CHECK(has(line, made + " (0 of 3 values)"));
      CHECK(has(line, "or the end of the context made at "));
      CHECK(has(line, context_made));
      for (int i = 0; i < 4; ++i)
        lines.send(i);  // one goes to the receiver
      const auto s = vigil::spawn(vigil::fiber_options{.name = "s"}, [&] { lines.send(5); });
      vigil::testing::settle();
      line = fiber_line(inspected(), "s");
      CHECK(has(line, "channel send to the channel made at "));
      CHECK(has(line, made + " (3 of 3 values)"));
      CHECK_FALSE(has(line, "context"));
    });
  }

  TEST_CASE("objects that were made in one line have numbers, and others have none") {
    in_virtual([] {
      std::vector<vigil::channel<int>> many;
      while (many.size() < 3)
        many.push_back(vigil::make_channel<int>());
      const std::string made = here(__LINE__ - 1);
      const auto only = vigil::make_channel<int>();
      vigil::group g;  // the same line may make things of other kinds
      std::vector<vigil::cancellable> contexts;
      while (contexts.size() < 2)
        contexts.push_back(vigil::with_cancel(vigil::background()));
      const std::string context_made = here(__LINE__ - 1);
      std::vector<vigil::fiber<void>> all;
      const auto wait = [&](const char* name, auto f) {
        all.push_back(vigil::spawn(vigil::fiber_options{.name = name}, f));
      };
      for (const char* const name : {"a", "b"})
        wait(name, [&] { static_cast<void>(many[1].recv(contexts[0].ctx)); });
      wait("c", [&] { static_cast<void>(many[2].recv(contexts[1].ctx)); });
      wait("d", [&] { vigil::select(vigil::on_recv(many[0]), vigil::on_recv(only)); });
      g.go([](const vigil::context& ctx) {
        static_cast<void>(vigil::make_channel<int>().recv(ctx));
      });
      wait("e", [&] { g.wait(); });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      const auto number = [&](const char* name, const std::string& place) {
        const std::string line = fiber_line(text, name);
        const std::size_t at = line.find(place + " #");
        return at == std::string::npos ? 0 : line[at + place.size() + 2] - '0';
      };
      CHECK(number("a", made) * number("c", made) * number("d", made) == 6);
      CHECK(number("b", made) == number("a", made));
      CHECK(number("a", context_made) * number("c", context_made) == 2);
      CHECK(number("b", context_made) == number("a", context_made));
      CHECK(count_of(fiber_line(text, "d"), " #") == 1);
      CHECK(count_of(fiber_line(text, "e"), " #") == 0);
      const std::string json =
          written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = false}); });
      CHECK(count_of(json, ",\"number\":") == 4 + 3);
      for (auto& f : all)
        f.request_stop();
    });
  }

  TEST_CASE("a select names its channels") {
    in_virtual([] {
      auto a = vigil::make_channel<int>();
      auto b = vigil::make_channel<int>();
      const std::string made_a = here(__LINE__ - 2);
      const std::string made_b = here(__LINE__ - 2);
      const auto f = vigil::spawn(vigil::fiber_options{.name = "f"}, [&] {
        vigil::select(vigil::on_recv(a, [](auto&&) {}),
                      vigil::on_send(b, 1, [] {}),
                      vigil::on_timeout(1h, [] {}));
      });
      vigil::testing::settle();
      const std::string line = fiber_line(inspected(), "f");
      NOTE(line);
      CHECK(has(line, made_a));
      CHECK(has(line, made_b));
      CHECK(has(line, "(receive from the channel made at "));
      CHECK(has(line, ", send to the channel made at "));
      CHECK(has(line, "due in 3600.000 s"));
    });
  }

  TEST_CASE("a join names the fiber, and each fiber its parent") {
    in_virtual([] {
      const auto outer = vigil::spawn(vigil::fiber_options{.name = "outer"}, [] {
        auto inner =
            vigil::spawn(vigil::fiber_options{.name = "inner"}, [] { vigil::sleep_for(1h); });
        inner.join();
      });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      const std::string inner = fiber_line(text, "inner");
      const std::string number = inner.substr(6, inner.find(' ', 6) - 6);
      CHECK(has(fiber_line(text, "outer"), "parked: join of fiber " + number + " (inner)"));
      CHECK(has(inner, " by fiber "));
    });
  }

  TEST_CASE("a select names the objects of all its cases") {
    vigil::inspect::install();
    in_virtual([] {
      vigil::mutex m;
      const std::string made_m = here(__LINE__ - 1);
      vigil::semaphore s(0);
      const std::string made_s = here(__LINE__ - 1);
      vigil::group_of<int> g;
      const std::string made_g = here(__LINE__ - 1);
      const auto c = vigil::make_channel<int>();
      g.go([] {
        vigil::sleep_for(1h);
        return 1;
      });
      m.lock();
      auto other =
          vigil::spawn(vigil::fiber_options{.name = "other"}, [] { vigil::sleep_for(1h); });
      const auto f = vigil::spawn(vigil::fiber_options{.name = "f"}, [&] {
        vigil::select(vigil::on_recv(c),
                      vigil::on_join(other),
                      vigil::on_lock(m),
                      vigil::on_acquire(s),
                      vigil::on_next(g));
      });
      vigil::testing::settle();
      const std::string text = inspected();
      const std::string line = fiber_line(text, "f");
      NOTE(line);
      const std::string inner = fiber_line(text, "other");
      CHECK(has(line, "select (receive from the channel made at "));
      CHECK(has(line, ", join of " + inner.substr(0, inner.find(')') + 1) + ", "));
      CHECK(has(line, ", mutex made at "));
      CHECK(has(line, made_m + ", held by fiber "));
      CHECK(has(line, ", semaphore made at "));
      CHECK(has(line, made_s + ", group: its fibers made at "));
      CHECK(has(line, made_g + ")"));
      m.unlock();
    });
  }

  TEST_CASE("a lock names its holder, once install() was called") {
    vigil::inspect::install();
    in_virtual([] {
      vigil::mutex m;
      vigil::shared_mutex rw;
      const auto holder = vigil::spawn(vigil::fiber_options{.name = "holder"}, [&] {
        const std::lock_guard one(m);
        const std::lock_guard two(rw);
        vigil::sleep_for(1h);
      });
      vigil::testing::settle();
      const auto x = vigil::spawn(vigil::fiber_options{.name = "x"}, [&] { m.lock(), m.unlock(); });
      const auto y = vigil::spawn(vigil::fiber_options{.name = "y"}, [&] {
        rw.lock_shared();
        rw.unlock_shared();
      });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      CHECK(has(fiber_line(text, "x"), "held by fiber "));
      CHECK(has(fiber_line(text, "x"), "(holder)"));
      CHECK(has(fiber_line(text, "y"), "(holder)"));
    });
  }

  TEST_CASE("a holder that has ended is named, and no other fiber on its stack") {
    vigil::inspect::install();
    in_virtual([] {
      vigil::mutex m;
      vigil::spawn([&] { m.lock(); }).join();
      const auto innocent =
          vigil::spawn(vigil::fiber_options{.name = "innocent"}, [] { vigil::sleep_for(1h); });
      const auto x = vigil::spawn(vigil::fiber_options{.name = "x"}, [&] { m.lock(), m.unlock(); });
      vigil::testing::settle();
      const std::string line = fiber_line(inspected(), "x");
      NOTE(line);
      CHECK(has(line, ", which has ended"));
      CHECK_FALSE(has(line, "innocent"));
      m.unlock();
    });
  }

  TEST_CASE("a name that an object was given stands beside the place where it was made") {
    in_virtual([] {
      CHECK(sizeof(vigil::mutex) == 48);  // without a name as with one
      auto lines = vigil::make_channel<int>(3, vigil::named("lines"));
      const std::string made = here(__LINE__ - 1);
      vigil::mutex m{vigil::named("books \"new\"\n")};
      const auto both = vigil::with_cancel(vigil::background(), vigil::named("request"));
      const std::lock_guard guard(m);
      const auto until_cancelled = [](const char* name, auto wait) {
        return vigil::spawn(vigil::fiber_options{.name = name},
                            [wait] { CHECK_THROWS_AS(wait(), vigil::cancelled); });
      };
      const auto r = until_cancelled("r", [&] { static_cast<void>(lines.recv(both.ctx)); });
      const auto l = until_cancelled("l", [&] { m.lock(both.ctx); });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      CHECK(has(fiber_line(text, "r"), "channel receive from the channel \"lines\" made at "));
      CHECK(has(fiber_line(text, "r"), made + " (0 of 3 values)"));
      CHECK(has(fiber_line(text, "r"), "or the end of the context \"request\" made at "));
      CHECK(has(fiber_line(text, "l"), "mutex \"books \"new\"\\n\" made at "));
      const boost::json::value all = boost::json::parse(
          written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = false}); }));
      for (const auto& one : all.at("fibers").as_array()) {
        if (one.at("name").as_string() != "r") continue;
        const auto& channel = one.at("waits_for").at("channels").as_array().at(0);
        CHECK(channel.at("made_at").at("name").as_string() == "lines");
      }
      both.cancel();
    });
  }

  TEST_CASE("the file of a place is written in one line, however long it is") {
    in_virtual([] {
      // A character of two bytes lies at each place where a part may end.
      std::string file;
      std::string shown;
      for (int i = 0; i < 40; ++i) {
        file += "\xc3\xa4/";
        shown += "\xc3\xa4/";
      }
      file += "\x1b[31m\n";
      shown += "\\x1b[31m\\n";
      const vigil::site from{file.c_str(), 7};
      auto c = vigil::make_channel<int>(0, vigil::site{"a\tb", 3});
      auto f = vigil::spawn(
          vigil::fiber_options{.name = "f"}, [&] { static_cast<void>(c.recv()); }, from);
      vigil::testing::settle();
      const std::string line = fiber_line(inspected(), "f");
      NOTE(line);
      CHECK(has(line, "started at " + shown + ":7"));
      CHECK(has(line, "made at a\\tb:3"));
      c.close();
      f.join();
    });
  }

  TEST_CASE("ten kinds of wait: each names its object by the place where it was made") {
    in_virtual([] {
      ten_waits::run([] {
        const std::string text = inspected();
        ten_waits::for_each_kind([&]<class Wait>() {
          NOTE("Wait::name: ", Wait::name);
          const std::string line = fiber_line(text, Wait::name);
          NOTE("line: ", line);
          CHECK(has(line, "or the end of the context made at ") ==
                (std::string(Wait::name) != "selecting"));
          if (std::string(Wait::name) != "sleeping") CHECK(has(line, "ten_waits.hpp:"));
        });
      });
    });
  }

  TEST_CASE("addresses are told only if they are asked for") {
    in_virtual([] {
      auto c = vigil::make_channel<int>();
      const auto f =
          vigil::spawn(vigil::fiber_options{.name = "f"}, [&] { static_cast<void>(c.recv()); });
      vigil::testing::settle();
      CHECK_FALSE(has(fiber_line(inspected(), "f"), " at 0x"));
      CHECK(has(fiber_line(inspected({.frames = false, .addresses = true}), "f"), " at 0x"));
      c.close();
    });
  }

  TEST_CASE("the JSON is JSON, whatever a name is made of") {
    in_virtual([] {
      const auto f = vigil::spawn(vigil::fiber_options{.name = "a\"b\\c\n\xff\xc3\xa4"},
                                  [] { vigil::sleep_for(90s); });
      vigil::testing::settle();
      const std::string text = written([](std::FILE* out) {
        vigil::inspect::dump_json(out, {.frames = true, .addresses = true});
      });
      NOTE(text);
      const boost::json::value all = boost::json::parse(text);
      const auto& fibers = all.at("fibers").as_array();
      CHECK(all.at("fiber_count").as_int64() == static_cast<std::int64_t>(fibers.size()));
      CHECK(all.at("runtimes").as_array().size() == 1);
      bool found = false;
      for (const auto& one : fibers) {
        const auto stack = static_cast<std::size_t>(one.at("stack").as_int64());
        REQUIRE(stack < all.at("stacks").as_array().size());
        if (one.at("name").as_string() != "a\"b\\c\n\xef\xbf\xbd\xc3\xa4") continue;
        found = true;
        CHECK(one.at("state").as_string() == "parked");
        CHECK(one.at("waits_for").at("reason").as_string() == "sleep");
        CHECK(one.at("waits_for").at("due_in_nanoseconds").as_int64() == 90'000'000'000);
        CHECK(one.at("parent").as_int64() > 0);
        CHECK(all.at("stacks").at(stack).at("result").as_string() == "whole");
      }
      CHECK(found);
    });
  }
}
