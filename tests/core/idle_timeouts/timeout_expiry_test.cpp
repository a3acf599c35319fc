#include "core/idle_timeouts/idle_timeouts_test.hpp"
#include "core/time/timer_stress.hpp"
#include "support/child.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>

using namespace vigil::testing_support;

TEST_SUITE("timeout_list") {
  TEST_CASE("in its on_expire an entry may be added again, to any list") {
    in_virtual([] {
      const instant start = now();
      times seen;
      std::optional<timeout_list> l;
      std::optional<timeout_list> other;
      l.emplace(10ms, [&](entry& e) {
        seen.push_back(since(start));
        if (seen.size() < 3) {
          l->add(e);
        } else {
          other->add(e);
        }
      });
      other.emplace(5ms, [&](entry&) { seen.push_back(since(start)); });
      connection c;
      l->add(c.idle);
      sleep_for(1s);
      CHECK(seen == times{10ms, 20ms, 30ms, 35ms});
    });
  }

  TEST_CASE("in its on_expire an entry may be destroyed, and others touched, removed, destroyed") {
    in_virtual([] {
      std::vector<std::unique_ptr<connection>> c;
      for (int i = 0; i < 5; ++i)
        c.push_back(std::make_unique<connection>(i));
      ids seen;
      timeout_list l(10ms, [&](entry& e) {
        const int id = id_of(e);
        seen.push_back(id);
        if (id != 0) return;
        c[0].reset();
        CHECK(c[1]->idle.touch());
        CHECK(timeout_list::remove(c[2]->idle));
        c[3].reset();
      });
      for (auto& each : c)
        l.add(each->idle);
      c[1]->idle.touch(now() + 1ns);  // so that c[0] is the first
      c[4]->idle.touch(now() + 1ns);
      c[2]->idle.touch(now() + 1ns);
      c[3]->idle.touch(now() + 1ns);
      sleep_for(1s);
      CHECK(seen == ids{0, 4, 1});
    });
  }

  TEST_CASE("in its on_expire the list may be destroyed") {
    in_virtual([] {
      std::optional<timeout_list> l;
      int calls = 0;
      auto captured = std::make_shared<int>(0);
      l.emplace(10ms, [&, captured](entry&) {
        ++calls;
        l.reset();
        CHECK(captured.use_count() == 2);
      });
      connection a;
      connection b;
      l->add(a.idle);
      l->add(b.idle);
      sleep_for(1s);
      CHECK(calls == 1);
      CHECK_FALSE(b.idle.is_linked());
      CHECK(captured.use_count() == 1);
    });
  }

  TEST_CASE("remove waits for an on_expire that is running, and so do both destructors") {
    in_virtual([] {
      const instant start = now();
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry&) { sleep_for(1s); });
      std::optional<connection> c;
      c.emplace();
      l->add(c->idle);
      sleep_for(11ms);
      CHECK_FALSE(timeout_list::remove(c->idle));
      CHECK(since(start) == 1s + 10ms);
      l->add(c->idle);
      sleep_for(11ms);
      c.reset();
      CHECK(since(start) == 2s + 20ms);
      c.emplace();
      l->add(c->idle);
      sleep_for(11ms);
      l.reset();
      CHECK(since(start) == 3s + 30ms);
    });
  }

  TEST_CASE("an entry added by an on_expire for which the list's destructor waits is in no list") {
    for (const bool by_timer : {true, false}) {
      NOTE("by_timer: ", by_timer);
      in_virtual([by_timer] {
        connection c;
        connection other;
        noted_list elsewhere(1h);
        elsewhere.list.add(other.idle);
        bool has_added = false;
        {
          timeout_list* list = nullptr;
          vigil::fiber closing;
          timeout_list dying(10ms, [&](entry& e) {
            sleep_for(1s);
            CHECK(list->expire_now() == 0);
            list->add(e);
            list->add(other.idle);
            CHECK(list->size() == 0);
            has_added = true;
          });
          list = &dying;
          dying.add(c.idle);
          if (!by_timer) closing = vigil::spawn([&] { CHECK(dying.expire_now() == 1); });
          sleep_for(11ms);
        }
        CHECK(has_added);
        CHECK_FALSE(c.idle.is_linked());
        CHECK_FALSE(other.idle.is_linked());
        CHECK(elsewhere.list.size() == 0);
        settle();
        noted_list next(5ms);  // with the same memory inside
        connection expires{3};
        next.list.add(expires.idle);
        CHECK(next.list.size() == 1);
        sleep_for(1s);
        CHECK(next.seen.ids() == ids{3});
        CHECK(vigil::stats().timers_pending == 0);
      });
    }
  }

  TEST_CASE("several may wait for the same on_expire, and a remove elsewhere does not wait") {
    in_virtual([] {
      const instant start = now();
      timeout_list l(10ms, [&](entry&) { sleep_for(1s); });
      connection c;
      connection other;
      l.add(c.idle);
      sleep_for(11ms);
      l.add(other.idle);
      CHECK(timeout_list::remove(other.idle));
      CHECK(since(start) == 11ms);
      in_fibers(3, [&](int) {
        CHECK_FALSE(timeout_list::remove(c.idle));
        CHECK(since(start) == 1s + 10ms);
      });
    });
  }

  TEST_CASE("remove during an on_expire that adds the entry again takes it out once more") {
    in_virtual([] {
      std::optional<timeout_list> l;
      int calls = 0;
      l.emplace(10ms, [&](entry& e) {
        ++calls;
        sleep_for(1s);
        l->add(e);
      });
      connection c;
      l->add(c.idle);
      sleep_for(11ms);
      CHECK(timeout_list::remove(c.idle));
      CHECK_FALSE(c.idle.is_linked());
      sleep_for(1h);
      CHECK(calls == 1);
    });
  }

  TEST_CASE("remove inside its own on_expire does not wait") {
    in_virtual([] {
      std::optional<timeout_list> l;
      bool prevented = false;
      int calls = 0;
      l.emplace(10ms, [&](entry& e) {
        ++calls;
        CHECK_FALSE(timeout_list::remove(e));
        l->add(e);
        prevented = timeout_list::remove(e);
      });
      connection c;
      l->add(c.idle);
      sleep_for(1s);
      CHECK(calls == 1);
      CHECK(prevented);
    });
  }

  TEST_CASE("an on_expire that waits holds up none of the others") {
    in_virtual([] {
      expiries seen;
      timeout_list l(10ms, [&](entry& e) {
        seen.add(id_of(e));
        sleep_for(1h);
      });
      std::deque<connection> c;
      for (int i = 0; i < 100; ++i) {
        c.emplace_back(i);
        l.add(c.back().idle);
      }
      sleep_for(5ms);
      connection late{100};
      l.add(late.idle);
      sleep_for(20ms);
      REQUIRE(seen.all.size() == 101);
      CHECK(seen.all[99].at == 10ms);
      CHECK(seen.all[100].at == 15ms);
      sleep_for(2h);
    });
  }

  TEST_CASE("an entry that comes due in its own on_expire is put off by one more duration") {
    in_virtual([] {
      const instant start = now();
      times begun;
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry& e) {
        begun.push_back(since(start));
        if (begun.size() == 3) return;
        l->add(e);
        sleep_for(begun.size() == 1 ? 25ms : 5ms);
      });
      connection c;
      l->add(c.idle);
      sleep_for(35ms);
      // Due at 20 ms and at 30 ms, beside the on_expire that runs until 35 ms.
      CHECK(c.idle.last_touch() - start == 30ms);
      sleep_for(1s);
      CHECK(begun == times{10ms, 40ms, 50ms});
    });
  }

  TEST_CASE("an entry that is put off can be touched and removed") {
    in_virtual([] {
      const instant start = now();
      times begun;
      std::optional<timeout_list> l;
      l.emplace(10ms, [&](entry& e) {
        begun.push_back(since(start));
        if (begun.size() > 1) return;
        l->add(e);
        sleep_for(100ms);
      });
      connection c;
      l->add(c.idle);
      sleep_for(50ms);
      CHECK(l->size() == 1);
      CHECK(c.idle.touch());
      sleep_for(55ms);  // until 105 ms, the touch counts
      CHECK(c.idle.touch());
      sleep_for(1s);
      CHECK(begun == times{10ms, 115ms});
      begun.clear();
      l->add(c.idle);
      sleep_for(50ms);
      CHECK(timeout_list::remove(c.idle));  // its on_expire ends first
      sleep_for(1s);
      CHECK(begun.size() == 1);
    });
  }

  TEST_CASE("an exception that leaves on_expire goes to on_unhandled, and the others expire") {
    static int reported;
    reported = 0;
    vigil::testing::virtual_options how;
    how.runtime.on_unhandled = [](std::exception_ptr) { ++reported; };
    in_virtual(how, [] {
      int calls = 0;
      timeout_list l(10ms, [&](entry&) {
        ++calls;
        throw std::runtime_error("no");
      });
      std::array<connection, 3> c;
      for (connection& each : c)
        l.add(each.idle);
      sleep_for(1s);
      CHECK(calls == 3);
      CHECK(reported == 3);
      for (connection& each : c)
        l.add(each.idle);
      CHECK(l.expire_now() == 3);
      CHECK(reported == 6);
      CHECK_FALSE(timeout_list::remove(c[0].idle));  // does not wait for ever
    });
  }

  TEST_CASE("child: removes under no_park" * doctest::skip()) {
    in_virtual([] {
      timeout_list l(10ms, [](entry&) { sleep_for(1s); });
      connection c;
      l.add(c.idle);
      sleep_for(11ms);
      vigil::this_fiber::set_name("clumsy");
      const vigil::this_fiber::no_park guard;
      timeout_list::remove(c.idle);
    });
  }

  TEST_CASE("child: destroys a list under no_park" * doctest::skip()) {
    in_virtual([] {
      connection c;
      auto l = std::make_unique<timeout_list>(10ms, [](entry&) { sleep_for(1s); });
      l->add(c.idle);
      sleep_for(11ms);
      vigil::this_fiber::set_name("clumsy");
      const vigil::this_fiber::no_park guard;
      l.reset();
    });
  }

  TEST_CASE("waiting for an on_expire under no_park ends the program by name") {
    for (const char* const what : {"removes", "destroys a list"}) {
      const auto name = std::string("child: ") + what + " under no_park";
      const child_result r = run_child(name.c_str());
      CHECK_MESSAGE(r.died_by(SIGABRT), r.output);
      CHECK(r.says("clumsy"));
      CHECK(r.says("this_fiber::no_park"));
    }
  }

  TEST_CASE("the dump names a fiber that waits for an on_expire") {
    in_virtual([] {
      timeout_list l(10ms, [&](entry&) { sleep_for(1s); });
      connection c;
      l.add(c.idle);
      sleep_for(11ms);
      auto f = vigil::spawn([&] { timeout_list::remove(c.idle); });
      settle();
      char* text = nullptr;
      std::size_t size = 0;
      std::FILE* const memory = ::open_memstream(&text, &size);
      vigil::debug::dump(memory);
      std::fclose(memory);
      const std::string dump(text, size);
      std::free(text);
      CHECK(dump.find("the end of an on_expire") != std::string::npos);
      f.join();
    });
  }
}
