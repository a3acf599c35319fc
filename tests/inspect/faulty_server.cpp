// A server with five faults; a flag plants one. faulty_server_test.py goes from the
// symptom of each to its line, by the steps of docs/guide/debugging.md.
//
// usage: faulty_server [--fault=NAME] [--page=SOCKET]
//        NAME is unread, lock-across-wait, lock-cycle, empty-pool or late-timer
//
// A shop, whose customers are fibers of the same process. It runs until SIGTERM, and says
// "ready" and why as soon as it has the symptom, or has answered 1000 requests.
#include <vigil/inspect.hpp>
#ifdef FAULTY_SERVER_HAS_PAGE
#include <vigil/inspect_page.hpp>
#endif
#include <vigil/vigil.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <sys/prctl.h>

using namespace std::chrono_literals;

namespace {

enum class fault { none, unread, lock_across_wait, lock_cycle, empty_pool, late_timer };

constexpr std::array<std::pair<std::string_view, fault>, 5> names_of_faults{{
    {"unread", fault::unread},
    {"lock-across-wait", fault::lock_across_wait},
    {"lock-cycle", fault::lock_cycle},
    {"empty-pool", fault::empty_pool},
    {"late-timer", fault::late_timer},
}};

fault planted = fault::none;  // written before the run

// The signs of a fault that can be seen from outside.
std::atomic<int> answers{0};
std::atomic<std::chrono::milliseconds> most_late{0ms};

enum class action { price, buy, refund, summary };

struct request {
  action what;
  int number;
  vigil::channel<int> answer;
};

class shop {
 public:
  void serve(const vigil::channel<request>& requests);
  void audit() const;

  int price(int item);
  int buy(int item);
  int refund(int order);
  int summary();

 private:
  struct offer {
    int price;
    int uses;
  };

  int query(int key);
  void take_back(int order, int cost);

