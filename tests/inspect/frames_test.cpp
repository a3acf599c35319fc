#include "core/machine/sanitizer.hpp"
#include "core/sched/report/fiber_view.hpp"
#include "inspect/inspect_helpers.hpp"
#include "inspect/symbols.hpp"
#include "inspect/ten_waits.hpp"
#include "support/child.hpp"
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <boost/json/parse.hpp>

#include <pthread.h>

using namespace std::chrono_literals;
using namespace vigil::testing_support;

namespace {

// Returns the functions of ten_waits. The body of a fiber is left out: it has a frame of
// its own only where it is not inlined.
std::vector<std::string> waiting_functions(const std::vector<std::string>& functions) {
  std::vector<std::string> all;
  for (const std::string& f : functions) {
    if (f.starts_with("ten_waits::") && !f.starts_with("ten_waits::run<")) all.push_back(f);
  }
  return all;
}

}  // namespace

TEST_SUITE("frames") {
  TEST_CASE("which functions are the library's, and which of std only call another") {
    using vigil::detail::code_owner;
    const auto owner = [](const char* name, const char* file = "") {
      return vigil::detail::owner_of({.name = name, .file = file, .line = 0});
    };
    const auto is = [&](const char* name) { return owner(name) == code_owner::vigil; };
    for (const char* const call :
         {"void std::__invoke_impl<void, main::{lambda()#1}>(std::__invoke_other, "
          "main::{lambda()#1}&&)",
          "std::__invoke_result<void (*)()>::type std::__invoke<void (*)()>(void (*&&)())",
          "std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke(std::_Any_data const&)",
          "std::function<void ()>::operator()() const",
          "decltype(auto) std::apply<void (*)(int), std::tuple<int> >(void (*&&)(int))",
          "void std::__1::__invoke<main::$_0>(main::$_0&&)"}) {
      NOTE("call: ", call);
      CHECK(owner(call) == code_owner::call_of_std);
    }
    const char* const header = "/usr/include/c++/12/bits/invoke.h";
    const char* const local = "__invoke_impl<void, main()::<lambda()>::<lambda()> >";
    CHECK(owner(local, header) == code_owner::call_of_std);
    CHECK(owner("invoke", "/opt/include/vigil/detail/fiber_body.hpp") == code_owner::vigil);
    CHECK(owner("operator()", "shop/include/order.hpp") == code_owner::program);
    CHECK(owner("invoke<int>", "shop/invoke.cpp") == code_owner::program);
    CHECK(owner("operator()", "/opt/c++/shop.cpp") == code_owner::program);
    CHECK(owner("operator()", "/usr/lib/llvm-14/include/c++/v1/tuple") == code_owner::call_of_std);
    CHECK(owner("shop::order::operator std::function<void ()>() const") == code_owner::program);
    CHECK(owner("shop::order::operator vigil::channel<int>() const") == code_owner::program);
    CHECK(owner("shop::operator>(shop::order, vigil::channel<int>)") == code_owner::program);
    CHECK(owner("shop::operator->*(shop::order, vigil::channel<int>)") == code_owner::program);
    CHECK(owner("vigil::channel<int>::operator bool() const") == code_owner::vigil);
    CHECK(owner("shop::apply<int>", header) == code_owner::program);
    CHECK(owner("std::mutex::lock()") == code_owner::program);
    CHECK(owner("std::vector<int> shop::invoke<int>(int)") == code_owner::program);
    CHECK(is("vigil::detail::worker::park()"));
    CHECK(is("void vigil::sleep_for<std::chrono::hours>(std::chrono::hours const&)"));
    CHECK(is("vigil::channel<int> vigil::make_channel<int>(unsigned long)"));
    CHECK(is("vigil::detail::fiber_body<void, main::{lambda()#1}>::run(void*)"));
    CHECK(is("vigil::detail::(anonymous namespace)::park_on(vigil::detail::fiber_core&)"));
    CHECK(is("vigil::detail::sending<int>::send(int&&) const"));
    CHECK_FALSE(is("vigil::channel<int> shop::orders<int>(int)"));
    CHECK_FALSE(is("shop::take(vigil::channel<int>)"));
    CHECK_FALSE(is("(anonymous namespace)::f(vigil::mutex&)"));
    CHECK_FALSE(is("main::{lambda(vigil::context)#1}::operator()(vigil::context) const"));
    CHECK_FALSE(is("std::lock_guard<vigil::mutex>::lock_guard(vigil::mutex&)"));
    CHECK_FALSE(is("my_vigil::run()"));
    CHECK_FALSE(is("?"));
    CHECK_FALSE(is(""));
  }

  TEST_CASE("names of C stay as they are, even one that mangled is a type") {
    using vigil::detail::demangled;
    CHECK(demangled("f") == "f");
    CHECK(demangled("Pi") == "Pi");
    CHECK(demangled("main") == "main");
    CHECK(demangled("_Z1fv") == "f()");
    CHECK(demangled("_Zf") == "_Zf");
  }

  TEST_CASE("ten kinds of wait: each function on each stack, in order") {
    in_virtual([] {
      ten_waits::run([] {
        const std::string text = inspected();
        NOTE(text);
        ten_waits::for_each_kind([&]<class Wait>() {
          NOTE("Wait::name: ", Wait::name);
          const auto all = functions_below(text, Wait::name);
          CHECK(waiting_functions(all) == ten_waits::functions_of<Wait>());
          REQUIRE(!all.empty());
        });
      });
    });
  }

  TEST_CASE("after install() debug::dump and the JSON have them, too") {
    vigil::inspect::install();
    in_virtual([] {
      ten_waits::run([] {
        const std::string dumped = written([](std::FILE* f) { vigil::debug::dump(f); });
        const std::string json = written([](std::FILE* f) { vigil::inspect::dump_json(f); });
        // In the text the library's frames are folded, as are those of its own fibers.
        CHECK(count_of(json, "stack_begins") >= 10);
        CHECK(count_of(dumped, " functions of vigil") >= 10);
        CHECK_FALSE(has(dumped, "    at std::__invoke"));
        CHECK_FALSE(has(dumped, " 1 functions"));
        CHECK_FALSE(has(dumped, "    at vigil::"));
        ten_waits::for_each_kind([&]<class Wait>() {
          NOTE("Wait::name: ", Wait::name);
          const auto all = functions_below(dumped, Wait::name);
          CHECK(waiting_functions(all) == ten_waits::functions_of<Wait>());
          for (const std::string& f : ten_waits::functions_of<Wait>())
            CHECK(has(json, "\"" + f + "\""));
        });
      });
    });
  }

  TEST_CASE("fibers with the same frames are shown together, the one that waits longest first") {
    in_virtual([] {
      std::vector<vigil::fiber<void>> all;
      const auto nap = [] { vigil::sleep_for(1h); };
      for (int i = 0; i < 30; ++i) {
        all.push_back(vigil::spawn(vigil::fiber_options{.name = "nap " + std::to_string(i)}, nap));
        vigil::sleep_for(1s);
      }
      const std::string text = inspected();
      NOTE(text);
      CHECK(has(text, "... and 10 more with these frames"));
      CHECK(fiber_line(text, "nap 0") != "");
      CHECK(fiber_line(text, "nap 19") != "");
      CHECK(fiber_line(text, "nap 20") == "");
      CHECK(text.find("(nap 0)") < text.find("(nap 1)"));
      CHECK(has(text, "vigil: fibers\n  30 [parked: sleep, for at most 30.000 s] started at "));
    });
  }

  TEST_CASE("in JSON equal stacks are one entry, with the number of its fibers") {
    in_virtual([] {
      std::vector<vigil::fiber<void>> all;
      const auto nap = [] { vigil::sleep_for(1h); };
      const auto start = [&](const char* name, int count, const auto& body) {
        for (int i = 0; i < count; ++i)
          all.push_back(vigil::spawn(vigil::fiber_options{.name = name}, body));
      };
      // Taken in turns, so that no order of the fibers makes the groups.
      for (int turn = 0; turn < 3; ++turn) {
        start("equal", 2, [&nap] { down(3, nap); });
        start("deeper", 1, [&nap] { down(4, nap); });
      }
      start("alone", 1, nap);
      vigil::testing::settle();
      const std::string json = written([](std::FILE* f) { vigil::inspect::dump_json(f); });
      NOTE(json);
      const boost::json::value dump = boost::json::parse(json);
      const boost::json::array& stacks = dump.at("stacks").as_array();
      std::map<std::string, std::vector<std::int64_t>> stacks_of;  // by the fibers' name
      std::map<std::int64_t, std::int64_t> fibers_with;            // by the stack
      for (const boost::json::value& f : dump.at("fibers").as_array()) {
        const std::int64_t stack = f.at("stack").as_int64();
        stacks_of[f.at("name").as_string().c_str()].push_back(stack);
        ++fibers_with[stack];
      }
      const auto& equal = stacks_of["equal"];
      const auto& deeper = stacks_of["deeper"];
      const auto& alone = stacks_of["alone"];
      REQUIRE(equal.size() == 6);
      CHECK(std::count(equal.begin(), equal.end(), equal[0]) == 6);
      REQUIRE(deeper.size() == 3);
      CHECK(std::count(deeper.begin(), deeper.end(), deeper[0]) == 3);
      REQUIRE(alone.size() == 1);
      CHECK(fibers_with[equal[0]] == 6);
      CHECK(fibers_with[deeper[0]] == 3);
      CHECK(fibers_with[alone[0]] == 1);
      // Each entry is somebody's, and tells how many these are.
      REQUIRE(stacks.size() == fibers_with.size());
      for (const auto& [stack, fibers] : fibers_with) {
        CHECK(stacks.at(static_cast<std::size_t>(stack)).at("fibers").as_int64() == fibers);
      }
    });
  }

  TEST_CASE("a fiber that has not begun says so, and one that is ready has frames") {
    in_virtual([] {
      const auto fresh = vigil::spawn(vigil::fiber_options{.name = "fresh"}, [] {});
      CHECK(has(inspected(), "(has not begun)"));
      auto open = vigil::make_channel<int>();
      const auto woken = vigil::spawn(vigil::fiber_options{.name = "woken"},
                                      [&] { down(3, [&] { static_cast<void>(open.recv()); }); });
      vigil::testing::settle();
      open.send(1);
      const std::string text = inspected();
      NOTE(text);
      CHECK(has(fiber_line(text, "woken"), "[runnable]"));
      const auto functions = functions_below(text, "woken");
      CHECK(std::count_if(functions.begin(), functions.end(), [](const std::string& f) {
              return has(f, "::down(int");
            }) == 4);
    });
  }

  TEST_CASE("of a deep stack the innermost 128 frames are shown") {
    in_virtual([] {
      const auto deep = vigil::spawn(vigil::fiber_options{.stack_size = 1 << 20, .name = "deep"},
                                     [] { down(2000, [] { vigil::sleep_for(1h); }); });
      vigil::testing::settle();
      const std::string text = inspected();
      CHECK(count_of(text, "::down(int") > 100);
      CHECK(count_of(text, "::down(int") <= 128);
      CHECK(has(text, "(more frames above)"));
    });
  }

  TEST_CASE("another fiber on the same stack is not taken for the one before") {
    in_virtual([] {
      vigil::detail::stack where;
      auto a = vigil::spawn([&] {
        where = vigil::detail::current_fiber()->own_stack.whole;
        vigil::sleep_for(1s);
      });
      vigil::testing::settle();
      const vigil::detail::slab_hold hold;
      vigil::detail::fiber_view s;
      REQUIRE(vigil::detail::take_view(where, s));
      CHECK(vigil::detail::is_unmoved(where, s));
      a.join();
      vigil::detail::stack next;
      const auto b = vigil::spawn([&] {
        next = vigil::detail::current_fiber()->own_stack.whole;
        vigil::sleep_for(1s);
      });
      vigil::testing::settle();
      REQUIRE(next.bottom == where.bottom);
      CHECK_FALSE(vigil::detail::is_unmoved(where, s));
    });
  }

  TEST_CASE("a fiber that has ended, and is kept by its handle, says so") {
    in_virtual([] {
      const auto f = vigil::spawn(vigil::fiber_options{.name = "over"}, [] {});
      vigil::testing::settle();
      const std::string text = inspected();
      CHECK(has(fiber_line(text, "over"), "[ended]"));
      CHECK(has(text, "(has ended)"));
    });
  }

  TEST_CASE("without frames the fibers are listed alone, each of them") {
    in_virtual([] {
      std::vector<vigil::fiber<void>> many;
      for (int i = 0; i < 40; ++i)
        many.push_back(vigil::spawn([] { vigil::sleep_for(1h); }));
      const auto nap =
          vigil::spawn(vigil::fiber_options{.name = "nap"}, [] { vigil::sleep_for(1h); });
      vigil::testing::settle();
      const std::string text = inspected({.frames = false, .addresses = false});
      CHECK(has(fiber_line(text, "nap"), "parked: sleep"));
      CHECK_FALSE(has(text, "    "));
      CHECK(count_of(text, "\nfiber ") == 44);  // with main, the timer fiber and a runner
      CHECK(has(text, "\n  40 [parked: sleep"));
    });
  }
}

