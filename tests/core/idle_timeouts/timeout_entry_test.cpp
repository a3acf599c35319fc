#include "core/idle_timeouts/idle_timeouts_test.hpp"

#include <string>

using namespace vigil::testing_support;

namespace {

// Reports a use after its end.
struct with_work {
  with_work(std::vector<std::string>& to, int n) : said(&to), number(n) {}

  with_work(const with_work&) = delete;
  with_work& operator=(const with_work&) = delete;

  ~with_work() { said->push_back("destroyed"); }

  void expire() {
    said->push_back("expires " + std::to_string(number));
    vigil::sleep_for(1s);
    said->push_back("expired " + text);
  }

  std::vector<std::string>* said;
  int number;
  std::string text = "a text that is too long to be kept without an allocation";
};

struct plain {
  int a;
  std::string b;
};

}  // namespace

TEST_SUITE("expiring") {
  TEST_CASE("its destructor waits for a running on_expire before anything of T is destroyed") {
    in_virtual([] {
      using holder = vigil::expiring<with_work>;
      std::vector<std::string> said;
      vigil::timeout_list list(1s, [](entry& e) { holder::of(e)->expire(); });
      {
        holder h(said, 7);
        list.add(h.entry());
        vigil::sleep_for(1500ms);  // the entry is in its on_expire
        CHECK_FALSE(h.entry().is_linked());
        CHECK(&holder::of(h.entry()) == &h);
        CHECK(&*h == h.operator->());
      }
      CHECK(said == std::vector<std::string>{
                        "expires 7",
                        "expired a text that is too long to be kept without an allocation",
                        "destroyed"});
    });
  }

  TEST_CASE("on_expire may destroy its owner, and aggregates are made from their members") {
    in_virtual([] {
      using holder = vigil::expiring<plain>;
      std::vector<std::unique_ptr<holder>> all;
      vigil::timeout_list list(1s, [&](entry& e) {
        CHECK(holder::of(e)->b == "b");
        all.erase(all.begin());
      });
      all.push_back(std::make_unique<holder>(1, "b"));
      list.add(all.back()->entry());
      CHECK((*all.back())->a == 1);
      vigil::sleep_for(1h);
      CHECK(all.empty());
      CHECK(list.size() == 0);
      const vigil::expiring<int> number(3);
      CHECK(*number == 3);
      CHECK_FALSE(number.entry().is_linked());
    });
  }
}

