// Contexts beside a record of each, which says when and why it is done, and what its
// deadline and its value are. Some are made under contexts of another clock.
#pragma once

#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/runtime.hpp>
#include <vigil/stop_token.hpp>
#include <vigil/testing.hpp>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace fuzz {

inline constexpr vigil::context_key<int> context_value;

struct model_context {
  vigil::context ctx;
  vigil::cancel_function cancel;
  std::optional<std::stop_source> source;  // through which it is cancelled
  std::stop_token token;                   // made from it
  const model_context* parent = nullptr;
  bool has_cancel = true;
  bool is_detached = false;       // without_cancel
  nanos deadline = INT64_MAX;     // its own
  std::exception_ptr late;        // the cause of that
  nanos shown = INT64_MAX;        // by deadline()
  bool is_elsewhere = false;      // that is on another clock
  bool has_passed_there = false;  // and has passed
  std::optional<int> value;
  bool is_cancelled = false;
  bool is_ended = false;  // by a cancel, which came before any deadline
  std::exception_ptr cause;

  [[nodiscard]] const model_context* above() const { return is_detached ? nullptr : parent; }

  [[nodiscard]] bool is_below(const model_context& other) const {
    const model_context* c = this;
    while (c != nullptr && c != &other)
      c = c->above();
    return c != nullptr;
  }

  // The nearest deadline of it and its ancestors.
  [[nodiscard]] nanos nearest() const {
    return above() == nullptr ? deadline : std::min(deadline, above()->nearest());
  }

  [[nodiscard]] bool was_cancelled() const {
    return is_cancelled || (above() != nullptr && above()->was_cancelled());
  }

  // Whether the program can end it.
  [[nodiscard]] bool can_end() const {
    return !is_detached && (has_cancel || (parent != nullptr && parent->can_end()));
  }

  [[nodiscard]] std::optional<int> found_value() const {
    return value || parent == nullptr ? value : parent->found_value();
  }

  // Caller: it has timed out.
  [[nodiscard]] bool may_be_cause(const std::exception_ptr& found) const {
    if (deadline <= now() && (late == nullptr || late == found)) return true;
    return above() != nullptr && above()->may_be_cause(found);
  }

  void check() const {
    expect(ctx.deadline().time_since_epoch().count() == shown, "a context's deadline()");
    const bool is_done = ctx.is_done();
    expect(is_done || (!was_cancelled() && nearest() >= now()), "a context is done");
    expect(!is_done || was_cancelled() || nearest() <= now(), "a context is not done");
    expect(!token.stop_possible() || token.stop_requested() == is_done, "a context's token");
    const int* const found = ctx.value(context_value);
    expect(found_value() == (found == nullptr ? std::nullopt : std::optional(*found)), "value()");
    const std::error_code error = ctx.error();
    const std::exception_ptr why = ctx.cause();
    expect(!!error == is_done && (why != nullptr) == is_done, "error() and cause()");
    if (!is_done) return;
    const std::errc expected = is_ended ? std::errc::operation_canceled : std::errc::timed_out;
    expect(error == expected, "why a context is done");
    expect(is_ended ? cause == nullptr || why == cause : may_be_cause(why), "cause()");
  }
};

// Contexts that are not of the run on virtual time. Made once, since one has to wait for
// a deadline, and kept.
class foreign_contexts {
 public:
  static const foreign_contexts& get() {
    static const auto& made = *new foreign_contexts;
    return made;
  }

  [[nodiscard]] const model_context* some(input& in) const {
    return all_[in.below(all_.size())].get();
  }

 private:
  foreign_contexts() {
    using std::chrono::milliseconds;
    const auto century = std::chrono::years(100);
    const vigil::context plain = vigil::background();
    const vigil::context open = vigil::with_cancel(plain).ctx;
    add(plain);
    add(vigil::with_timeout(plain, nanoseconds(-1)).ctx).deadline = INT64_MIN;
    vigil::context far;
    vigil::context near;
    const auto none = vigil::clock::time_point::max();
    const auto make_more = [&] {
      for (const auto& c : {vigil::with_timeout(far, 2 * century), vigil::with_deadline(far, none)})
        expect(c.ctx.deadline() == far.deadline(), "the deadline of a run that has ended");
    };
    {  // in later runs of its runtime and of another, and once its runtime has gone
      vigil::runtime maker;
      maker.run([&] { far = vigil::with_timeout(open, century).ctx; });
      maker.run(make_more);
      vigil::run(make_more);
    }
    vigil::run(make_more);
    do {  // until its timer has gone with its run
      vigil::run([&] { near = vigil::with_timeout(open, milliseconds(50)).ctx; });
    } while (near.is_done());
    vigil::context unreal;
    vigil::testing::run_virtual([&] {
      unreal = vigil::with_timeout(open, nanoseconds(unit)).ctx;
      vigil::go([] {
        try {
          vigil::sleep_for(nanoseconds(unit));
        } catch (const vigil::stopped&) {
          expect(vigil::background().is_done(), "the end of a run ends its background");
        }
      });
      vigil::this_fiber::yield();
    });
    expect(vigil::with_deadline(far, none).ctx.deadline() == far.deadline(), "on a plain thread");
    expect(throws<vigil::wrong_place>(
               [&] { static_cast<void>(vigil::with_timeout(far, century / 2)); }),
           "a deadline on a plain thread");
    while (vigil::clock::now() <= near.deadline())
      std::this_thread::sleep_for(milliseconds(10));
    add(far);
    add(unreal);
    add(near).has_passed_there = true;
  }

