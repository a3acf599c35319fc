// The world of a soak: its settings, its clock, and where its actors rest.
//
// An actor is a fiber that plays rounds: each round starts something, and ends when all
// of it has ended. Now and then the main fiber asks for a rest: each actor then waits
// before its next round, and nothing else may be alive, so all ledgers must be balanced
// and the counters of the runtime are known numbers.
#pragma once

#include "core/base/random.hpp"
#include "soak/ledger.hpp"
#include "soak/weather.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace vigil::soak {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using time_point = clock::time_point;

struct settings {
  bool is_virtual = false;
  nanoseconds length = 1min;
  nanoseconds between_rests = 5s;
  nanoseconds longest = 40ms;        // of a timer, a sleep, a deadline
  nanoseconds longest_pause = 20ms;  // of an actor between two rounds
  nanoseconds patience = 15min;      // for what must happen at some time
  std::size_t workers = 2;
  std::uint64_t seed = 1;
  bool judges_slopes = false;
};

// A generator for one actor, or one fiber of it.
class dice {
 public:
  explicit dice(std::uint64_t seed) noexcept : draws_(seed) {}

  std::uint32_t below(std::uint32_t n) noexcept { return draws_.below(n); }

  // One time in n.
  bool one_in(std::uint32_t n) noexcept { return below(n) == 0; }

  // From 0 to `most`, each order of magnitude as often as another.
  nanoseconds time(nanoseconds most) noexcept;

  dice another() noexcept { return dice(draws_.next()); }

 private:
  detail::random draws_;
};

class world {
 public:
  // `over` may be nullptr: then no shortage excuses anything.
  world(const settings& s, const weather* over) : how(s), weather_(over) {}

  world(const world&) = delete;
  world& operator=(const world&) = delete;

  // The time of a timer.
  nanoseconds draw(dice& d) const noexcept { return d.time(how.longest); }

  // Fails if what has come is early or, on virtual time, late.
  void check_time(const ledger& l, time_point due, time_point came) const;

  // --- for the main fiber
  // Makes a ledger, which lives as long as the world.
  template <class Ledger>
  Ledger* keep(const char* promise) {
    auto made = std::make_shared<Ledger>(ledgers, promise);
    kept_.push_back(made);
    return made.get();
  }

  // Lets connections() count this entry as well.
  void counts_connections(const entry& e) { connections_.push_back(&e); }

  std::uint64_t connections() const noexcept;
  // Starts n actors: each calls round(dice&) again and again. An exception that
  // tells of a shortage may leave a round; any other is a failure.
  void cast(const char* name, int n, std::function<void(dice&)> round);
  void begin_rest();
  bool all_rest();

  // Nothing but the actors is left.
  void note_quiet() noexcept { edges_of_rest_.store(shortages()); }

  void end_rest();
  void end();
  // Actors that are in a round, by name.
  std::string who_plays();

  std::size_t actors() const noexcept { return actors_.size(); }

  // --- for actors
  std::uint64_t shortages() const noexcept {
    return weather_ == nullptr ? 0 : weather_->counts().shortage_edges.load();
  }

  // Whether a shortage has been since `edges` was read by shortages().
  bool shortage_since(std::uint64_t edges) const noexcept {
    return edges % 2 != 0 || shortages() != edges;
  }

  // Whether the error tells of a shortage that has been since then.
  bool excuses(const std::exception_ptr& error, std::uint64_t edges) const;

  // The same of a fiber other than an actor: none is older than the last rest.
  bool excuses(const std::exception_ptr& error) const {
    return excuses(error, edges_of_rest_.load());
  }

  // Calls f until a shortage does not refuse it: what a round has begun, it must end.
  template <class F>
  std::invoke_result_t<F&> insist(F f) {
    for (;;) {
      const std::uint64_t edges = shortages();
      try {
        return f();
      } catch (const std::exception&) {
        if (!excuses(std::current_exception(), edges)) throw;
      }
      rest_after_refusal();
    }
  }

  const settings how;
  book ledgers;

 private:
  struct round_ledger : ledger {
    using ledger::ledger;
    opened begun{*this, "begun"};
    closed ended{*this, "ended"};
    closed refused{*this, "refused in a shortage"};
  };

  struct actor {
    const char* name;
    std::atomic<std::uint64_t> rest{0};  // the last one that it has come to
  };

  // Before what may be refused again at once.
  static void rest_after_refusal();
  void play(actor& a, std::uint64_t number, const std::function<void(dice&)>& round);
  // Returns false at the end.
  bool goes_on(actor& a);

  const weather* weather_;
  std::vector<std::shared_ptr<void>> kept_;
  std::vector<const entry*> connections_;
  std::vector<std::unique_ptr<actor>> actors_;
  std::mutex lock_;  // guards the rest; held across no wait
  bool resting_ = false;
  std::atomic<std::uint64_t> rests_{0};
  std::atomic<std::uint64_t> edges_of_rest_{0};
  bool over_ = false;
  channel<void> rest_;  // closed as the rest ends
  round_ledger rounds_{ledgers, "rounds of actors"};
};

// Whether an exception says that something is short: memory, a descriptor, a thread, a
// stack.
bool tells_of_shortage(const std::exception_ptr& error);

// Until the end of the scope the nth allocation of this thread fails; 0: none does. The
// caller neither waits nor starts anything meanwhile.
class hunger {
 public:
  explicit hunger(std::uint32_t nth) noexcept;
  ~hunger();
  hunger(const hunger&) = delete;
  hunger& operator=(const hunger&) = delete;
};

// Each starts its actors.
void cast_timers(world& w);
void cast_tickers(world& w);
void cast_channels(world& w);
void cast_contexts(world& w);
void cast_groups(world& w);
void cast_tasks(world& w);
void cast_idle(world& w);
void cast_blocking(world& w);
void cast_clocks(world& w);
void cast_http(world& w);
void cast_tls(world& w);
void cast_reports(world& w);

}  // namespace vigil::soak
