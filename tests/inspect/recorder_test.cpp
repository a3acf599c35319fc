// The flight recorder: its events on virtual time, one by one.
#include "inspect/recorder_test.hpp"

#include "inspect/inspect_helpers.hpp"
#include "support/note.hpp"

using namespace vigil::testing_support;

namespace {

// The words of fibers by their names, of events by their kinds, with the milliseconds.
class written_events {
 public:
  written_events(const recording& of, vigil::clock::time_point start)
      : of_(of), start_(start.time_since_epoch().count()) {}

  std::vector<std::string> all() {
    std::vector<std::string> lines;
    for (const recorded_event& e : of_.events) {
      const std::string text = words(e);
      if (text.empty()) continue;
      lines.push_back(std::to_string((e.time - start_) / 1'000'000) + " " + text);
    }
    return lines;
  }

 private:
  std::string fiber(std::uint64_t id) const {
    const auto at = of_.fibers.find(id);
    if (at == of_.fibers.end()) return "?";
    return at->second.name.empty() ? "callbacks" : at->second.name;
  }

  static std::string left(const recorded_event& e) {
    static const char* const how[] = {"", "park", "yield", "end"};
    const std::string text = how[e.detail >> 8];
    if (text != "park") return text;
    return text + " " + to_string(static_cast<vigil::detail::wait_reason>(e.detail & 0xff));
  }

  std::string words(const recorded_event& e) const {
    switch (e.kind) {
      case event_kind::run:
        return "run " + fiber(e.value) + (e.detail != 0 ? ", after " + left(e) : "");
      case event_kind::leave:
        return "leave " + fiber(e.value) + ", " + left(e);
      case event_kind::ready:
        return "ready " + fiber(e.value);
      case event_kind::start:
        return "start " + fiber(e.value);
      case event_kind::timer_armed:
        return "arm";
      case event_kind::timer_stopped:
        return "stop";
      case event_kind::timer_fired:
        return "fire, late by " + std::to_string(e.value);
      case event_kind::timer_due:
        return "due, late by " + std::to_string(e.value);
      case event_kind::region_begins:
        return "begin " + of_.regions.at(e.value);
      case event_kind::region_ends:
        return "end";
      case event_kind::deadline_missed:
        return "deadline missed";
      default:
        return "";
    }
  }

  const recording& of_;
  const vigil::detail::nanos start_;
};

// Whether the lines are there in this order, others in between.
void check_order(const std::vector<std::string>& lines, const std::vector<std::string>& expected) {
  std::string all;
  for (const std::string& l : lines)
    all += l + "\n";
  NOTE(all);
  std::size_t at = 0;
  for (const std::string& e : expected) {
    NOTE("expected: ", e);
    while (at < lines.size() && lines[at] != e)
      ++at;
    REQUIRE(at < lines.size());
    ++at;
  }
}

vigil::fiber_options named(const char* name) {
  vigil::fiber_options o;
  o.name = name;
  return o;
}

// The variable has another value while this lives.
class changed_environment {
 public:
  changed_environment(const char* name, const char* value) : name_(name) {
    ::setenv(name, value, 1);
  }

  ~changed_environment() { ::unsetenv(name_); }

  changed_environment(const changed_environment&) = delete;
  changed_environment& operator=(const changed_environment&) = delete;

 private:
  const char* name_;
};

constexpr std::size_t enough = 16 * 1024;

// On virtual time, with a recorder.
template <class F>
void recorded(F body, std::size_t events = enough, std::uint64_t seed = 0) {
  vigil::testing::virtual_options o;
  o.seed = seed;
  o.runtime.recorder_events = events;
  in_virtual(o, body);
}

}  // namespace