  vigil::semaphore connections_{4, vigil::named("connections")};
  std::mutex offers_lock_;
  std::map<int, offer> offers_;
  vigil::mutex stock_lock_{vigil::named("stock")};
  int stock_ = 1'000'000;
  vigil::mutex ledger_lock_{vigil::named("ledger")};
  int balance_ = 0;
  vigil::channel<int> sales_ = vigil::make_channel<int>(16, vigil::named("sales"));
  vigil::channel<int> notes_ = vigil::make_channel<int>(16, vigil::named("notes"));
};

// Stands for a database, which takes a while.
[[gnu::noinline]] int ask_database(int key) {
  vigil::sleep_for(1ms);
  return key % 97;
}

[[gnu::noinline]] int shop::query(int key) {
  const vigil::scoped_permit connection(connections_);
  return ask_database(key);
}

[[gnu::noinline]] int shop::price(int item) {
  std::unique_lock hold(offers_lock_);  // fault: lock-across-wait
  const auto known = offers_.find(item);
  if (known != offers_.end() && --known->second.uses > 0) return known->second.price;
  if (planted != fault::lock_across_wait) hold.unlock();
  const int found = query(item);  // waits: lock-across-wait
  if (!hold.owns_lock()) hold.lock();
  offers_[item] = {found, 3};
  return found;
}

[[gnu::noinline]] int shop::buy(int item) {
  {
    const std::lock_guard stock(stock_lock_);
    const int cost = query(item);
    const std::lock_guard ledger(ledger_lock_);  // other: lock-cycle
    --stock_;
    balance_ += cost;
  }
  sales_.send(item);
  return item;
}

[[gnu::noinline]] void shop::take_back(int order, int cost) {
  const bool turned = planted == fault::lock_cycle;
  const std::lock_guard first(turned ? ledger_lock_ : stock_lock_);
  query(order);
  const std::lock_guard second(turned ? stock_lock_ : ledger_lock_);  // fault: lock-cycle
  ++stock_;
  balance_ -= cost;
}

[[gnu::noinline]] int shop::refund(int order) {
  connections_.acquire();
  const int cost = ask_database(order);
  if (cost == 0) {                               // no such order
    if (planted == fault::empty_pool) return 0;  // fault: empty-pool
    connections_.release();
    return 0;
  }
  connections_.release();

  take_back(order, cost);
  if (planted == fault::unread) notes_.send(order);  // fault: unread
  return cost;
}

[[gnu::noinline]] unsigned checksum(unsigned day) {
  unsigned sum = day;
  for (unsigned i = 0; i < 100'000; ++i)
    sum = sum * 31 + i;
  return sum;
}

[[gnu::noinline]] int shop::summary() {
  const unsigned days = planted == fault::late_timer ? 1'000 : 3;
  unsigned sum = 0;
  for (unsigned day = 0; day < days; ++day)
    sum ^= checksum(day);  // fault: late-timer
  return static_cast<int>(sum & 0xffff);
}

[[gnu::noinline]] void shop::audit() const {
  int sales = 0;
  for ([[maybe_unused]] const int sale : sales_)
    ++sales;
}

void shop::serve(const vigil::channel<request>& requests) {
  for (const request& r : requests) {
    switch (r.what) {
      case action::price:
        vigil::go({.name = "price"}, [this, r] { r.answer.send(price(r.number % 50)); });
        break;
      case action::buy:
        vigil::go({.name = "buy"}, [this, r] { r.answer.send(buy(r.number)); });
        break;
      case action::refund:
        vigil::go({.name = "refund"}, [this, r] { r.answer.send(refund(r.number)); });  // refund
        break;
      case action::summary:
        vigil::go({.name = "summary"}, [this, r] { r.answer.send(summary()); });  // summary
        break;
    }
  }
}

void customer(const vigil::channel<request>& requests, int number) {
  const auto answer = vigil::make_channel<int>(1);
  for (int n = number;; ++n) {
    requests.send({static_cast<action>(n % 4), n, answer});
    answer.recv();
    ++answers;
    vigil::sleep_for(5ms);
  }
}

void heartbeat() {
  const vigil::ticker beats(20ms);
  for (const auto due : beats.channel()) {
    const auto late =
        std::chrono::duration_cast<std::chrono::milliseconds>(vigil::clock::now() - due);
    if (late > most_late.load()) most_late.store(late);
  }
}

void run_shop(shop& s) {
  const auto requests = vigil::make_channel<request>();
  vigil::go({.name = "heartbeat"}, heartbeat);
  vigil::go({.name = "audit"}, [&s] { s.audit(); });
  vigil::go({.name = "server"}, [&s, requests] { s.serve(requests); });
  for (int number = 0; number < 16; ++number)
    vigil::go({.name = "customer"}, [requests, number] { customer(requests, number); });
  vigil::background().done().recv();
}

// Looks from outside, for all workers may be stuck.
void watch(const std::stop_token& ended) {
  auto last = std::chrono::steady_clock::now();
  for (int before = 0; !ended.stop_requested(); std::this_thread::sleep_for(10ms)) {
    const auto now = std::chrono::steady_clock::now();
    const int n = answers.load();
    const auto late = most_late.load();
    if (n != before) last = now;
    before = n;
    if (planted == fault::none) {
      if (n < 1'000) continue;
      std::puts("ready: 1000 answers");
    } else if (late > 100ms) {
      std::printf("ready: a heartbeat was %d ms late\n", static_cast<int>(late.count()));
    } else if (now - last > 1s) {
      std::printf("ready: no answer for a second, after %d\n", n);
    } else {
      continue;
    }
    std::fflush(stdout);
    return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // a debugger may attach
  [[maybe_unused]] std::string page_socket;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument.starts_with("--page=")) page_socket = argument.substr(7);
    if (!argument.starts_with("--fault=")) continue;
    const auto named = std::ranges::find(
        names_of_faults, argument.substr(8), &std::pair<std::string_view, fault>::first);
    if (named == names_of_faults.end()) {
      std::fprintf(stderr, "there is no such fault: %s\n", argv[i]);
      return EXIT_FAILURE;
    }
    planted = named->second;
  }

  vigil::inspect::install({.stuck_signal = SIGUSR2});
#ifdef FAULTY_SERVER_HAS_PAGE
  std::optional<vigil::inspect::live_page> page;
  if (!page_socket.empty()) page = vigil::inspect::serve(page_socket);
#endif
  vigil::options options;
  options.workers = 2;
  options.stop_on = {SIGTERM};
  options.slow_fiber = 50ms;
  options.stuck_limit = 1s;
  std::jthread watcher(watch);
  shop s;  // outlives all fibers
  return vigil::run(options, [&s] { run_shop(s); });
}
