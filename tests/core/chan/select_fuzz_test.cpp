// Every mix of cases that a select can meet, in the manner of the TestSelect of Go's
// reflect package: the case taken must be one that could be taken, with the right value,
// and everything else must be unchanged.
//
// VIGIL_LONG=1 tries ten times as many.
#include "core/chan/chan_test.hpp"

#include <vigil/timer.hpp>

#include <algorithm>
#include <functional>
#include <optional>
#include <string_view>
#include <type_traits>

using namespace vigil::testing_support;

namespace {

// Enumerates all sequences of choices. The first value of each choice is drawn, so a run
// that is cut short has seen a sample of everything.
class exhaustive {
 public:
  explicit exhaustive(std::uint64_t seed) : dice_(seed) {}

  // Called before each sequence; returns false when none is left.
  bool next() {
    at_ = 0;
    if (!started_) {
      started_ = true;
      return true;
    }
    while (!made_.empty()) {
      choice& last = made_.back();
      if (last.n + 1 < last.of) {
        ++last.n;
        return true;
      }
      made_.pop_back();
    }
    return false;
  }

  // Returns a number below `of`.
  std::size_t choose(std::size_t of) {
    if (at_ == made_.size()) made_.push_back({dice_.below(static_cast<std::uint32_t>(of)), 0, of});
    const choice& c = made_[at_++];
    REQUIRE(c.of == of);
    return (c.first + c.n) % of;
  }

  bool maybe() { return choose(2) == 1; }

 private:
  struct choice {
    std::size_t first;
    std::size_t n;
    std::size_t of;
  };

