// Covers: src/core/cancel/context.cpp src/core/chan/channel_cases.cpp
// Covers: src/core/chan/channel_core.cpp src/core/chan/select_core.cpp
// Covers: src/core/chan/selecting.cpp
//
// Fibers that send, receive, select, close, cancel and stop on virtual time, beside the
// model of channel_model.hpp. All read their next call from the same bytes. Values are
// pointers that own: one that is lost is a leak, and one that comes twice is freed twice.
#include "fuzz/channel_model.hpp"
#include "fuzz/input.hpp"
#include "fuzz/virtual_time.hpp"

#include <vigil/channel.hpp>
#include <vigil/context.hpp>
#include <vigil/error.hpp>
#include <vigil/fiber.hpp>
#include <vigil/select.hpp>
#include <vigil/testing.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

namespace {

using namespace fuzz;
using value = std::unique_ptr<value_id>;
using wish = model_wish::kind;
using how = model_result::kind;

struct slot {
  vigil::channel<value> channel;
  model_channel* model = nullptr;
};

struct context_record {
  vigil::context ctx;
  vigil::cancel_function cancel;
  const context_record* parent = nullptr;
  nanos deadline = INT64_MAX;
  bool is_cancelled = false;

  // The nearest deadline of it and its ancestors.
  [[nodiscard]] nanos nearest() const {
    return parent == nullptr ? deadline : std::min(deadline, parent->nearest());
  }

  [[nodiscard]] bool was_cancelled() const {
    return is_cancelled || (parent != nullptr && parent->was_cancelled());
  }

  void check() const {
    expect(ctx.deadline().time_since_epoch().count() == nearest(), "a context's deadline()");
    const bool is_done = ctx.is_done();
    expect(is_done || (!was_cancelled() && nearest() >= now()), "a context is done");
    expect(!is_done || was_cancelled() || nearest() <= now(), "a context is not done");
    const std::error_code error = ctx.error();
    expect(!!error == is_done && (ctx.cause() != nullptr) == is_done, "error() and cause()");
    if (!is_done) return;
    const bool is_timeout = error == std::errc::timed_out;
    expect(is_timeout ? nearest() <= now() : was_cancelled(), "why a context is done");
  }
};

struct runner {
  vigil::fiber<> fiber;
  bool is_stopped = false;
  bool has_ended = true;
};

class program {
 public:
  explicit program(input& in) : in_(in) {}

  void main() {
    for (slot& s : channels_)
      renew(s);
    for (context_record*& c : contexts_)
      renew(c);
    const bool never = false;
    while (!in_.ended()) {
      for (runner& r : runners_)
        start(r);
      act(never, false);
      vigil::sleep_for(nanoseconds(unit));
      for (const context_record& c : all_contexts_)
        c.check();
    }
    finish();
  }

 private:
  // --- the fibers

  void start(runner& r) {
    if (!r.has_ended) return;
    if (r.fiber.joinable()) r.fiber.join();
    r.is_stopped = r.has_ended = false;
    r.fiber = vigil::spawn([this, &r] {
      while (!in_.ended() && !r.is_stopped)
        act(r.is_stopped, true);
      r.has_ended = true;
    });
  }

  void stop(runner& r) {
    model_.sync();
    if (r.has_ended) return;
    r.fiber.request_stop();
    r.is_stopped = true;
    model_.sync();
  }

  // Ends all waits: each call that may last has a channel or a context of the program.
  void finish() {
    for (slot& s : channels_)
      close(s);
    for (context_record* const c : contexts_)
      cancel(*c);
    for (runner& r : runners_)
      if (r.fiber.joinable()) r.fiber.join();
    expect(model_.nothing_waits(), "a call is left");
    for (slot& s : channels_) {
      for (const value_id id : s.model->buffer)
        expect(**s.channel.recv() == id, "what is left in a closed channel");
      expect(!s.channel.recv(), "a closed channel is drained");
    }
  }

  // --- one call