// --- beside a load

namespace {

// Two ways down to a wait; a stack must be all of one.
[[gnu::noinline]] void left(int depth);
[[gnu::noinline]] void right(int depth);

void left(int depth) {
  if (depth == 0) {
    vigil::this_fiber::yield();
  } else {
    left(depth - 1);
  }
  asm volatile("" ::: "memory");
}

void right(int depth) {
  if (depth == 0) {
    vigil::sleep_for(10us);
  } else {
    right(depth - 1);
  }
  asm volatile("" ::: "memory");
}

}  // namespace

TEST_SUITE("frames") {
  TEST_CASE("dumps beside a load never mix two moments of a stack") {
    vigil::inspect::install();
    in_runtime({}, [] {
      std::atomic<bool> stop{false};
      std::vector<vigil::fiber<void>> all;
      for (int i = 0; i < 20; ++i) {
        all.push_back(vigil::spawn(vigil::fiber_options{.name = "mover"}, [&stop] {
          while (!stop.load()) {
            left(7);
            right(5);
          }
        }));
      }
      std::size_t whole = 0;
      const auto look = [&](int) {
        const std::string text = vigil::blocking([] { return inspected(); });
        // Each group of fibers with one stack.
        std::vector<std::string> stack;
        const auto check = [&] {
          const auto in = [&](const char* name) {
            return std::count_if(
                stack.begin(), stack.end(), [&](const std::string& f) { return has(f, name); });
          };
          const auto lefts = in("::left(int");
          const auto rights = in("::right(int");
          CHECK((lefts == 0 || rights == 0));
          if (lefts == 8 || rights == 6) ++whole;
          stack.clear();
        };
        for (const std::string& line : lines_of(text)) {
          if (line.starts_with("fiber ")) check();
          if (line.starts_with("    at ")) stack.push_back(line);
        }
        check();
        vigil::sleep_for(1ms);
      };
      repeat(60, look);  // the load leaves little time to each
      for (int i = 0; whole == 0 && i < 60; ++i)
        look(i);
      stop.store(true);
      CHECK(whole > 0);
      for (auto& f : all)
        f.join();
    });
  }

  TEST_CASE("child: an exception that nobody catches" * doctest::skip()) {
    vigil::inspect::install();
    vigil::run([] {
      vigil::go([] { down(3, [] { throw std::runtime_error("as planned"); }); });
      vigil::sleep_for(1h);
    });
  }

  TEST_CASE("an exception that nobody catches shows where it was thrown") {
    const child_result r = run_child("child: an exception that nobody catches");
    NOTE(r.output);
    CHECK(r.died_by(SIGABRT));
    CHECK(r.says("as planned"));
    CHECK(count_of(r.output, "::down(int") == 4);
  }

  TEST_CASE("child: SIGQUIT" * doctest::skip()) {
    vigil::inspect::install();
    vigil::options one;
    one.workers = 1;
    vigil::run(one, [] {
      vigil::go([] { down(3, [] { vigil::sleep_for(1h); }); });
      vigil::this_fiber::yield();
      std::raise(SIGQUIT);
    });
  }

  TEST_CASE("SIGQUIT writes addresses, and says what it leaves out") {
    const child_result r = run_child("child: SIGQUIT");
    NOTE(r.output);
    CHECK(r.succeeded());
    CHECK(r.says("    at ? ("));
    CHECK(r.says("+0x"));
    CHECK(r.says("vigil: written where no lock may be taken"));
  }

  TEST_CASE("child: SIGQUIT on a small stack" * doctest::skip()) {
    // As crash handlers install one. The half below it is ours as well, and stays zero.
    constexpr std::size_t small = 16 << 10;
    static std::byte both[2 * small];
    stack_t alternate = {};
    alternate.ss_sp = both + small;
    alternate.ss_size = small;
    REQUIRE(::sigaltstack(&alternate, nullptr) == 0);
    vigil::inspect::install();
    vigil::testing::run_virtual([] {
      vigil::mutex m;
      const std::lock_guard holds(m);
      vigil::go([&] { m.lock(); });
      vigil::this_fiber::yield();
      std::raise(SIGQUIT);
      const auto is_zero = [](std::byte b) { return b == std::byte{0}; };
      if (std::all_of(both, both + small, is_zero)) std::puts("nothing below was written");
      std::fflush(stdout);
      std::_Exit(0);  // the fiber is in the way of an end
    });
  }

  TEST_CASE("SIGQUIT on a small alternate stack leaves frames out, and stays on it") {
    const child_result r = run_child("child: SIGQUIT on a small stack");
    NOTE(r.output);
    CHECK(r.says("the stack of the signal's handler is too small"));
    CHECK(r.says("nothing below was written"));
  }

  TEST_CASE("child: a deadlock" * doctest::skip()) {
    vigil::inspect::install();
    vigil::mutex a;
    vigil::mutex b;
    const auto lock_both = [](vigil::mutex& first, vigil::mutex& second) {
      const std::lock_guard one(first);
      vigil::sleep_for(1ms);
      const std::lock_guard two(second);
    };
    // On virtual time both have their first lock before one asks for the second.
    CHECK_THROWS_AS(
        vigil::testing::run_virtual([&] {
          auto f = vigil::spawn(vigil::fiber_options{.name = "ab"}, [&] { lock_both(a, b); });
          auto g = vigil::spawn(vigil::fiber_options{.name = "ba"}, [&] { lock_both(b, a); });
          f.join();
        }),
        vigil::deadlock);
  }

  TEST_CASE("the report of a deadlock names who holds which lock, and where") {
    const child_result r = run_child("child: a deadlock");
    NOTE(r.output);
    CHECK(has(fiber_line(r.output, "ab"), "held by fiber"));
    CHECK(has(fiber_line(r.output, "ab"), "(ba)"));
    CHECK(has(fiber_line(r.output, "ba"), "(ab)"));
    CHECK(r.says("frames_test.cpp"));
  }
}
