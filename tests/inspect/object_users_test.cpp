// The last users of an object with a name: those that have the elements of a pool.
#include "inspect/object_users.hpp"

#include "core/sched/report/dump.hpp"
#include "inspect/inspect_helpers.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/co.hpp>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <boost/json/parse.hpp>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

const vigil::fiber_options as(const char* name) {
  return {.name = name};
}

// The lines that name users of the object.
std::vector<std::string> users(const std::string& text, const std::string& object) {
  std::vector<std::string> found;
  const std::string begin = "    \"" + object + "\": ";
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at + 1))
    found.push_back(text.substr(at + begin.size(), text.find('\n', at) - at - begin.size()));
  return found;
}

vigil::channel<int> filled(int size, const vigil::site& from) {
  auto pool = vigil::make_channel<int>(static_cast<std::size_t>(size), from);
  for (int i = 0; i < size; ++i)
    pool.send(i);
  return pool;
}

vigil::task<> takes(vigil::channel<int> from) {
  co_await vigil::co::recv(from);
}

}  // namespace

TEST_SUITE("object users") {
  TEST_CASE("a pool that runs empty names those that have its elements, once") {
    in_virtual([] {
      auto pool = filled(3, vigil::named("pool"));
      const auto loses = [&] { static_cast<void>(pool.recv()); };
      const std::string started = "object_users_test.cpp:" + std::to_string(__LINE__ + 1);
      vigil::spawn(as("first"), loses).join();
      vigil::sleep_for(2s);
      for (int i = 0; i < 20; ++i) {
        vigil::spawn(as("honest"), [&] { pool.send(*pool.recv()); }).join();
      }
      const auto holder = vigil::spawn(as("holder"), [&] {
        static_cast<void>(pool.recv());
        vigil::sleep_for(1h);
      });
      vigil::sleep_for(1s);
      vigil::spawn(as("last"), loses).join();
      const auto x = vigil::spawn(as("x"), [&] { static_cast<void>(pool.recv()); });
      const auto y = vigil::spawn(as("y"), [&] { static_cast<void>(pool.recv()); });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      const auto seen = users(text, "pool");
      REQUIRE(seen.size() == 4);
      CHECK(has(seen[0], "received by fiber "));
      CHECK(has(seen[0], " (first), which has ended, 3.000 s ago, started at "));
      CHECK(has(seen[0], started));
      CHECK(has(seen[1], " (holder) 1.000 s ago, started at "));
      CHECK(has(seen[2], " (last), which has ended, 0.000 s ago, started at "));
      CHECK(has(seen[3], "sent by fiber "));
      CHECK(has(seen[3], " (honest), which has ended, 1.000 s ago, started at "));
      const boost::json::value all = boost::json::parse(
          written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = false}); }));
      int waiting = 0;
      for (const auto& one : all.at("fibers").as_array()) {
        if (one.at("name").as_string() != "x" && one.at("name").as_string() != "y") continue;
        ++waiting;
        const auto& channel = one.at("waits_for").at("channels").as_array().at(0);
        const auto& last = channel.at("last_users").as_array();
        REQUIRE(last.size() == 4);
        CHECK(last[0].at("fiber").at("name").as_string() == "first");
        CHECK(last[0].at("fiber").at("has_ended").as_bool());
        CHECK(last[0].at("did").as_string() == "received");
        CHECK(last[0].at("nanoseconds_ago").as_int64() == 3'000'000'000);
        CHECK(last[0].at("started_at").as_object().contains("line"));
        CHECK_FALSE(last[1].at("fiber").as_object().contains("has_ended"));
        CHECK(last[3].at("did").as_string() == "sent");
        CHECK_FALSE(channel.as_object().contains("never"));
      }
      CHECK(waiting == 2);
      pool.close();
    });
  }

  TEST_CASE("of a channel that is full the last eight senders are named, and who received") {
    in_virtual([] {
      auto jobs = vigil::make_channel<int>(20, vigil::named("jobs"));
      for (int i = 0; i < 20; ++i)
        vigil::spawn(as(("s" + std::to_string(i)).c_str()), [&] { jobs.send(1); }).join();
      const auto x = vigil::spawn(as("x"), [&] { jobs.send(1); });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      auto seen = users(text, "jobs");
      REQUIRE(seen.size() == 9);
      for (std::size_t i = 0; i < 8; ++i) {
        CHECK(has(seen[i], "sent by fiber "));
        CHECK(has(seen[i], " (s" + std::to_string(12 + i) + "), which has ended"));
      }
      CHECK(seen[8] == "nobody has ever received");
      CHECK(has(written([](std::FILE* out) { vigil::inspect::dump_json(out, {.frames = false}); }),
                "\"never\":\"received\""));
      vigil::spawn(as("reader"), [&] { static_cast<void>(jobs.recv()); }).join();
      vigil::sleep_for(1s);
      const auto y = vigil::spawn(as("y"), [&] { jobs.send(1); });
      vigil::testing::settle();
      seen = users(inspected(), "jobs");
      REQUIRE(seen.size() == 9);
      CHECK(has(seen[8], "received by fiber "));
      CHECK(has(seen[8], " (reader), which has ended, 1.000 s ago, started at "));
      static_cast<void>(jobs.recv());
    });
  }

  TEST_CASE("of an empty channel to which nobody sends that is said") {
    in_virtual([] {
      auto jobs = vigil::make_channel<int>(20, vigil::named("jobs"));
      const auto x = vigil::spawn(as("x"), [&] { static_cast<void>(jobs.recv()); });
      vigil::testing::settle();
      CHECK(users(inspected(), "jobs") == std::vector<std::string>{"nobody has ever sent"});
      jobs.close();
    });
  }

  TEST_CASE("a waiter that is served is a user, on either side") {
    in_virtual([] {
      auto c = vigil::make_channel<int>(0, vigil::named("meeting"));
      const auto both = vigil::spawn(as("receives"), [&] {
        static_cast<void>(c.recv());  // waits
        vigil::sleep_for(1s);
        static_cast<void>(c.recv());  // finds a sender
      });
      vigil::testing::settle();
      vigil::spawn(as("sends"), [&] { c.send(1); }).join();
      vigil::spawn(as("waits"), [&] { c.send(2); }).join();
      const auto x = vigil::spawn(as("x"), [&] { static_cast<void>(c.recv()); });
      vigil::testing::settle();
      std::string text = inspected();
      NOTE(text);
      auto seen = users(text, "meeting");
      REQUIRE(seen.size() == 3);
      CHECK(has(seen[0], "(receives), which has ended"));
      CHECK(has(seen[1], "(receives), which has ended"));
      CHECK(has(seen[2], "(waits), which has ended"));
      c.send(3);
      const auto y = vigil::spawn(as("y"), [&] { c.send(4); });
      vigil::testing::settle();
      text = inspected();
      NOTE(text);
      seen = users(text, "meeting");
      REQUIRE(seen.size() == 4);
      CHECK(has(seen[0], "sent by fiber "));
      CHECK(has(seen[0], "(sends)"));
      CHECK(has(seen[1], "(waits)"));
      CHECK(has(seen[2], "(main)"));
      CHECK(has(seen[3], "(x), which has ended"));
      static_cast<void>(c.recv());
    });
  }

  TEST_CASE("a semaphore names those that have its permits, and how many") {
    in_virtual([] {
      vigil::semaphore s(10, vigil::named("connections"));
      CHECK(s.available() == 10);
      const auto two = vigil::spawn(as("two"), [&] {
        s.acquire(5);
        s.release(3);
        vigil::sleep_for(1h);
      });
      vigil::testing::settle();
      for (int i = 0; i < 20; ++i) {
        vigil::spawn(as("honest"), [&] { const vigil::scoped_permit one(s); }).join();
      }
      CHECK(s.available() == 8);
      CHECK_FALSE(s.try_acquire(9));
      CHECK_THROWS_AS(s.release(INT64_MAX), std::overflow_error);
      std::optional<vigil::fiber<void>> late;
      late.emplace(vigil::spawn(as("late"), [&] { s.acquire(9); }));
      vigil::testing::settle();
      const auto behind = vigil::spawn(as("behind"), [&] { s.acquire(2); });
      vigil::testing::settle();
      s.release(1);  // one that main has not acquired
      vigil::testing::settle();
      CHECK(s.available() == 0);
      const std::string text = inspected();
      NOTE(text);
      const auto seen = users(text, "connections");
      REQUIRE(seen.size() == 2);
      CHECK(has(seen[0], "acquired 2 by fiber "));
      CHECK(has(seen[0], " (two) "));
      CHECK(has(seen[1], "acquired 9 by fiber "));
      CHECK(has(seen[1], " (late), which has ended"));
      s.release(2);
    });
  }

  TEST_CASE("a wait for permits that is given up lets those behind it in, and they are users") {
    in_virtual([] {
      vigil::semaphore s(1, vigil::named("permits"));
      const auto many = vigil::spawn(as("many"), [&] { CHECK_FALSE(s.try_acquire_for(1s, 2)); });
      vigil::testing::settle();
      const auto one = vigil::spawn(as("one"), [&] {
        s.acquire();
        vigil::sleep_for(1h);
      });
      vigil::sleep_for(2s);
      const auto x = vigil::spawn(as("x"), [&] { s.acquire(); });
      vigil::testing::settle();
      const auto seen = users(inspected(), "permits");
      REQUIRE(seen.size() == 1);
      CHECK(has(seen[0], "acquired by fiber "));
      CHECK(has(seen[0], " (one) 1.000 s ago"));
      s.release();
    });
  }

  TEST_CASE("threads and tasks are users too, and what a select takes counts") {
    in_virtual([] {
      auto pool = filled(4, vigil::named("pool"));
      std::thread([&] { static_cast<void>(pool.try_recv()); }).join();
      std::thread([&] { pool.send(*pool.try_recv()); }).join();
      vigil::spawn(as("selects"), [&] {
        vigil::select(vigil::on_recv(pool, [](auto&&) {}));
      }).join();
      vigil::spawn(takes(pool)).join();
      const auto x = vigil::spawn(as("x"), [&] {
        static_cast<void>(pool.recv());
        vigil::select(vigil::on_recv(pool, [](auto&&) {}), vigil::on_timeout(1h, [] {}));
      });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      const auto seen = users(text, "pool");
      REQUIRE(seen.size() == 5);
      CHECK(has(seen[0], "received by a thread "));
      CHECK(has(seen[1], " (selects), which has ended"));
      CHECK(has(seen[2], "received by a task 0.000 s ago"));
      CHECK(has(seen[3], " (x) 0.000 s ago"));
      CHECK(has(seen[4], "sent by "));
      pool.close();
    });
  }

  TEST_CASE("an object without a name has no users") {
    in_virtual([] {
      auto pool = filled(2, vigil::site::current());
      vigil::semaphore s(1);
      for (int i = 0; i < 2; ++i)
        static_cast<void>(pool.recv());
      s.acquire();
      const auto x = vigil::spawn([&] { static_cast<void>(pool.recv()); });
      const auto y = vigil::spawn([&] { s.acquire(); });
      vigil::testing::settle();
      CHECK_FALSE(has(inspected(), "received by"));
      CHECK_FALSE(has(inspected(), "acquired by"));
      pool.close();
      s.release();
    });
  }

  TEST_CASE("a dump in a signal's handler names the users of each object once") {
    vigil::inspect::install();
    in_virtual([] {
      auto pool = filled(1, vigil::named("pool"));
      vigil::semaphore s(1, vigil::named("permits"));
      vigil::spawn(as("taker"), [&] {
        static_cast<void>(pool.recv());
        s.acquire();
      }).join();
      std::vector<vigil::fiber<void>> waiting;
      for (int i = 0; i < 3; ++i) {
        waiting.push_back(vigil::spawn([&] { static_cast<void>(pool.recv()); }));
        waiting.push_back(vigil::spawn([&] { s.acquire(), s.release(); }));
      }
      vigil::testing::settle();
      for (int i = 0; i < 2; ++i) {  // the second dump tells as much
        std::string text;
        vigil::detail::dump_writer out(text);
        vigil::detail::process_dump_rest(out, true);
        NOTE(text);
        const auto takers = users(text, "pool");
        REQUIRE(takers.size() == 2);
        CHECK(has(takers[0], "received by fiber "));
        CHECK(has(takers[0], " (taker), which has ended, 0.000 s ago, started at "));
        const auto holders = users(text, "permits");
        REQUIRE(holders.size() == 1);
        CHECK(has(holders[0], "acquired by fiber "));
      }
      pool.close();
      s.release();
    });
  }

  TEST_CASE("memory that is no record of users is not taken for one") {
    using namespace vigil::detail;
    std::vector<std::uint64_t> words(sizeof(last_users) / 8 + 8, ~std::uint64_t{0});
    shown_object o;
    shown_users out;
    o.reason = wait_reason::recv;
    o.address = &o;
    CHECK_FALSE(read_object_users(o, out));
    for (const void* const at : {static_cast<const void*>(words.data()),
                                 static_cast<const void*>(nullptr),
                                 reinterpret_cast<const void*>(~std::uintptr_t{0} - 64)}) {
      o.users = at;
      CHECK_FALSE(read_object_users(o, out));
    }
    words[0] = ~reinterpret_cast<std::uintptr_t>(&o);  // as one: then its words may be any
    o.users = words.data();
    CHECK(read_object_users(o, out));
    CHECK(out.count == last_users::most + 1);
    CHECK(out.users[0].who.id == 0);  // of no known kind
  }

  TEST_CASE("users are read while others write them") {
    std::atomic<bool> stop{false};
    vigil::options o;
    o.workers = 2;
    vigil::run(o, [&] {
      auto pool = filled(2, vigil::named("pool"));
      std::vector<vigil::fiber<void>> busy;
      for (int i = 0; i < 4; ++i) {
        busy.push_back(vigil::spawn(as("user"), [&] {
          while (!stop.load())
            pool.send(*pool.recv());
        }));
      }
      for (int i = 0; i < 20; ++i) {
        const std::string text =
            written([](std::FILE* out) { vigil::inspect::dump(out, {.frames = false}); });
        for (const std::string& one : users(text, "pool"))
          CHECK(has(one, "received by fiber "));
      }
      stop.store(true);
      for (auto& f : busy)
        f.join();
    });
  }
}
