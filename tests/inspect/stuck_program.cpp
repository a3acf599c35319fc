// A program for gdb_test.py: fibers that can never go on, beside some that may.
//
// usage: stuck_program expected   prints the names of those that vigil::inspect finds
//        stuck_program go         ends when all wait
//        stuck_program abort      leaves a core
#include <vigil/inspect.hpp>
#include <vigil/leaks.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string_view>

#include <sys/prctl.h>

namespace {

using namespace std::chrono_literals;

template <class F>
void start(const char* name, F f) {
  vigil::go({.name = name}, std::move(f));
}

// Runs f on a fiber that ends, so that nothing of it stays on main's stack.
template <class F>
void start_elsewhere(F f) {
  vigil::spawn(std::move(f)).join();
  vigil::testing::settle();
}

struct accounts {
  vigil::mutex rent;
  vigil::mutex wages;
};

void transfer(vigil::mutex& from, vigil::mutex& to) {
  const std::lock_guard first(from);
  vigil::sleep_for(1ms);
  const std::lock_guard second(to);
}

void cycle() {
  const auto both = std::make_shared<accounts>();
  start("rent", [both] { transfer(both->rent, both->wages); });
  start("wages", [both] { transfer(both->wages, both->rent); });
}

void forgotten() {
  auto answer = vigil::make_channel<int>();
  auto full = vigil::make_channel<vigil::channel<int>>(1);
  start("sender", [answer] { answer.send(1); });
  start("selecting", [answer] {
    vigil::select(vigil::on_send(answer, 2, [] {}),
                  vigil::on_recv(vigil::make_channel<int>(), [](auto&&) {}));
  });
  // A value in a channel that only a stuck fiber has.
  start("holder", [full] {
    full.send(vigil::make_channel<int>());
    full.send({});
  });
  start("joining",
        [answer] { vigil::spawn({.name = "joined"}, [answer] { answer.send(3); }).join(); });
}

void with_context() {
  start("under a context", [] {
    auto [ctx, cancel] = vigil::with_cancel(vigil::background());
    static_cast<void>(vigil::make_channel<int>().recv(ctx));
  });
}

void crowd() {
  for (int i = 0; i < 50; ++i)
    start("crowd", [] { vigil::make_channel<int>().recv(); });
}

void live(const vigil::channel<int>& held) {
  start("live", [held] { held.recv(); });
  start("due", [] { static_cast<void>(vigil::make_channel<int>().recv_for(1h)); });
  start("asleep", [] { vigil::sleep_for(1h); });
}

void wait_all(const vigil::channel<int>& held) {
  start_elsewhere(&cycle);
  start_elsewhere(&forgotten);
  start_elsewhere(&with_context);
  start_elsewhere(&crowd);
  start_elsewhere([held] { live(held); });
  vigil::sleep_for(1s);
}

}  // namespace

// A breakpoint stands here.
extern "C" [[gnu::noinline]] void all_wait(const char* what) {
  if (std::string_view(what) == "abort") std::abort();
  asm volatile("" ::: "memory");
}

int main(int, char** arguments) {
  vigil::inspect::install();
  const std::string_view what = arguments[1];
  try {
    vigil::testing::run_virtual([&] {
      const auto held = vigil::make_channel<int>();
      wait_all(held);
      if (what == "expected") {
        for (const auto& f : vigil::inspect::find_stuck_fibers().certain)
          std::puts(f.name.c_str());
      }
      all_wait(arguments[1]);
      std::fflush(stdout);
      std::_Exit(0);
    });
  } catch (const vigil::deadlock&) {
    return 1;
  }
}
