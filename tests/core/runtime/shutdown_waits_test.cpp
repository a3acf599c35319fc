// The end of a run with fibers in every kind of wait: each is unwound, every destructor
// runs, nothing is left.
#include "support/in_runtime.hpp"
#include "support/note.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include <doctest/doctest.h>

namespace {

using namespace std::chrono_literals;
using vigil::make_channel;
using vigil::sleep_for;

constexpr auto for_ever = 24h;
constexpr auto past_the_end = 100ms;  // main returns before
constexpr auto until_the_end = 50ms;

// Lives on the heap, so that one that is not destroyed is a leak as well.
class witness {
 public:
  explicit witness(std::atomic<int>& alive)
      : alive_(alive), on_heap_(std::make_unique<std::string>(100, 'w')) {
    alive_.fetch_add(1);
  }

  ~witness() { alive_.fetch_sub(1); }

  witness(const witness&) = delete;
  witness& operator=(const witness&) = delete;

 private:
  std::atomic<int>& alive_;
  std::unique_ptr<std::string> on_heap_;
};

// The state that the fibers of one kind share; it outlives the run.
struct shared_by_a_kind {
  vigil::channel<int> values = make_channel<int>();
  vigil::channel<int> others = make_channel<int>();
  vigil::mutex mutex;
  vigil::mutex free_mutex;
  vigil::shared_mutex shared_mutex;
  vigil::condition_variable changed;
  vigil::wait_group group;
  vigil::semaphore permits{0};
  vigil::latch latch{1};
  vigil::once once;
};

void sleep_in_noexcept(std::atomic<int>& ended) noexcept {
  const vigil::this_fiber::shield shield;
  sleep_for(past_the_end);
  ended.fetch_add(1);
}

struct waits_in_its_destructor {
  explicit waits_in_its_destructor(std::atomic<int>& n) : ended(n) {}

  ~waits_in_its_destructor() {
    const vigil::this_fiber::shield shield;
    sleep_for(past_the_end);
    ended.fetch_add(1);
  }

  std::atomic<int>& ended;
};

struct kind {
  const char* name;
  std::function<void(shared_by_a_kind&, std::atomic<int>& ended)> wait;
  bool ends = false;  // the shutdown lets its wait end, and `ended` counts it
};

const std::vector<kind>& kinds() {
  using shared = shared_by_a_kind;
  using counter = std::atomic<int>;
  static const std::vector<kind> all = {
      {"sleep", [](shared&, counter&) { sleep_for(for_ever); }},
      {"receive", [](shared& s, counter&) { s.values.recv(); }},
      {"receive with a timeout",
       [](shared& s, counter&) { static_cast<void>(s.values.recv_for(for_ever)); }},
      {"send", [](shared& s, counter&) { s.values.send(1); }},
      {"receive from a nil channel", [](shared&, counter&) { vigil::channel<int>().recv(); }},
      {"select",
       [](shared& s, counter&) {
         vigil::select(
             vigil::on_recv(s.values), vigil::on_recv(s.others), vigil::on_timeout(for_ever));
       }},
      {"select without cases", [](shared&, counter&) { vigil::select(); }},
      {"a timer's channel", [](shared&, counter&) { vigil::timer(for_ever).channel().recv(); }},
      {"join",
       [](shared&, counter&) {
         auto child = vigil::spawn([] { sleep_for(for_ever); });
         child.join();
       }},
      {"a context, in a go fiber",
       [](shared& s, counter&) {
         vigil::go([&s] { s.values.recv(vigil::background()); });
         s.values.recv(vigil::background());
       }},
      {"a mutex that a sleeper holds",
       [](shared& s, counter&) {
         const std::lock_guard lock(s.mutex);
         sleep_for(for_ever);
       }},
      {"a shared mutex that a sleeper holds",
       [](shared& s, counter&) {
         const std::lock_guard lock(s.shared_mutex);
         sleep_for(for_ever);
       }},
      {"a condition variable",
       [](shared& s, counter&) {
         std::unique_lock lock(s.free_mutex);
         s.changed.wait(lock);
       }},
      {"a wait group",
       [](shared& s, counter&) {
         s.group.add();
         s.group.wait();
       }},
      {"a semaphore", [](shared& s, counter&) { s.permits.acquire(); }},
      {"a latch", [](shared& s, counter&) { s.latch.wait(); }},
      {"a once that another runs",
       [](shared& s, counter&) { s.once.call([] { sleep_for(for_ever); }); }},
      {"a group",
       [](shared&, counter&) {
         vigil::group g;
         g.go([] { sleep_for(for_ever); });
         g.wait();
       }},
      {"in a catch block",
       [](shared&, counter&) {
         try {
           throw std::runtime_error("caught");
         } catch (const std::runtime_error&) {
           sleep_for(for_ever);
         }
       }},
      {"in a destructor during unwinding",
       [](shared&, counter& ended) {
         try {
           const waits_in_its_destructor last(ended);
           throw std::runtime_error("unwinds");
         } catch (const std::runtime_error&) {
         }
       },
       true},
      {"in a joining destructor",
       [](shared&, counter& ended) {
         const auto child = vigil::spawn([&ended] { sleep_in_noexcept(ended); });
       },
       true},
      {"in a noexcept function under a shield",
       [](shared&, counter& ended) { sleep_in_noexcept(ended); },
       true},
  };
  return all;
}

// Starts `fibers` of each kind, lets them wait, and returns from main.
struct program {
  explicit program(int of_each_kind) : fibers(of_each_kind) {}

  const int fibers;
  std::vector<std::unique_ptr<shared_by_a_kind>> shared;
  std::atomic<int> alive{0};
  std::atomic<int> begun{0};
  std::vector<std::atomic<int>> ended = std::vector<std::atomic<int>>(kinds().size());

  void run() {
    for (std::size_t k = 0; k < kinds().size(); ++k)
      shared.push_back(std::make_unique<shared_by_a_kind>());
    for (std::size_t k = 0; k < kinds().size(); ++k) {
      for (int i = 0; i < fibers; ++i) {
        vigil::go([this, k] {
          const witness here(alive);
          begun.fetch_add(1);
          kinds()[k].wait(*shared[k], ended[k]);
        });
      }
    }
    while (begun.load() < fibers * static_cast<int>(kinds().size()))
      sleep_for(1ms);
    sleep_for(until_the_end);
  }

  void check() const {
    CHECK(begun.load() == fibers * static_cast<int>(kinds().size()));
    CHECK(alive.load() == 0);
    for (std::size_t k = 0; k < kinds().size(); ++k) {
      NOTE("kind: ", kinds()[k].name);
      CHECK(ended[k].load() == (kinds()[k].ends ? fibers : 0));
    }
  }
};

TEST_SUITE("the end of a run with fibers in every kind of wait") {
  TEST_CASE("unwinds ten thousand of them, each destructor runs, on virtual time") {
    program p(vigil::testing_support::rounds(10'000) / static_cast<int>(kinds().size()));
    vigil::testing::run_virtual([&] { p.run(); });
    p.check();
  }

  TEST_CASE("unwinds them on several workers") {
    for (const std::size_t workers : {std::size_t{1}, std::size_t{2}, std::size_t{4}}) {
      NOTE("workers: ", workers);
      vigil::options o;
      o.workers = workers;
      program p(vigil::testing_support::rounds(10'000) / static_cast<int>(kinds().size()));
      vigil::run(o, [&] { p.run(); });
      p.check();
    }
  }
}

}  // namespace
