// Contexts: each ends once, by its cancel function, its deadline or its parent, and tells
// which; each callback runs once or is stopped. Groups: each of their fibers ends.
#include "soak/world.hpp"

#include <atomic>
#include <memory>
#include <stdexcept>
#include <vector>

namespace vigil::soak {
namespace {

struct context_ledger : ledger {
  using ledger::ledger;
  opened waits{*this, "waits"};
  closed cancelled_by_hand{*this, "cancelled"};
  closed by_deadline{*this, "timed out"};
};

struct done_ledger : ledger {
  using ledger::ledger;
  opened given{*this, "given"};
  closed ran{*this, "ran"};
  closed stopped{*this, "stopped"};
};

struct group_ledger : ledger {
  using ledger::ledger;
  opened started{*this, "fibers started"};
  closed ended{*this, "ended"};
  note errors{*this, "first errors"};
};

struct planned_error : std::runtime_error {
  planned_error() : std::runtime_error("planned") {}
};

// Waits in one of the ways until the context is done.
void wait_for_end(world& w, context_ledger& l, dice d, const context& ctx) {
  ++l.waits;
  const auto never_ready = w.insist([] { return make_channel<int>(); });
  const std::uint32_t way = d.below(4);
  try {
    w.insist([&] {
      switch (way) {
        case 0:
          never_ready.recv(ctx);
          break;
        case 1:
          sleep_until(time_point::max(), ctx);
          break;
        case 2:
          select(on_recv(never_ready), on_done(ctx));
          break;
        default:
          ctx.done().recv();
          break;
      }
    });
  } catch (const cancelled&) {
  }
  const time_point now = clock::now();
  l.must(ctx.is_done(), "a wait ended whose context is not done");
  if (ctx.error() == std::errc::timed_out) {
    w.check_time(l, ctx.deadline(), now);
    ++l.by_deadline;
  } else {
    l.must(now <= ctx.deadline() || !w.how.is_virtual, "a context outlived its deadline");
    ++l.cancelled_by_hand;
  }
}

// A tree of contexts, with fibers and callbacks that wait for their ends.
void play_tree(world& w, context_ledger& l, done_ledger& done, dice& d) {
  struct run_counts {
    std::atomic<int> ran{0};
  };

  const auto counts = std::make_shared<run_counts>();
  std::vector<cancellable> all;
  std::vector<done_callback> callbacks;
  std::vector<fiber<>> waiting;
  all.push_back(with_timeout(background(), w.draw(d)));
  for (std::uint32_t n = 1 + d.below(5); n != 0; --n) {
    const context& parent = all[d.below(static_cast<std::uint32_t>(all.size()))].ctx;
    all.push_back(d.one_in(2) ? with_cancel(parent) : with_timeout(parent, w.draw(d)));
  }
  int stopped = 0;
  waiting.reserve(all.size());
  callbacks.reserve(all.size());
  for (const cancellable& c : all) {
    const auto wait = [&w, &l, own = d.another(), ctx = c.ctx] { wait_for_end(w, l, own, ctx); };
    const auto run = [counts, &done] {
      ++counts->ran;
      ++done.ran;
    };
    waiting.push_back(w.insist([&] { return spawn(wait); }));
    callbacks.push_back(w.insist([&] { return after_func(c.ctx, run); }));
    ++done.given;
  }
  for (std::uint32_t n = d.below(4); n != 0; --n) {
    const auto drawn = d.below(static_cast<std::uint32_t>(all.size()));
    switch (d.below(3)) {
      case 0:
        w.insist([length = w.draw(d) / 2] { sleep_for(length); });
        break;
      case 1:
        all[drawn].cancel();
        break;
      default:
        if (callbacks[drawn].stop()) {
          ++stopped;
          ++done.stopped;
        }
        break;
    }
  }
  for (fiber<>& f : waiting)
    f.join();
  for (const done_callback& c : callbacks) {
    if (!c.stop_and_wait()) continue;
    ++stopped;
    ++done.stopped;
  }
  done.must(counts->ran.load() + stopped == static_cast<int>(callbacks.size()),
            "a callback of a context neither ran once nor was stopped");
}

// A group whose fibers wait, fail, or are cancelled.
void play_group(world& w, group_ledger& l, dice& d) {
  class alive {
   public:
    explicit alive(group_ledger& of) : ledger_(of) { ++ledger_.started; }

    ~alive() { ++ledger_.ended; }

    alive(const alive&) = delete;
    alive& operator=(const alive&) = delete;

   private:
    group_ledger& ledger_;
  };

  group g(background(), {.limit = d.below(4)});
  const bool may_fail = d.one_in(2);
  std::atomic<bool> failed{false};
  const std::uint32_t n = 1 + d.below(8);
  for (std::uint32_t i = 0; i < n; ++i) {
    g.go([&w, &l, &failed, own = d.another(), may_fail](const context& ctx) mutable {
      const alive here(l);
      sleep_for(w.draw(own), ctx);
      if (!may_fail || !own.one_in(3)) return;
      failed.store(true);
      throw planned_error();
    });
  }
  const bool is_cancelled = d.one_in(4);
  if (is_cancelled) g.cancel();
  try {
    g.wait();
    l.must(!failed.load(), "a group forgot an error");
  } catch (const planned_error&) {
    ++l.errors;
    l.must(failed.load(), "a group invented an error");
  }
}

// A group that dies with its fibers.
void play_dying_group(world& w, group_ledger& l, dice& d) {
  std::atomic<int> alive{0};
  {
    group g;
    for (std::uint32_t n = 1 + d.below(5); n != 0; --n) {
      g.go([&] {
        ++l.started;
        ++alive;
        try {
          sleep_until(time_point::max());
        } catch (...) {
          --alive;
          ++l.ended;
          throw;
        }
      });
    }
    sleep_for(w.draw(d) / 8);
  }
  l.must(alive.load() == 0, "a fiber outlived its group");
}

}  // namespace

void cast_contexts(world& w) {
  auto& l = *w.keep<context_ledger>("contexts");
  auto& done = *w.keep<done_ledger>("callbacks of contexts");
  w.cast("contexts", 3, [&](dice& d) { play_tree(w, l, done, d); });
}

void cast_groups(world& w) {
  auto& l = *w.keep<group_ledger>("groups");
  w.cast("groups", 2, [&](dice& d) { play_group(w, l, d); });
  w.cast("dying groups", 2, [&](dice& d) { play_dying_group(w, l, d); });
}

}  // namespace vigil::soak