  void act(const bool& stops, bool may_last) {
    model_wait w;
    w.stops = &stops;
    switch (in_.below(12)) {
      case 0:
        return rest(stops);
      case 1:
        return may_last ? recv(w, no_limit) : recv(w, tried);
      case 2:
        return may_last ? send(w, no_limit) : send(w, tried);
      case 3:
        return in_.flag() ? recv(w, tried) : send(w, tried);
      case 4:
        return in_.flag() ? recv(w, timed) : send(w, timed);
      case 5:
        return !may_last ? rest(stops) : in_.flag() ? recv(w, limited) : send(w, limited);
      case 6:
        return select(w, may_last);
      case 7:
        return close(some_slot());
      case 8:
        return cancel(some_context());
      case 9:
        return renew(some_slot());
      case 10:
        return renew(contexts_[in_.below(contexts_.size())]);
      default:
        return stop(runners_[in_.below(runners_.size())]);
    }
  }

  enum limit_kind : std::uint8_t { no_limit, tried, timed, limited };

  slot& some_slot() { return channels_[in_.below(channels_.size())]; }

  context_record& some_context() { return *contexts_[in_.below(contexts_.size())]; }

  nanos some_patience() { return (nanos{in_.byte() % 16U} - 2) * unit; }

  void rest(const bool& stops) {
    const nanos length = nanos{in_.byte() % 8U} * unit;
    try {
      length == 0 ? vigil::this_fiber::yield() : vigil::sleep_for(nanoseconds(length));
    } catch (const vigil::stopped&) {
      expect(stops, "a fiber is stopped that nobody has stopped");
    }
  }

  template <class F>
  void wait(model_wait& w, F call) {
    model_.begin(w);
    model_result got;
    try {
      got = call();
    } catch (const vigil::channel_closed&) {
      got.how = how::threw_closed;
    } catch (const vigil::stopped&) {
      got.how = how::stopped;
    } catch (const vigil::cancelled&) {
      got.how = how::cancelled;
    }
    model_.end(w, got);
  }

  // Notes the limit in the model. Returns the patience.
  nanos limit(model_wait& w, limit_kind kind) {
    if (kind == limited) w.limit = some_context().ctx;
    if (kind == tried) w.wishes.push_back({.what = wish::otherwise});
    if (kind != timed) return 0;
    const nanos patience = some_patience();
    w.wishes.push_back({.what = wish::timeout});
    w.deadline = now() + patience;
    return patience;
  }

  static model_result result_of(std::optional<value>&& v) {
    if (!v) return {how::closed, 0, 0};
    return {how::took, 0, **v};
  }

  void recv(model_wait& w, limit_kind kind) {
    const slot s = some_slot();  // a copy: the channel may be renewed meanwhile
    w.wishes.push_back({.what = wish::recv, .channel = s.model});
    const nanos patience = limit(w, kind);
    wait(w, [&]() -> model_result {
      if (kind == no_limit) return result_of(s.channel.recv());
      if (kind == limited) return result_of(s.channel.recv(w.limit));
      auto got = kind == tried ? s.channel.try_recv() : s.channel.recv_for(nanoseconds(patience));
      if (got) return {how::took, 0, **got};
      return got.is_closed() ? model_result{how::closed, 0, 0} : model_result{how::took, 1, 0};
    });
  }

  void send(model_wait& w, limit_kind kind) {
    const slot s = some_slot();
    value v = std::make_unique<value_id>(++ids_);
    w.wishes.push_back({.what = wish::send, .channel = s.model, .value = *v});
    const nanos patience = limit(w, kind);
    bool is_sent = false;
    wait(w, [&]() -> model_result {
      if (kind == no_limit) s.channel.send(std::move(v));
      if (kind == limited) s.channel.send(std::move(v), w.limit);
      is_sent = kind == no_limit || kind == limited;
      if (is_sent) return {how::took, 0, 0};
      const vigil::send_result sent = kind == tried
                                          ? s.channel.try_send(std::move(v))
                                          : s.channel.send_for(std::move(v), nanoseconds(patience));
      is_sent = static_cast<bool>(sent);
      if (sent.is_closed()) return {how::threw_closed, 0, 0};
      return {how::took, is_sent ? 0U : 1U, 0};
    });
    expect((v == nullptr) == is_sent, "a value leaves its place if it is sent");
  }

