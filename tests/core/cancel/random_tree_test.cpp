// Random programs over contexts on virtual time, beside a model of Go's rules without
// threads and locks. Deadlines and actions never fall on one instant, so the model knows
// each end, its time and its cause. A seed replays its program.
#include "core/cancel/cancel_test.hpp"

#include <cstdlib>
#include <optional>
#include <string>

namespace {

using namespace vigil::testing_support;
using std::chrono::nanoseconds;
using vigil::cancellable;
using vigil::with_deadline;

// The end of a context. The cause is a failure's number, or 0 for none.
struct end {
  clock::time_point when;
  bool by_deadline;
  int cause;
};

// --- the model

class tree_model {
 public:
  // Parent -1: no context that could end it.
  int add(int parent, clock::time_point deadline, int cause_of_deadline, clock::time_point now) {
    nodes_.push_back({parent, deadline, cause_of_deadline, std::nullopt});
    const int made = static_cast<int>(nodes_.size()) - 1;
    if (parent >= 0) {
      const node& above = at(parent);
      // A deadline not earlier than the parent's: the parent's counts.
      if (above.deadline <= deadline) at(made).deadline = clock::time_point::max();
      if (above.ended) at(made).ended = end{now, above.ended->by_deadline, above.ended->cause};
    }
    return made;
  }

  void cancel(int which, end how) {
    if (at(which).ended) return;
    at(which).ended = how;
    for (int i = which + 1; i < static_cast<int>(nodes_.size()); ++i) {
      if (at(i).parent == which) cancel(i, how);
    }
  }

  // Ends everything that comes due up to now, in order.
  void advance(clock::time_point now) {
    for (;;) {
      int first = -1;
      for (int i = 0; i < static_cast<int>(nodes_.size()); ++i) {
        if (at(i).ended || at(i).deadline > now) continue;
        if (first < 0 || at(i).deadline < at(first).deadline) first = i;
      }
      if (first < 0) return;
      cancel(first, {at(first).deadline, true, at(first).cause_of_deadline});
    }
  }

  const std::optional<end>& ended(int which) const { return nodes_[index(which)].ended; }

 private:
  struct node {
    int parent;
    clock::time_point deadline;
    int cause_of_deadline;
    std::optional<end> ended;
  };

  static std::size_t index(int which) { return static_cast<std::size_t>(which); }

  node& at(int which) { return nodes_[index(which)]; }

  std::vector<node> nodes_;
};

// --- the program

// The observations of a fiber that waited under a context, or of an after_func.
struct seen {
  int node;
  clock::time_point since;
  std::optional<end> what = std::nullopt;
  bool is_exact = false;  // it knows code and cause as well
};

class tree_program {
 public:
  explicit tree_program(std::uint64_t seed) : dice_(seed) {}

  void run() {
    add(-1, with_cancel(background()), clock::time_point::max(), 0);
    for (int step = 0; step < 80; ++step) {
      // Actions at whole microseconds, deadlines between them.
      sleep_for((1 + dice_.below(20)) * 1us);
      model_.advance(clock::now());
      deed();
      look(any());
    }
    for (int i = 0; i < static_cast<int>(all_.size()); ++i) {
      model_.cancel(i, {clock::now(), false, 0});
      at(i).it.cancel();
    }
    vigil::testing::settle();
    fibers_.clear();
    for (const auto& s : seen_) {
      REQUIRE(s->what.has_value());
      const end& expected = *model_.ended(s->node);
      CHECK(s->what->when == std::max(expected.when, s->since));
      if (!s->is_exact) continue;
      CHECK(s->what->by_deadline == expected.by_deadline);
      CHECK(s->what->cause == expected.cause);
    }
  }

 private:
  struct held {
    cancellable it;
    int parent;
  };

  int any() { return static_cast<int>(dice_.below(static_cast<std::uint32_t>(all_.size()))); }

  const held& at(int which) const { return all_[static_cast<std::size_t>(which)]; }

  int add(int parent, cancellable it, clock::time_point deadline, int cause) {
    all_.push_back({std::move(it), parent});
    return model_.add(parent, deadline, cause, clock::now());
  }

