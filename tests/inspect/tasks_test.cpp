// Tasks in the reports: as text and as JSON.
#include "inspect/inspect_helpers.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/co.hpp>

#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <doctest/doctest.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;
namespace co = vigil::co;
namespace json = boost::json;
using vigil::task;

namespace {

json::value reported() {
  return json::parse(
      written([](std::FILE* f) { vigil::inspect::dump_json(f, {.frames = false}); }));
}

// The task with this number; fails if there is none.
json::object task_in(const json::value& all, std::uint64_t id) {
  for (const json::value& t : all.at("tasks").as_array()) {
    if (t.at("id").to_number<std::uint64_t>() == id) return t.as_object();
  }
  FAIL("no task ", id);
  return {};
}

std::string reason_of(const json::object& task) {
  CHECK(task.at("state") == "parked");
  return std::string(task.at("waits_for").at("reason").as_string());
}

bool is_here(const json::value& site, int line) {
  return has(std::string_view(site.at("file").as_string()), "tasks_test.cpp") &&
         site.at("line") == line;
}

std::string line_of_task(const std::string& text, std::uint64_t id) {
  for (const std::string& line : lines_of(text)) {
    if (line.starts_with("task " + std::to_string(id) + " [")) return line;
  }
  return "";
}

task<> sleeps() {
  co_await co::sleep_for(1h);
}

task<> receives(vigil::channel<int> from) {
  co_await co::recv(from);
}

}  // namespace

