// A program whose fibers and tasks show each field of fiber_view.hpp. It prints them as
// text, as JSON, as the live page has them and as metrics, and the table itself, each
// behind a line "@@NAME"; then it calls all_shown(). fiber_view_test.py compares them
// with what gdb and lldb show there. Time is virtual, so all say the same ages.
#include "core/sched/report/fiber_view.hpp"
#include "inspect/overview.hpp"

#include <vigil/co.hpp>
#include <vigil/debug.hpp>
#include <vigil/inspect.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <string>

using namespace std::chrono_literals;

// A breakpoint stands here.
extern "C" [[gnu::noinline]] void all_shown() {
  asm volatile("" ::: "memory");
}

namespace {

vigil::task<> receives(vigil::channel<int> from) {
  co_await vigil::co::recv(from);
}

void print(const char* name, const std::string& text) {
  std::printf("@@%s\n%s\n", name, text.c_str());
}

void show_all() {
  print("fields", "");
  for (const vigil::detail::fiber_field& f : vigil::detail::fiber_fields)
    std::printf("%s %s\n", to_string(f.kind), f.key);
  print("text", "");
  vigil::inspect::dump(stdout, {.frames = false});
  print("plain", "");
  vigil::debug::dump(stdout);
  print("json", "");
  vigil::inspect::dump_json(stdout, {.frames = false});
  const vigil::detail::overview page = vigil::detail::take_overview();
  print("page", page.fibers);
  print("tasks", page.tasks);
  print("workers", page.workers);
  print("metrics", vigil::inspect::openmetrics());
  print("debugger", "");
  std::fflush(stdout);
}

void wait_in_all_ways() {
  const auto full = vigil::make_channel<int>(0, vigil::named("jobs"));
  const auto empty = vigil::make_channel<int>();
  auto sender =
      vigil::spawn({.name = "sender"}, [full] { static_cast<void>(full.send_for(1, 1h)); });
  auto nameless = vigil::spawn([full] { static_cast<void>(full.send(2)); });
  auto odd = vigil::spawn({.name = "a\tb\"c\xff\xc2\xa0"}, [] { vigil::sleep_for(2h); });
  auto pinned = vigil::spawn({.name = "pinned"}, [] {
    const vigil::this_fiber::pin here;
    vigil::sleep_for(3h);
  });
  auto shielded = vigil::spawn({.name = "shielded"}, [] {
    const vigil::this_fiber::shield on;
    vigil::sleep_for(4h);
  });
  auto late = vigil::spawn({.name = "parent"}, [] {
    auto child = vigil::spawn({.name = "child"}, [] { vigil::sleep_for(5h); });
    child.join();
  });
  auto task = vigil::spawn(receives(empty));
  vigil::sleep_for(90s);
  shielded.request_stop();
  vigil::sleep_for(2500ms);
  show_all();
  all_shown();
}

}  // namespace

int main() {
  vigil::testing::run_virtual(&wait_in_all_ways);
}
