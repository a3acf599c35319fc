// The acts of a live page that search: for fibers that are stuck, and for those of a
// group.
#include "core/machine/sanitizer.hpp"
#include "inspect_page/page_client.hpp"
#include "support/child.hpp"
#include "support/dumped.hpp"
#include "support/note.hpp"
#include "support/text_of.hpp"

#include <vigil/inspect.hpp>
#include <vigil/vigil.hpp>

#include <chrono>
#include <cstddef>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <doctest/doctest.h>

namespace json = boost::json;
using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// Waits until so many fibers of the process wait for this.
void wait_for_parked(const std::string& reason, std::size_t n) {
  while (count_of(dumped(), ("[parked: " + reason).c_str()) != n)
    vigil::this_fiber::yield();
}

// The group of fibers with this wait in the page's look.
json::object group_of(const vigil::inspect::live_page& page, const char* wait) {
  const json::value all = json::parse(get(page, "/fibers.json").body);
  for (const json::value& g : all.at("groups").as_array()) {
    const auto* w = g.as_object().if_contains("waits_for");
    if (w != nullptr && *w == wait) return g.as_object();
  }
  return {};
}

// AddressSanitizer's freed memory is kept, with what it held.
constexpr bool keeps_pointers = VIGIL_ASAN != 0;

constexpr const char* in_freed_memory =
    "what it waits for can be reached from memory that is no fiber's stack";

void forget_one() {
  auto c = vigil::make_channel<int>();
  vigil::go({.name = "forgotten"}, [c] { c.send(1); });
}

std::string target_of(const json::object& group) {
  return "/group.txt?key=" + std::string(group.at("key").as_string());
}

}  // namespace

TEST_SUITE("live page's acts") {
  TEST_CASE("a group tells what its oldest fiber waits for, and whether all wait for that") {
    const auto page = local_page();
    vigil::run({.workers = 2}, [&] {
      auto jobs = vigil::make_channel<int>(3, vigil::named("jobs"));
      vigil::go([jobs] { static_cast<void>(jobs.recv()); });
      wait_for_parked("channel receive", 1);
      json::object group;
      vigil::blocking([&] { group = group_of(page, "channel receive"); });
      REQUIRE(!group.empty());
      CHECK_FALSE(group.contains("other_objects"));
      const json::object& wait = group.at("oldest").at("waits_for").as_object();
      const json::value& channel = wait.at("channels").at(0);
      CHECK(channel.at("made_at").at("name") == "jobs");
      CHECK(std::string_view(channel.at("made_at").at("file").as_string())
                .ends_with("acts_test.cpp"));
      CHECK(channel.at("capacity") == 3);
      CHECK(json::serialize(group).find("\"address\"") == std::string::npos);
      vigil::mutex books;
      std::unique_lock held(books);
      auto waits = vigil::spawn([&] { const std::lock_guard guard(books); });
      wait_for_parked("mutex", 1);
      vigil::blocking([&] {
        const json::object locked = group_of(page, "mutex");
        REQUIRE(!locked.empty());
        const json::object& of = locked.at("oldest").at("waits_for").as_object();
        CHECK(of.contains("made_at"));
        if (of.contains("held_by")) CHECK(of.at("held_by").at("id").as_int64() > 0);
      });
      held.unlock();
      jobs.close();
    });
  }

  TEST_CASE("a group's oldest fibers are shown with their frames, and it is named by its key") {
    const auto page = local_page();
    vigil::run({.workers = 2}, [&] {
      auto open = vigil::make_channel<int>();
      auto other = vigil::make_channel<int>();
      for (int i = 0; i < 30; ++i) {
        const vigil::channel<int> c = i % 2 == 0 ? open : other;
        vigil::go({.name = "w" + std::to_string(i)}, [c] { static_cast<void>(c.recv()); });
        while (count_of(dumped(), "[parked: channel receive") == 0)
          vigil::this_fiber::yield();
      }
      vigil::blocking([&] {
        json::object group;
        do {
          group = group_of(page, "channel receive");
        } while (group.empty() || group.at("count") != 30);
        CHECK(group.at("other_objects") == true);
        CHECK(group_of(page, "channel receive").at("key") == group.at("key"));
        const http_answer found = act(page, target_of(group));
        NOTE("found.body: ", found.body);
        CHECK(found.status == 200);
        CHECK(found.body.starts_with("30 fibers; the 20 oldest:\n"));
        CHECK(count_of(found.body, "[parked: channel receive from the channel made at") == 20);
        CHECK(found.body.find("(w0) [") != std::string::npos);
        CHECK(found.body.find("(main)") == std::string::npos);
        CHECK(found.body.find("    at ") != std::string::npos);
        CHECK(get(page, target_of(group)).status == 405);
        CHECK(post(page, target_of(group), "").status == 403);
        CHECK(act(page, "/group.txt").status == 400);
        CHECK(act(page, "/group.txt?key=0123456789abcdef").status == 404);
      });
      open.close();
      other.close();
    });
  }

  TEST_CASE("fibers that can never go on are looked for on request, again and again") {
    vigil::inspect::install();
    const auto page = local_page();
    vigil::run({.workers = 2}, [&] {
      vigil::go({.name = "lost"}, [] { vigil::channel<int>().recv(); });
      auto open = vigil::make_channel<int>();
      auto waits = vigil::spawn({.name = "waits"}, [&] { static_cast<void>(open.recv()); });
      wait_for_parked("channel receive", 2);
      vigil::blocking([&] {
        for (int i = 0; i < 3; ++i) {
          const http_answer found = act(page, "/stuck.txt");
          NOTE("found.body: ", found.body);
          CHECK(found.status == 200);
          CHECK(found.field("Content-Type") == "text/plain; charset=utf-8");
          CHECK(found.body.find("(lost) [parked: channel receive (nil channel)") !=
                std::string::npos);
          CHECK(found.body.find("    at ") != std::string::npos);
          // Whether it is certain depends on what freed memory of earlier cases holds.
          CHECK(found.body.starts_with("vigil: fibers that can never go on: "));
          CHECK(found.body.find("(waits) [parked") > found.body.find("that may never go on: "));
          CHECK(found.body.find("(main)") == std::string::npos);
        }
      });
      open.close();
    });
  }

  // In a process of its own: other cases have left pointers in freed memory.
  TEST_CASE("what a look has freed keeps no fiber from being stuck for certain") {
    const child_result r = run_child("child: it is looked at before each search");
    NOTE(r.output);
    CHECK(r.succeeded());
  }

  TEST_CASE("child: it is looked at before each search" * doctest::skip()) {
    vigil::inspect::install();
    const auto page = local_page();
    // On a new thread, whose heap no earlier object was in.
    std::thread([&page] {
      vigil::run([&page] {
        vigil::spawn([] { vigil::spawn(&forget_one).join(); }).join();
        wait_for_parked("channel send", 1);
        std::thread([&page] {
          for (int i = 0; i < 4; ++i) {
            for (const char* const look : {"/state.json", "/fibers.json", "/metrics"})
              CHECK(get(page, look).status == 200);
            CHECK(act(page, "/dump.txt").status == 200);
            const std::string found = act(page, "/stuck.txt").body;
            NOTE(found);
            CHECK(found.find("(forgotten)") != std::string::npos);
            if (!keeps_pointers) CHECK(found.find(in_freed_memory) == std::string::npos);
          }
        }).join();
      });
    }).join();
  }
}
