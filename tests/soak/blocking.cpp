// Blocking calls: each function that is handed to the side pool is destroyed once, after
// it ran or because it never will; each call returns its own result or gives up.
#include "soak/world.hpp"

#include <vigil/blocking.hpp>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

namespace vigil::soak {
namespace {

struct call_ledger : ledger {
  using ledger::ledger;
  opened called{*this, "called"};
  closed returned{*this, "returned"};
  closed gave_up{*this, "gave up"};
  closed refused{*this, "refused in a shortage"};
};

struct function_ledger : ledger {
  using ledger::ledger;
  opened made{*this, "made"};
  closed destroyed{*this, "destroyed"};
  note ran{*this, "ran"};
};

// The data of one function, which it owns.
class own_data {
 public:
  own_data(function_ledger& l, std::uint32_t n) : ledger_(l), n_(n) { ++ledger_.made; }

  ~own_data() { ++ledger_.destroyed; }

  own_data(const own_data&) = delete;
  own_data& operator=(const own_data&) = delete;

  std::uint32_t run(std::chrono::microseconds length) {
    ledger_.must(!has_run_.exchange(true), "a function ran twice");
    ++ledger_.ran;
    if (length.count() != 0) std::this_thread::sleep_for(length);
    return n_ + 1;
  }

 private:
  function_ledger& ledger_;
  const std::uint32_t n_;
  std::atomic<bool> has_run_{false};
};

void call_once(world& w, call_ledger& l, function_ledger& f, dice& d) {
  const std::uint32_t n = d.below(1'000'000);
  // In a year no function takes time: it would be real time.
  const std::chrono::microseconds length(w.how.is_virtual ? 0 : d.below(3'000));
  const auto data = std::make_shared<own_data>(f, n);
  const auto run = [data, length] { return data->run(length); };
  const std::uint64_t edges = w.shortages();
  ++l.called;
  try {
    std::optional<std::uint32_t> got;
    switch (d.below(3)) {
      case 0:
        got = blocking(run);
        break;
      case 1:
        got = blocking_for(w.draw(d) / 4, run);
        break;
      default: {
        const auto [ctx, cancel] = with_timeout(background(), w.draw(d) / 4);
        got = blocking(ctx, run);
        break;
      }
    }
    ++(got.has_value() ? l.returned : l.gave_up);
    l.must(!got.has_value() || *got == n + 1, "a call returned what is not its own result");
  } catch (const cancelled&) {
    ++l.gave_up;
  } catch (...) {
    ++l.refused;
    if (!w.excuses(std::current_exception(), edges)) throw;
  }
}

// More calls at once than the pool has threads.
void play_blocking(world& w, call_ledger& l, function_ledger& f, dice& d) {
  group g;
  for (int i = 0; i < 8; ++i)
    g.go([&w, &l, &f, own = d.another()]() mutable { call_once(w, l, f, own); });
  g.wait();
  if (w.how.is_virtual) sleep_for(4h);  // each call takes two hand-overs of real time
}

}  // namespace

void cast_blocking(world& w) {
  auto& l = *w.keep<call_ledger>("blocking calls");
  auto& f = *w.keep<function_ledger>("functions of calls");
  w.cast("blocking", 2, [&](dice& d) { play_blocking(w, l, f, d); });
}

}  // namespace vigil::soak