TEST_SUITE("tasks in reports") {
  TEST_CASE("the JSON says of each task where it was started, and its wait with the object") {
    vigil::inspect::install();
    in_virtual([] {
      auto ch = vigil::make_channel<int>(0, vigil::named("jobs"));
      const int made_ch = __LINE__ - 1;
      vigil::mutex m;
      const int made_m = __LINE__ - 1;
      std::unique_lock holds(m);
      auto sleeper = vigil::spawn(sleeps());
      const int started = __LINE__ - 1;
      auto receiver = vigil::spawn(receives(ch));
      auto locker = vigil::spawn([](vigil::mutex& l) -> task<> { co_await co::lock(l); }(m));
      auto joiner = vigil::spawn(
          [](vigil::task_handle<>& other) -> task<> { co_await co::join(other); }(receiver));
      auto selecter = vigil::spawn([](vigil::channel<int> c, vigil::mutex& l) -> task<> {
        co_await co::select(vigil::on_recv(c, [](auto&&) {}), vigil::on_lock(l));
      }(ch, m));
      vigil::sleep_for(3s);
      const json::value all = reported();
      NOTE(json::serialize(all.at("tasks")));
      CHECK(all.at("task_count") == 5);
      CHECK(all.at("tasks").as_array().size() == 5);

      const json::object s = task_in(all, sleeper.id());
      CHECK(s.at("runtime") == all.at("runtimes").at(0).at("number"));
      CHECK(is_here(s.at("started_at"), started));
      CHECK(reason_of(s) == "sleep");
      CHECK(s.at("waits_for").at("nanoseconds") == 3'000'000'000);

      const json::object r = task_in(all, receiver.id());
      CHECK(reason_of(r) == "channel receive");
      const json::value& channel = r.at("waits_for").at("channels").at(0);
      CHECK(is_here(channel.at("made_at"), made_ch));
      CHECK(channel.at("made_at").at("name") == "jobs");

      const json::object l = task_in(all, locker.id());
      CHECK(reason_of(l) == "mutex");
      CHECK(is_here(l.at("waits_for").at("made_at"), made_m));
      CHECK(l.at("waits_for").at("held_by").at("id") == vigil::this_fiber::id());

      const json::object j = task_in(all, joiner.id());
      CHECK(reason_of(j) == "join");
      CHECK(j.at("waits_for").at("task").at("id") == receiver.id());

      const json::object c = task_in(all, selecter.id());
      CHECK(reason_of(c) == "select");
      CHECK(is_here(c.at("waits_for").at("channels").at(0).at("made_at"), made_ch));
      CHECK(is_here(c.at("waits_for").at("other_cases").at(0).at("made_at"), made_m));
      holds.unlock();
      ch.close();
      joiner.join();
      sleeper.request_stop();
    });
  }

  TEST_CASE("a task that runs, one that is ready, and one that was asked to stop") {
    in_virtual([] {
      auto ch = vigil::make_channel<int>();
      auto ready = vigil::spawn(receives(ch));
      auto stopped = vigil::spawn(sleeps());
      vigil::testing::settle();
      json::value all;
      auto running = vigil::spawn([](vigil::channel<int> c, json::value& out) -> task<> {
        CHECK(c.try_send(1));
        out = reported();
        co_return;
      }(ch, all));
      const std::uint64_t id = running.id();
      running.join();
      NOTE(json::serialize(all.at("tasks")));
      CHECK(task_in(all, id).at("state") == "running");
      CHECK(task_in(all, ready.id()).at("state") == "runnable");
      CHECK_FALSE(task_in(all, ready.id()).contains("waits_for"));
      CHECK_FALSE(task_in(all, stopped.id()).contains("stop_requested"));
      stopped.request_stop();
      CHECK(task_in(reported(), stopped.id()).at("stop_requested") == true);
    });
  }

  TEST_CASE("the text has those with equal birth and wait together, and names the object") {
    vigil::inspect::install();
    in_virtual([] {
      auto ch = vigil::make_channel<int>();
      std::vector<vigil::task_handle<>> all;
      all.push_back(vigil::spawn(sleeps()));
      for (int i = 0; i < 30; ++i) {
        all.push_back(vigil::spawn(receives(ch)));
        vigil::sleep_for(1s);
      }
      // dump() and debug::dump() write the same.
      for (const std::string& text :
           {inspected(), written([](std::FILE* f) { vigil::debug::dump(f); })}) {
        NOTE(text);
        CHECK(has(line_of_task(text, 1), "[parked: sleep, for 30.000 s] started at "));
        CHECK(has(line_of_task(text, 2), "channel receive from the channel made at "));
        CHECK(has(line_of_task(text, 2), "tasks_test.cpp:"));
        CHECK(has(line_of_task(text, 2), ", for 30.000 s] started at "));
        CHECK(line_of_task(text, 21) != "");
        CHECK(line_of_task(text, 22) == "");
        CHECK(has(text, "... and 10 more that were started there and wait so\n"));
        CHECK(has(text, "\n31 tasks\n"));
        CHECK(count_of(text, "task 2 [") == 1);
        CHECK(text.find("task 2 [") < text.find("task 1 ["));  // the larger group first
      }
      const std::string each = inspected({.frames = false});
      CHECK(count_of(each, "\ntask ") == 31);
      ch.close();
    });
  }

  TEST_CASE("a fiber that joins a task names it") {
    in_virtual([] {
      auto t = vigil::spawn(sleeps());
      const std::string name = "task " + std::to_string(t.id());
      const auto joins = vigil::spawn(vigil::fiber_options{.name = "joins"},
                                      [&] { static_cast<void>(t.join_for(1h)); });
      vigil::testing::settle();
      const std::string text = inspected();
      NOTE(text);
      CHECK(has(fiber_line(text, "joins"), "parked: join of " + name + ", "));
    });
  }

  TEST_CASE("of very many tasks ten thousand are shown, those that were started first") {
    in_virtual([] {
      std::vector<vigil::task_handle<>> all;
      for (int i = 0; i < 10'050; ++i)
        all.push_back(vigil::spawn(sleeps()));
      const json::value shown = reported();
      CHECK(shown.at("task_count") == 10'050);
      REQUIRE(shown.at("tasks").as_array().size() == 10'000);
      CHECK(shown.at("tasks").at(9'999).at("id") == all[9'999].id());
      const std::string text = inspected();
      CHECK(has(text, "\n... and 50 more tasks\n10050 tasks\n"));
      for (auto& t : all)
        t.request_stop();
    });
  }

  TEST_CASE("reports beside a load never take one object for another") {
    in_runtime({.workers = {2}}, [] {
      const vigil::cancellable end = vigil::with_cancel(vigil::background());
      std::vector<vigil::task_handle<>> all;
      for (int i = 0; i < 50; ++i) {
        all.push_back(vigil::spawn([](vigil::context until) -> task<> {
          while (!until.is_done()) {
            {
              auto awaited = vigil::make_channel<int>(0, {"awaited", 7});
              static_cast<void>(co_await co::recv_for(awaited, 20us));
            }
            // In the same place, most of the time.
            const auto other = vigil::make_channel<int>(0, {"other", 8});
            co_await co::sleep_for(20us);
          }
        }(end.ctx)));
      }
      std::size_t channels = 0;
      for (int i = 0; i < rounds(100) || channels == 0; ++i) {
        const json::value shown = vigil::blocking(&reported);
        for (const json::value& t : shown.at("tasks").as_array()) {
          const json::value* const wait = t.as_object().if_contains("waits_for");
          if (wait == nullptr || !wait->as_object().contains("channels")) continue;
          for (const json::value& c : wait->at("channels").as_array()) {
            ++channels;
            CHECK(c.at("made_at").at("file") == "awaited");
            CHECK(c.at("made_at").at("line") == 7);
          }
        }
      }
      end.cancel();
      for (auto& t : all)
        t.join();
    });
  }
}