  model_context& add(const vigil::context& ctx) {
    all_.push_back(std::make_unique<model_context>());
    model_context& made = *all_.back();
    made.ctx = ctx;
    made.shown = ctx.deadline().time_since_epoch().count();
    made.is_elsewhere = made.shown != INT64_MAX;
    made.has_cancel = false;
    return made;
  }

  std::vector<std::unique_ptr<model_context>> all_;
};

class model_contexts {
 public:
  model_context& make(input& in, const model_context* parent, std::uint8_t how) {
    const bool has_deadline = how % 2 != 0;
    const unsigned kind = how / 2U % 8;
    if (kind == 7) parent = foreign_contexts::get().some(in);
    const vigil::context from = parent != nullptr ? parent->ctx : vigil::background();
    all_.emplace_back();
    model_context& made = all_.back();
    if (parent != nullptr) inherit(made, *parent);
    if (has_deadline) {
      with_deadline(made, from, in, kind);
    } else if (kind == 1 || kind == 2) {
      with_stop_token(made, from, kind == 2);
    } else if (kind == 3) {
      made.value = in.byte();
      made.has_cancel = false;
      made.ctx = vigil::with_value(from, context_value, *made.value);
    } else if (kind == 4) {
      detach(made, from);
    } else {
      set(made, vigil::with_cancel(from));
    }
    const std::uint8_t more = in.byte();
    if (more % 4 == 3) made.token = vigil::stop_token_of(made.ctx);
    if (more / 4 % 4 == 3) done_.push_back(made.ctx.done());
    return made;
  }

  void cancel(model_context& c, bool has_cause) {
    if (!c.has_cancel) return;
    const std::exception_ptr cause = has_cause && !c.source ? some_cause() : nullptr;
    for (model_context& below : all_) {
      if (!below.is_below(c) || below.ctx.is_done()) continue;
      below.is_ended = true;
      below.cause = cause;
    }
    c.is_cancelled = true;
    if (c.source) {
      c.source->request_stop();
    } else {
      c.cancel(cause);
    }
  }

  void check() const {
    for (const model_context& c : all_)
      c.check();
  }

  // After the end of the run.
  void check_gone() const {
    for (const model_context& c : all_) {
      const model_context* top = &c;
      while (top->above() != nullptr)
        top = top->above();
      const bool is_of_run = !top->is_detached && (top->has_cancel || top->value);
      expect(!is_of_run || c.ctx.is_done(), "the end of a run ends its contexts");
      expect(!!c.ctx.error() == c.ctx.is_done(), "error() after the run");
    }
  }

 private:
  static std::exception_ptr some_cause() {
    return std::make_exception_ptr(std::runtime_error("of a test"));
  }

  static void set(model_context& made, const vigil::cancellable& c) {
    made.ctx = c.ctx;
    made.cancel = c.cancel;
  }

  static void inherit(model_context& made, const model_context& parent) {
    made.parent = &parent;
    made.shown = parent.shown;
    made.is_elsewhere = parent.is_elsewhere;
    made.has_passed_there = parent.has_passed_there;
    made.is_ended = parent.is_ended;
    made.cause = parent.cause;
  }

  static void with_deadline(model_context& made,
                            const vigil::context& from,
                            input& in,
                            unsigned kind) {
    const nanos patience = (nanos{in.byte() % 16U} - 2) * unit;
    const nanos deadline = kind == 5 ? INT64_MAX : now() + patience;
    if (kind == 1) made.late = some_cause();
    const bool was_done = from.is_done();
    if (kind == 1 || kind == 5) {
      set(made, vigil::with_deadline(from, at(deadline), made.late));
    } else {
      set(made, vigil::with_timeout(from, nanoseconds(patience)));
    }
    const bool is_late = !was_done && made.has_passed_there;
    made.deadline = is_late ? INT64_MIN : deadline;
    if (is_late) made.late = nullptr;
    expect(made.ctx.is_done() || made.nearest() > now(), "what has passed ends it at once");
    if (deadline == INT64_MAX) return;
    made.shown = made.is_elsewhere ? deadline : std::min(made.shown, deadline);
    made.is_elsewhere = made.has_passed_there = false;
  }

  static void with_stop_token(model_context& made, const vigil::context& from, bool requested) {
    made.source.emplace();
    if (requested) {
      made.source->request_stop();
      made.is_cancelled = true;
      if (!from.is_done()) made.is_ended = true;
    }
    set(made, vigil::with_stop_token(from, made.source->get_token()));
  }

  static void detach(model_context& made, const vigil::context& from) {
    made.has_cancel = made.is_elsewhere = made.has_passed_there = made.is_ended = false;
    made.is_detached = true;
    made.shown = INT64_MAX;
    made.cause = nullptr;
    made.ctx = vigil::without_cancel(from);
  }

  std::vector<vigil::receiver<void>> done_;  // some are the last handles
  std::deque<model_context> all_;
};

}  // namespace fuzz
