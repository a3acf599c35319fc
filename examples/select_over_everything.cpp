// Select over what is not a channel: fibers, results of a group, locks, permits. The code
// of docs/guide/channels.md.
//
// Run:    build/release/examples/select_over_everything
// Prints: what each select took.
#include "example.hpp"

#include <vigil/vigil.hpp>

#include <cstdio>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

namespace {

std::string fetch(std::string mirror, std::chrono::milliseconds time) {
  vigil::sleep_for(time);
  return "page from " + mirror;
}

void joins() {
  //! [join]
  auto near = vigil::spawn(fetch, "near", 20ms);
  auto far = vigil::spawn(fetch, "far", 70ms);
  const auto show = [](const std::string& page) { std::puts(page.c_str()); };
  vigil::select(vigil::on_join(near, show), vigil::on_join(far, show), vigil::on_timeout(1s, [] {
                  std::puts("neither in time");
                }));
  std::puts(far.join().c_str());  // it was not taken, so it can still be joined
  //! [join]
}

void calls() {
  //! [call]
  auto sum = vigil::spawn([] { return vigil::blocking([] { return 6 * 7; }); });
  vigil::select(vigil::on_join(sum, [](int n) { std::printf("the call returned %d\n", n); }),
                vigil::on_timeout(1h));
  //! [call]
}

void results() {
  //! [next]
  vigil::group_of<std::string> pages({.limit = 2});
  for (const auto time : {30ms, 10ms, 50ms})
    pages.go([time] { return fetch(std::to_string(time.count()) + " ms", time); });

  const auto ticks = vigil::after(25ms);
  for (bool over = false; !over;) {
    vigil::select(vigil::on_next(pages,
                                 [&over](std::optional<std::string> page) {
                                   over = !page;
                                   std::puts(page ? page->c_str() : "that was all");
                                 }),
                  vigil::on_recv(ticks, [] { std::puts("25 ms have passed"); }));
  }
  //! [next]
}

void locks() {
  vigil::mutex cache_lock;
  const auto quit = vigil::make_channel<void>();
  const auto holder = vigil::spawn([&] {
    const std::lock_guard own(cache_lock);
    vigil::sleep_for(1h);
  });
  vigil::sleep_for(1ms);
  const auto ends = vigil::spawn([quit] { quit.close(); });
  //! [lock]
  vigil::select(vigil::on_lock(cache_lock,
                               [](std::unique_lock<vigil::mutex> own) {
                                 std::printf("has the lock: %d\n", own.owns_lock());
                               }),
                vigil::on_recv(quit, [] { std::puts("quits, without the lock"); }));
  //! [lock]
}

void any() {
  //! [any]
  std::vector<vigil::fiber<std::string>> all;
  all.push_back(vigil::spawn(fetch, "a", 30ms));
  all.push_back(vigil::spawn(fetch, "b", 10ms));
  while (!all.empty()) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(vigil::wait_any(all));
    std::puts(first->join().c_str());
    all.erase(first);
  }
  //! [any]
}

}  // namespace

int main() {
  return example_main([] {
    joins();
    calls();
    results();
    locks();
    any();
  });
}