  seeded dice_;
  std::vector<choice> made_;
  std::size_t at_ = 0;
  bool started_ = false;
};

// The observed effects of a fuzzed select.
struct report {
  std::vector<std::string_view> called;  // the functions called, by the name of their case
  std::string got;                       // the value that the function of a receive got
};

// One case, and everything known about it.
struct candidate {
  std::string_view name;
  bool can_be_taken = false;
  bool throws = false;
  std::string brings;                      // handed over by a receive: "nothing" if closed
  std::function<void()> helper = nullptr;  // makes it ready
  std::function<void(vigil::case_list&, report&)> add;
  std::function<void(bool taken)> check = [](bool) {};
};

template <class T>
T value_of(int n) {
  if constexpr (std::is_same_v<T, int>) {
    return n;
  } else if constexpr (std::is_same_v<T, std::string>) {
    return std::to_string(n);
  } else {
    return std::make_unique<int>(n);
  }
}

template <class T>
std::string text_of(const T& v) {
  if constexpr (std::is_same_v<T, int>) {
    return std::to_string(v);
  } else if constexpr (std::is_same_v<T, std::string>) {
    return v;
  } else {
    return v == nullptr ? "moved" : std::to_string(*v);
  }
}

template <class T>
bool is_untouched(const T& v, int n) {
  return text_of(v) == std::to_string(n);
}

enum class readiness { ready, later, never, closed, nil };

template <class T>
candidate a_send(readiness how, int n) {
  struct state {
    channel<T> ch;
    T value;
    std::string received = "";
  };

  auto s = std::make_shared<state>(state{{}, value_of<T>(n)});
  if (how != readiness::nil) s->ch = make_channel<T>(how == readiness::ready ? 1 : 0);
  if (how == readiness::closed) s->ch.close();
  candidate c;
  c.name = how == readiness::ready    ? "ready send"
           : how == readiness::later  ? "send to one who comes later"
           : how == readiness::never  ? "send to nobody"
           : how == readiness::closed ? "send to a closed channel"
                                      : "send to a nil channel";
  c.can_be_taken = how == readiness::ready || how == readiness::closed;
  c.throws = how == readiness::closed;
  c.add = [s, name = c.name](vigil::case_list& list, report& r) {
    list.add(vigil::on_send(s->ch, std::ref(s->value), [&r, name] { r.called.push_back(name); }));
  };
  if (how == readiness::later) {
    c.helper = [s] {
      if (auto v = s->ch.recv()) s->received = text_of(*v);
    };
  }
  c.check = [s, n, how](bool taken) {
    if (how == readiness::ready) {
      REQUIRE(s->ch.size() == (taken ? 1 : 0));
      if (taken) REQUIRE(text_of(*s->ch.recv()) == std::to_string(n));
    }
    // The value has been moved exactly if the case was taken (a copyable one may have
    // been left unchanged).
    if (!taken || how == readiness::closed) {
      REQUIRE(is_untouched(s->value, n));
    } else if constexpr (std::is_same_v<T, std::unique_ptr<int>>) {
      REQUIRE(s->value == nullptr);
    }
    if (how == readiness::later && taken) REQUIRE(s->received == std::to_string(n));
    if (how == readiness::never || how == readiness::later) check_nobody_waits(s->ch);
  };
  return c;
}

template <class T>
candidate a_receive(readiness how, int n) {
  struct state {
    channel<T> ch;
    bool sent = false;
  };

  auto s = std::make_shared<state>();
  if (how != readiness::nil) s->ch = make_channel<T>(how == readiness::ready ? 1 : 0);
  if (how == readiness::closed) s->ch.close();
  if (how == readiness::ready) s->ch.send(value_of<T>(n));
  candidate c;
  c.name = how == readiness::ready    ? "ready receive"
           : how == readiness::later  ? "receive from one who comes later"
           : how == readiness::never  ? "receive from nobody"
           : how == readiness::closed ? "receive from a closed channel"
                                      : "receive from a nil channel";
  c.can_be_taken = how == readiness::ready || how == readiness::closed;
  c.brings = how == readiness::closed ? "nothing" : std::to_string(n);
  c.add = [s, name = c.name](vigil::case_list& list, report& r) {
    list.add(vigil::on_recv(s->ch, [&r, name](std::optional<T> v) {
      r.called.push_back(name);
      r.got = v ? text_of(*v) : "nothing";
    }));
  };
  if (how == readiness::later) {
    c.helper = [s, n] {
      s->ch.send(value_of<T>(n));
      s->sent = true;
    };
  }
  c.check = [s, n, how](bool taken) {
    if (how == readiness::ready) {
      REQUIRE(s->ch.size() == (taken ? 0 : 1));
      if (!taken) REQUIRE(text_of(*s->ch.recv()) == std::to_string(n));
    }
    if (how == readiness::later) REQUIRE(s->sent == taken);
    if (how == readiness::never || how == readiness::later) check_nobody_waits(s->ch);
  };
  return c;
}

// The element types take turns.
candidate make(bool sends, readiness how, int n) {
  switch (n % 3) {
    case 0:
      return sends ? a_send<int>(how, n) : a_receive<int>(how, n);
    case 1:
      return sends ? a_send<std::string>(how, n) : a_receive<std::string>(how, n);
    default:
      return sends ? a_send<std::unique_ptr<int>>(how, n) : a_receive<std::unique_ptr<int>>(how, n);
  }
}

constexpr auto helper_comes_after = 10us;

candidate a_timeout(std::string_view name, std::chrono::nanoseconds d, bool can_be_taken) {
  candidate c;
  c.name = name;
  c.can_be_taken = can_be_taken;
  c.add = [name, d](vigil::case_list& list, report& r) {
    list.add(vigil::on_timeout(d, [&r, name] { r.called.push_back(name); }));
  };
  return c;
}

candidate an_otherwise(bool can_be_taken) {
  candidate c;
  c.name = "otherwise";
  c.can_be_taken = can_be_taken;
  c.add = [](vigil::case_list& list, report& r) {
    list.add(vigil::otherwise([&r] { r.called.push_back("otherwise"); }));
  };
  return c;
}

// Starts the helper: on the fiber's runtime, or on a plain thread.
using start_helper = std::function<void(std::function<void()>)>;

// One mix. Virtual time makes the deadlines exact.
void try_one(exhaustive& x, int& n, bool is_virtual, const start_helper& start) {
  std::vector<candidate> cases;
  for (const bool sends : {true, false}) {
    for (const readiness how :
         {readiness::ready, readiness::never, readiness::closed, readiness::nil}) {
      if (!x.maybe()) continue;
      const bool later = how == readiness::never && x.maybe();
      cases.push_back(make(sends, later ? readiness::later : how, n++));
    }
  }
  std::vector<std::size_t> helped;
  bool ready_now = false;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    ready_now = ready_now || cases[i].can_be_taken;
    if (cases[i].helper) helped.push_back(i);
  }
  // The part that keeps it from waiting for ever: otherwise, a timeout, the helper.
  std::function<void()> helper;
  bool helper_is_too_late = false;
  const std::size_t ways = is_virtual ? 4 : 2;
  const std::size_t way = helped.empty() ? 1 + x.choose(ways - 1) : x.choose(ways);
  switch (way) {
    case 0:
      if (!ready_now) {
        candidate& one = cases[helped[x.choose(helped.size())]];
        one.can_be_taken = true;
        helper = one.helper;
        if (x.maybe()) cases.push_back(a_timeout("a later timeout", 1h, false));
      }
      break;
    case 1:
      cases.push_back(an_otherwise(!ready_now));
      break;
    case 2:
      cases.push_back(a_timeout("a timeout", 5us, !ready_now));
      if (x.maybe()) cases.push_back(a_timeout("a later timeout", 7us, false));
      if (!ready_now && !helped.empty() && x.maybe()) {
        helper = cases[helped[0]].helper;
        helper_is_too_late = true;
      }
      break;
    default:
      cases.push_back(a_timeout("a timeout of zero", 0ns, !ready_now));
  }
  if (cases.empty()) return;
  for (int swap = 0; swap < 2; ++swap) {
    const std::size_t i = x.choose(cases.size());
    std::swap(cases[i], cases[x.choose(cases.size())]);
  }
  const bool ordered = x.maybe();