  void deed() {
    const int which = any();
    const context& ctx = at(which).it.ctx;
    switch (dice_.below(10)) {
      case 0:
      case 1:
        add(which, with_cancel(ctx), clock::time_point::max(), 0);
        break;
      case 2:
      case 3: {
        // A unique nanosecond between two actions.
        const auto t = clock::now() + dice_.below(400) * 1us + nanoseconds(++deadlines_);
        const int cause = dice_.below(2) == 0 ? 0 : ++failures_;
        auto made =
            with_deadline(ctx, t, cause == 0 ? nullptr : std::make_exception_ptr(failure{cause}));
        add(which, std::move(made), t, cause);
        break;
      }
      case 4: {
        static const vigil::context_key<int> key;
        auto made = with_cancel(vigil::with_value(ctx, key, which));
        CHECK(*made.ctx.value(key) == which);
        add(which, std::move(made), clock::time_point::max(), 0);
        break;
      }
      case 5:
        add(-1, with_cancel(without_cancel(ctx)), clock::time_point::max(), 0);
        break;
      case 6: {
        if (dice_.below(3) != 0 && which == 0) break;  // the root not too early
        const int cause = dice_.below(2) == 0 ? 0 : ++failures_;
        cause == 0 ? at(which).it.cancel() : at(which).it.cancel(failure{cause});
        model_.cancel(which, {clock::now(), false, cause});
        break;
      }
      case 7: {
        auto s = note(which);
        const auto f = vigil::after_func(ctx, [s] { s->what = end{clock::now(), false, 0}; });
        if (dice_.below(3) == 0) {
          CHECK(f.stop() == !model_.ended(which).has_value());
          seen_.pop_back();
        }
        break;
      }
      default:
        wait_under(which);
    }
  }

  std::shared_ptr<seen> note(int which) {
    seen_.push_back(std::make_shared<seen>(seen{which, clock::now()}));
    return seen_.back();
  }

  void wait_under(int which) {
    fibers_.push_back(
        vigil::spawn([s = note(which), ctx = at(which).it.ctx, kind = dice_.below(5)] {
          try {
            switch (kind) {
              case 0:
                sleep_for(24h, ctx);
                break;
              case 1:
                vigil::make_channel<int>().recv(ctx);
                break;
              case 2:
                vigil::make_channel<int>().send(1, ctx);
                break;
              case 3:
                vigil::spawn([] { sleep_for(24h); }).join(ctx);
                break;
              default:
                vigil::select(vigil::on_done(ctx));
                s->what = end{clock::now(), false, 0};
                return;
            }
          } catch (const cancelled& c) {
            s->what = end{clock::now(), c.code() == std::errc::timed_out, number_of(c.cause())};
            s->is_exact = true;
          }
        }));
  }

  // All queries, at this instant.
  void look(int which) {
    const context& ctx = at(which).it.ctx;
    const auto& expected = model_.ended(which);
    REQUIRE(ctx.is_done() == expected.has_value());
    CHECK(static_cast<bool>(ctx.error()) == expected.has_value());
    CHECK(ctx.done().try_recv().is_closed() == expected.has_value());
    if (!expected) {
      CHECK(ctx.cause() == nullptr);
      return;
    }
    CHECK((ctx.error() == std::errc::timed_out) == expected->by_deadline);
    if (expected->cause != 0) {
      CHECK(number_of(ctx.cause()) == expected->cause);
    } else {
      CHECK_THROWS_AS(std::rethrow_exception(ctx.cause()), cancelled);
    }
  }

  seeded dice_;
  tree_model model_;
  std::vector<held> all_;
  std::vector<std::shared_ptr<seen>> seen_;
  std::vector<vigil::fiber<>> fibers_;
  int deadlines_ = 0;
  int failures_ = 0;
};

}  // namespace

TEST_SUITE("context") {
  TEST_CASE("random programs end each context and each wait when and how the model does") {
    const int seeds = rounds(400) * (std::getenv("VIGIL_LONG") != nullptr ? 20 : 1);
    for_each_seed(static_cast<std::uint64_t>(seeds),
                  [](std::uint64_t seed) { tree_program(seed).run(); });
  }
}