  void select(model_wait& w, bool may_last) {
    struct chosen {
      vigil::channel<value> channel;  // kept, as the list keeps it
      value to_send;
    };

    std::deque<chosen> kept;
    vigil::case_list cases;
    std::optional<value> received;
    const auto keep = [&received](std::optional<value> v) { received = std::move(v); };
    bool ends = false;
    for (std::size_t n = in_.below(5); n > 0; --n) {
      const std::size_t kind = in_.below(3);
      if (kind == 2) {
        const vigil::context ctx = some_context().ctx;
        w.wishes.push_back({.what = wish::done, .ctx = ctx});
        cases.add(vigil::on_done(ctx));
        ends = true;
        continue;
      }
      const std::size_t which = in_.below(channels_.size() + 1);
      const slot s = which == channels_.size() ? slot() : channels_[which];
      ends = ends || s.model != nullptr;
      kept.push_back({s.channel, nullptr});
      const bool sends_already = std::any_of(w.wishes.begin(), w.wishes.end(), [&](auto& other) {
        return other.what == wish::send && other.channel == s.model;
      });
      if (kind == 0 || sends_already) {
        w.wishes.push_back({.what = wish::recv, .channel = s.model});
        cases.add(vigil::on_recv(s.channel, keep));
      } else {
        value& v = kept.back().to_send;
        v = std::make_unique<value_id>(++ids_);
        w.wishes.push_back({.what = wish::send, .channel = s.model, .value = *v});
        cases.add(vigil::on_send(s.channel, std::ref(v)));
      }
    }
    const std::size_t rest = in_.below(3);
    if (rest == 1) {
      w.wishes.push_back({.what = wish::otherwise});
      cases.add(vigil::otherwise());
    } else if (rest == 2 || !ends || !may_last) {
      cases.add(vigil::on_timeout(nanoseconds(limit(w, timed))));
    }
    w.is_ordered = in_.flag();
    wait(w, [&]() -> model_result {
      const std::size_t i = w.is_ordered ? vigil::select_ordered(cases) : vigil::select(cases);
      const wish what = w.wishes[i].what;
      if (what == wish::done || (what == wish::recv && !received)) return {how::closed, i, 0};
      return {how::took, i, what == wish::recv ? **received : 0};
    });
  }

  // --- what ends waits

  void close(slot& s) {
    if (model_.close(*s.model)) return s.channel.close();
    expect(throws<vigil::channel_closed>([&] { s.channel.close(); }), "a second close()");
  }

  void renew(slot& s) {
    if (s.model != nullptr && !s.model->is_closed) close(s);
    models_.emplace_back();
    s.model = &models_.back();
    s.model->capacity = in_.below(4);
    s.channel = vigil::make_channel<value>(s.model->capacity);
  }

  void cancel(context_record& c) {
    model_.sync();
    c.cancel();
    c.is_cancelled = true;
    model_.sync();
  }

  void renew(context_record*& c) {
    const context_record* const parent =
        in_.flag() ? contexts_[in_.below(contexts_.size())] : nullptr;
    const bool has_deadline = in_.flag();
    if (c != nullptr) cancel(*c);
    all_contexts_.emplace_back();
    context_record& made = all_contexts_.back();
    made.parent = parent;
    const vigil::context from = parent != nullptr ? parent->ctx : vigil::background();
    if (has_deadline) {
      const nanos patience = some_patience();
      made.deadline = now() + patience;
      auto [ctx, cancels] = vigil::with_timeout(from, nanoseconds(patience));
      made.ctx = ctx;
      made.cancel = cancels;
    } else {
      auto [ctx, cancels] = vigil::with_cancel(from);
      made.ctx = ctx;
      made.cancel = cancels;
    }
    c = &made;
  }

  input& in_;
  channel_model model_;
  std::deque<model_channel> models_;
  std::deque<context_record> all_contexts_;
  std::array<slot, 3> channels_;
  std::array<context_record*, 3> contexts_ = {};
  std::array<runner, 4> runners_;
  value_id ids_ = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  input in(data, size);
  vigil::testing::virtual_options o;
  o.seed = 1 + std::uint64_t{in.byte()};
  o.runtime.turn_budget = 0;  // a call that need not wait lets no other fiber go first
  vigil::testing::run_virtual(o, [&in] { program(in).main(); });
  return 0;
}