TEST_SUITE("timeout_list") {
  TEST_CASE("an older time never moves an entry back, and is a success") {
    in_virtual([] {
      noted_list l(10ms);
      connection c;
      l.list.add(c.idle);
      const instant added = now();
      CHECK(c.idle.touch(added - 1h));
      CHECK(c.idle.touch(instant::min()));
      CHECK(c.idle.touch(instant{}));
      CHECK(c.idle.last_touch() == added);
      CHECK(c.idle.touch(added + 1ms));
      CHECK(c.idle.touch(added));
      CHECK(c.idle.last_touch() == added + 1ms);
      sleep_for(1s);
      CHECK(l.seen.times() == times{11ms});
    });
  }

  TEST_CASE("a time in the future is accepted and does not delay other entries") {
    in_virtual([] {
      noted_list l(10ms);
      std::array<connection, 4> c{{{0}, {1}, {2}, {3}}};
      l.list.add(c[0].idle);
      l.list.add(c[3].idle);
      CHECK(c[0].idle.touch(now() + 1h));
      CHECK(c[3].idle.touch(now() + 1h + 1ns));
      sleep_for(20ms);  // the list has looked
      l.list.add(c[1].idle);
      sleep_for(1ns);
      l.list.add(c[2].idle);
      sleep_for(2h);
      CHECK(l.seen.ids() == ids{1, 2, 0, 3});
      CHECK(l.seen.times() == times{30ms, 30ms + 1ns, 1h + 10ms, 1h + 10ms + 1ns});
    });
  }

  TEST_CASE("one touched at the end of time never expires and disturbs no other") {
    in_virtual([] {
      noted_list l(10ms);
      connection c{7};
      connection other{1};
      l.list.add(c.idle);
      CHECK(c.idle.touch(instant::max()));
      l.list.add(other.idle);
      sleep_for(24h * 365 * 100);
      CHECK(l.seen.ids() == ids{1});
      CHECK(timeout_list::remove(c.idle));
    });
  }

  TEST_CASE("touch is false for an entry in no list, expired or removed, and changes nothing") {
    in_virtual([] {
      connection c;
      CHECK_FALSE(c.idle.is_linked());
      CHECK_FALSE(c.idle.touch());
      CHECK_FALSE(c.idle.touch(instant::max()));
      CHECK(c.idle.last_touch() == instant::min());
      int calls = 0;
      bool touched_inside = true;
      bool linked_inside = true;
      timeout_list l(10ms, [&](entry& e) {
        ++calls;
        touched_inside = e.touch();
        linked_inside = e.is_linked();
      });
      l.add(c.idle);
      CHECK(c.idle.is_linked());
      CHECK(timeout_list::remove(c.idle));
      CHECK_FALSE(c.idle.is_linked());
      CHECK_FALSE(c.idle.touch());
      sleep_for(1s);
      CHECK(calls == 0);
      l.add(c.idle);
      sleep_for(1s);
      CHECK(calls == 1);
      CHECK_FALSE(touched_inside);
      CHECK_FALSE(linked_inside);
      CHECK_FALSE(c.idle.touch());
    });
  }

  TEST_CASE("a touch at the very deadline either keeps the entry or returns false") {
    for_each_seed(40, [] {
      noted_list l(10ms);
      connection c;
      l.list.add(c.idle);
      sleep_for(10ms);  // both are due; the seed decides which comes first
      const bool kept = c.idle.touch();
      settle();
      CHECK(l.seen.all.size() == (kept ? 0 : 1));
      sleep_for(10ms);
      settle();
      CHECK(l.seen.all.size() == 1);
    });
  }

  // test-timers-linked-list
  TEST_CASE("adding an entry that is in a list moves it: within the list or from another") {
    in_virtual([] {
      noted_list a(10ms);
      noted_list b(25ms);
      connection c{1};
      connection d{2};
      a.list.add(c.idle);
      a.list.add(d.idle);
      sleep_for(5ms);
      a.list.add(c.idle);
      CHECK(a.list.size() == 2);
      b.list.add(d.idle);
      CHECK(a.list.size() == 1);
      CHECK(b.list.size() == 1);
      sleep_for(1s);
      CHECK(a.seen.ids() == ids{1});
      CHECK(a.seen.times() == times{15ms});
      CHECK(b.seen.ids() == ids{2});
      CHECK(b.seen.times() == times{30ms});
    });
  }

  TEST_CASE("removing twice is harmless, and so is removing an entry that was never added") {
    in_virtual([] {
      noted_list l(10ms);
      connection c;
      CHECK_FALSE(timeout_list::remove(c.idle));
      l.list.add(c.idle);
      CHECK(timeout_list::remove(c.idle));
      CHECK_FALSE(timeout_list::remove(c.idle));
      sleep_for(1s);
      CHECK(l.seen.all.empty());
    });
  }

  TEST_CASE("a destroyed entry leaves its list") {
    in_virtual([] {
      noted_list l(10ms);
      connection first{1};
      connection last{3};
      l.list.add(first.idle);
      {
        connection middle{2};
        l.list.add(middle.idle);
        CHECK(l.list.size() == 2);
      }
      l.list.add(last.idle);
      CHECK(l.list.size() == 2);
      sleep_for(1s);
      CHECK(l.seen.ids() == ids{1, 3});
    });
  }

  TEST_CASE("entries may be members beside others, bases, or both") {
    struct request : entry {
      int number = 0;
      entry body;
    };

    in_virtual([] {
      ids seen;
      timeout_list headers(10ms,
                           [&](entry& e) { seen.push_back(static_cast<request&>(e).number); });
      timeout_list bodies(
          20ms, [&](entry& e) { seen.push_back(-vigil::owner_of<&request::body>(e).number); });
      request r;
      r.number = 5;
      headers.add(r);
      bodies.add(r.body);
      sleep_for(1s);
      CHECK(seen == ids{5, -5});
    });
  }
}