TEST_SUITE("recorder") {
  TEST_CASE("virtual time: each event of a program, in order") {
    recorded([] {
      const auto start = vigil::clock::now();
      auto ch = vigil::make_channel<int>();
      auto sender = vigil::spawn(named("sender"), [&] {
        vigil::sleep_for(5ms);
        ch.send(1);
      });
      auto receiver = vigil::spawn(named("receiver"), [&] { static_cast<void>(ch.recv()); });
      receiver.join();
      sender.join();
      const recording r = own_recording();
      CHECK(r.is_virtual);
      check_order(written_events(r, start).all(),
                  {
                      "0 start sender",
                      "0 ready sender",
                      "0 start receiver",
                      "0 ready receiver",
                  });
      check_order(written_events(r, start).all(),
                  {
                      "0 run sender",
                      "0 arm",
                      "0 leave sender, park sleep",
                      "5 run timer fiber",
                      "5 fire, late by 0",
                      "5 ready sender",
                      "5 leave timer fiber, park timers: none pending",
                      "5 run sender",
                      "5 ready receiver",
                      "5 leave sender, end",
                  });
      check_order(written_events(r, start).all(),
                  {
                      "0 run receiver",
                      "0 leave receiver, park channel receive",
                      "5 ready receiver",
                      "5 run receiver",
                      "5 leave receiver, end",
                  });
    });
  }

  TEST_CASE("the same seed gives the same recording") {
    const auto lines_under = [](std::uint64_t seed) {
      std::vector<std::string> lines;
      const auto body = [&] {
        const auto start = vigil::clock::now();
        std::vector<vigil::fiber<>> all;
        for (int i = 0; i < 5; ++i) {
          all.push_back(vigil::spawn(named(("f" + std::to_string(i)).c_str()), [] {
            for (int k = 0; k < 3; ++k) {
              vigil::sleep_for(1ms);
              vigil::this_fiber::yield();
            }
          }));
        }
        for (auto& f : all)
          f.join();
        lines = written_events(own_recording(), start).all();
      };
      recorded(body, enough, seed);
      return lines;
    };
    const auto once = lines_under(7);
    CHECK(once.size() > 50);
    CHECK(lines_under(7) == once);
    CHECK(lines_under(8) != once);
  }

  TEST_CASE("regions, callbacks and missed deadlines") {
    recorded([] {
      const auto start = vigil::clock::now();
      {
        const vigil::trace::region outer("outer");
        vigil::sleep_for(1ms);
        const vigil::trace::region inner("inner");
      }
      auto t = vigil::after_func(1ms, [] {});
      vigil::sleep_for(2ms);
      auto [ctx, cancel] = vigil::with_timeout(vigil::background(), 3ms);
      static_cast<void>(ctx.done().recv());
      const recording r = own_recording();
      check_order(written_events(r, start).all(),
                  {
                      "0 begin outer",
                      "0 leave main, park sleep",
                      "1 run main",
                      "1 begin inner",
                      "1 end",
                      "1 end",
                      "2 due, late by 0",
                      "2 run callbacks",
                      "6 due, late by 0",
                      "6 deadline missed",
                      "6 ready main",
                  });
      // A callback's run has the place where its timer was made.
      bool found = false;
      for (const recorded_event& e : r.events) {
        found = found || (e.kind == event_kind::run && e.place != 0 &&
                          has(r.places[e.place - 1].file, "recorder_test.cpp"));
      }
      CHECK(found);
    });
  }

  TEST_CASE("500 days later, and with timers that never fire, times and counts are right") {
    recorded([] {
      const auto start = vigil::clock::now();
      auto ch = vigil::make_channel<int>(1);
      for (int i = 0; i < 100; ++i) {
        ch.send(i);
        vigil::select(vigil::on_recv(ch, [](auto&&) {}),
                      vigil::on_recv(vigil::after(1h), [](auto&&) {}));
      }
      vigil::sleep_for(24h * 500);
      auto [late, cancel] = vigil::with_timeout(vigil::background(), 0s);
      const recording r = own_recording();
      std::int64_t pending = 0;
      bool missed = false;
      for (const recorded_event& e : r.events) {
        pending += e.kind == event_kind::timer_armed ? 1 : 0;
        pending -= e.kind == event_kind::timer_stopped || e.kind == event_kind::timer_fired ? 1 : 0;
        missed = missed || e.kind == event_kind::deadline_missed;
      }
      CHECK(pending == static_cast<std::int64_t>(r.pending));
      CHECK(missed);
      CHECK(r.events.front().time <= start.time_since_epoch().count());
      CHECK(r.events.back().time == vigil::clock::now().time_since_epoch().count());
    });
  }

  TEST_CASE("the ring keeps the last events, and `last` fewer of them") {
    recorded(
        [] {
          const auto start = vigil::clock::now();
          for (int i = 0; i < 1'000; ++i)
            vigil::sleep_for(1ms);
          recording r = own_recording();
          // The run began on the thread before there was a worker.
          std::erase_if(r.events,
                        [](const recorded_event& e) { return e.log == recording::outside; });
          CHECK(r.events.size() <= 127);
          CHECK(r.events.size() > 100);
          CHECK(r.events.back().time == vigil::clock::now().time_since_epoch().count());
          CHECK(r.events.front().time > (start + 900ms).time_since_epoch().count());
          const recording few = own_recording(10ms);
          CHECK(few.events.size() < r.events.size());
          CHECK(few.events.front().time >= (start + 990ms).time_since_epoch().count());
        },
        100);
  }

  TEST_CASE("with 0 events nothing is recorded") {
    const auto nothing = [] {
      const vigil::trace::region region("nothing");
      vigil::sleep_for(1ms);
      CHECK(own_recording().runtime == 0);
    };
    recorded(nothing, 0);
    in_virtual(nothing);
    {
      const changed_environment name("VIGIL_RECORDER_EVENTS", "512");
      in_virtual([] { CHECK(own_recording().runtime != 0); });
      recorded(nothing, 0);
    }
    for (const char* const bad : {"", "-1", "12x", "67108865", "99999999999999999999"}) {
      const changed_environment name("VIGIL_RECORDER_EVENTS", bad);
      CHECK_THROWS_AS(vigil::runtime{}, std::invalid_argument);
    }
    vigil::options too_many;
    too_many.recorder_events = (std::size_t{1} << 26) + 1;
    CHECK_THROWS_AS(vigil::runtime{too_many}, std::invalid_argument);
  }

  TEST_CASE("copied while all workers write, each fiber's runs are in order") {
    vigil::options o;
    o.workers = 2;
    o.recorder_events = 256;
    vigil::run(o, [] {
      std::atomic<bool> over{false};
      std::thread reader([&] {
        for (int i = 0; i < rounds(100); ++i) {
          for (const recording& r : vigil::detail::collect_recordings(vigil::detail::never)) {
            vigil::detail::nanos last = 0;
            bool ordered = true;
            for (const recorded_event& e : r.events) {
              ordered = ordered && e.time >= last && e.kind != event_kind::none;
              last = e.time;
            }
            CHECK(ordered);
          }
        }
        over.store(true);
      });
      auto ch = vigil::make_channel<int>(1);
      auto echo = vigil::spawn([&] {
        while (auto v = ch.recv())
          vigil::this_fiber::yield();
      });
      while (!over.load())
        ch.send(1);
      ch.close();
      echo.join();
      reader.join();
    });
  }
}