  report r;
  vigil::case_list list;
  for (const candidate& c : cases)
    c.add(list, r);
  if (helper && !helper_is_too_late) start(helper);
  std::vector<vigil::fiber<>> too_late;
  if (helper_is_too_late) {
    too_late.push_back(vigil::spawn([&] {
      vigil::sleep_for(helper_comes_after);
      helper();
    }));
  }
  bool thrown = false;
  std::size_t taken = cases.size();
  try {
    taken = ordered ? vigil::select_ordered(list) : vigil::select(list);
  } catch (const vigil::channel_closed&) {
    thrown = true;
    REQUIRE(r.called.empty());
    taken = static_cast<std::size_t>(
        std::find_if(cases.begin(), cases.end(), [](const candidate& c) { return c.throws; }) -
        cases.begin());
  }
  if (helper_is_too_late) {
    // Latecomers find nobody.
    vigil::sleep_for(2 * helper_comes_after);
    REQUIRE_FALSE(too_late[0].join_for(0s));
    too_late[0].request_stop();
    REQUIRE_THROWS_AS(too_late[0].join(), vigil::cancelled);
  }

  REQUIRE(taken < cases.size());
  const candidate& one = cases[taken];
  REQUIRE(one.can_be_taken);
  REQUIRE(one.throws == thrown);
  if (!thrown) {
    REQUIRE(r.called.size() == 1);
    REQUIRE(r.called[0] == one.name);
  }
  REQUIRE(r.got == one.brings);
  if (ordered) {
    for (std::size_t i = 0; i < taken; ++i) {
      const bool waits = cases[i].name == "otherwise" || cases[i].name.find("timeout") == 2;
      REQUIRE((waits || !cases[i].can_be_taken));
    }
  }
  if (helper && !helper_is_too_late) start(nullptr);  // it has ended
  for (std::size_t i = 0; i < cases.size(); ++i)
    cases[i].check(i == taken);
}

}  // namespace

TEST_SUITE("select: every mix") {
  // Go: reflect TestSelect.
  TEST_CASE("takes a case that could be taken and leaves everything else as it was") {
    for_each_seed(4, [](std::uint64_t seed) {
      exhaustive x(seed);
      int n = 0;
      vigil::fiber<> helping;
      const start_helper start = [&](std::function<void()> f) {
        if (!f) {
          helping.join();
          return;
        }
        helping = vigil::spawn([f = std::move(f)] {
          vigil::sleep_for(helper_comes_after);
          f();
        });
      };
      for (int i = 0; i < many(8000) && x.next(); ++i)
        try_one(x, n, true, start);
      CHECK(vigil::stats().timers_pending == 0);
    });
  }

  // Go: reflect TestSelect.
  TEST_CASE("on real workers, helped by fibers") {
    in_runtime({.workers = {1, 2}}, [] {
      exhaustive x(11);
      int n = 0;
      vigil::fiber<> helping;
      const start_helper start = [&](std::function<void()> f) {
        if (!f) {
          helping.join();
          return;
        }
        helping = vigil::spawn(std::move(f));
      };
      for (int i = 0; i < many(10'000) && x.next(); ++i)
        try_one(x, n, false, start);
    });
  }

  // Go: reflect TestSelect.
  TEST_CASE("on a plain thread, helped by the fibers of a runtime") {
    vigil::options o;
    o.workers = 1;
    o.deadlock = vigil::on_deadlock::warn;
    const auto jobs = make_channel<std::function<void()>>();
    const auto finished = make_channel<void>();
    std::thread fibers([&] {
      vigil::run(o, [&] {
        for (const auto& job : jobs) {
          job();
          finished.send();
        }
      });
    });
    exhaustive x(12);
    int n = 0;
    const start_helper start = [&](std::function<void()> f) {
      f ? jobs.send(std::move(f)) : static_cast<void>(finished.recv());
    };
    for (int i = 0; i < many(10'000) && x.next(); ++i)
      try_one(x, n, false, start);
    jobs.close();
    fibers.join();
  }

  // Go: reflect TestSelectNop.
  TEST_CASE("only otherwise is taken at once") {
    in_virtual([] {
      vigil::case_list list;
      list.add(vigil::otherwise());
      CHECK(vigil::select(list) == 0);
      CHECK(vigil::select(vigil::otherwise()) == 0);
      CHECK(vigil::select_ordered(vigil::otherwise()) == 0);
    });
  }
}
