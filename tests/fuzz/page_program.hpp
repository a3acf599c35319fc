// The program that a live page shows, for the target live_page: a runtime that records,
// and whose fibers wait for ever after their first turns.
#pragma once

#include "fuzz/input.hpp"
#include "inspect/overview.hpp"
#include "inspect_page/held_walk.hpp"

#include <vigil/vigil.hpp>

#include <cstddef>
#include <future>
#include <string>
#include <string_view>
#include <thread>

namespace fuzz {

class shown_program {
 public:
  explicit shown_program(int turns)
      : thread_([this, turns] {
          try {
            runtime_.run([&] { wait_after(turns); });
          } catch (const vigil::stopped&) {
          }
        }) {
    walk_ = waiting_.get_future().get();
  }

  ~shown_program() {
    runtime_.request_stop();
    thread_.join();
  }

  shown_program(const shown_program&) = delete;
  shown_program& operator=(const shown_program&) = delete;

  // Keeps the looks at it.
  vigil::testing_support::held_walk& walk() const { return *walk_; }

  // The first group of its fibers, as the page names it.
  static std::string group() {
    constexpr std::string_view name = "\"key\":\"";
    const std::string all = vigil::detail::take_overview().fibers;
    const std::size_t at = all.find(name);
    expect(at != all.npos, "fibers are in groups");
    const std::size_t begin = at + name.size();
    return all.substr(begin, all.find('"', begin) - begin);
  }

 private:
  static vigil::options options() {
    vigil::options o;
    o.workers = 1;
    o.recorder_events = 1 << 13;
    o.dump_on_sigquit = false;
    return o;
  }

  void wait_after(int turns) {
    const auto never = vigil::make_channel<int>();
    for (int i = 0; i < 3; ++i)
      vigil::go([never] { static_cast<void>(never.recv()); });
    auto other = vigil::spawn([turns] { take(turns); });
    take(turns);
    other.join();
    const vigil::work_guard outside = runtime_.make_work_guard();
    waiting_.set_value(&vigil::testing_support::walk_of_this_runtime());
    static_cast<void>(never.recv());
  }

  static void take(int turns) {
    for (int i = 0; i < turns; ++i)
      vigil::this_fiber::yield();
  }

  vigil::runtime runtime_{options()};
  std::promise<vigil::testing_support::held_walk*> waiting_;
  vigil::testing_support::held_walk* walk_ = nullptr;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace fuzz
