// Covers: src/core/cancel/context.cpp src/core/chan/channel_cases.cpp
// Covers: src/core/chan/channel_core.cpp src/core/chan/select_core.cpp
// Covers: src/core/chan/selecting.cpp
//
// Fibers that send, receive, select, close, cancel and stop on virtual time, beside the
// model of channel_model.hpp. All read their next call from the same bytes. In most
// programs values are pointers that own: one that is lost is a leak, and one that comes
// twice is freed twice.
#include "fuzz/channel_mistakes.hpp"
#include "fuzz/channel_model.hpp"
#include "fuzz/channel_values.hpp"
#include "fuzz/context_model.hpp"
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
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace {

using namespace fuzz;
using wish = model_wish::kind;
using how = model_result::kind;

struct runner {
  vigil::fiber<> fiber;
  bool is_stopped = false;
  bool has_ended = true;
};

template <class value>
class program {
  struct slot {
    vigil::channel<value> channel;
    model_channel* model = nullptr;
  };

 public:
  // Alone, main makes all calls, so that a call may let others go first.
  program(input& in, bool alone) : in_(in), is_alone_(alone) {}

  void main() {
    for (slot& s : channels_)
      renew(s);
    for (model_context*& c : contexts_)
      renew(c);
    const bool never = false;
    while (!in_.ended()) {
      if (is_alone_) vigil::testing::settle();
      for (runner& r : runners_)
        start(r);
      act(never, false);
      vigil::sleep_for(nanoseconds(unit));
      check();
    }
    finish();
  }

  // After the end of the run.
  void check_gone() {
    all_contexts_.check_gone();
    const auto closed = [](const std::optional<value>& v) { expect(!v, "a closed channel"); };
    const std::size_t taken = vigil::select(vigil::on_recv(channels_[0].channel, closed),
                                            vigil::on_recv(channels_[1].channel, closed));
    expect(taken < 2, "a select after the run");
  }

 private:
  // --- the fibers

  void start(runner& r) {
    if (!r.has_ended || is_alone_) return;
    if (r.fiber.joinable()) r.fiber.join();
    r.is_stopped = r.has_ended = false;
    r.fiber = vigil::spawn([this, &r] {
      for (bool goes_on = true; goes_on && !in_.ended();)
        goes_on = act(r.is_stopped, true);
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
    for (model_context* const c : contexts_)
      cancel(*c);
    for (runner& r : runners_)
      if (r.fiber.joinable()) r.fiber.join();
    for (vigil::fiber<>& f : crowd_)
      f.join();
    expect(model_.nothing_waits(), "a call is left");
    for (slot& s : channels_) {
      for (const value_id id : s.model->buffer)
        expect(id_of(*s.channel.recv()) == id, "what is left in a closed channel");
      expect(!s.channel.recv(), "a closed channel is drained");
    }
  }

  void check() {
    all_contexts_.check();
    model_.sync();
    for (const slot& s : channels_) {
      expect(s.channel.size() == s.model->buffer.size(), "size()");
      expect(s.channel.capacity() == s.model->capacity, "capacity()");
    }
  }

  // --- one call

  // Returns false if a stop has ended it.
  bool act(const bool& stops, bool may_last) {
    try {
      call(stops, may_last);
      return true;
    } catch (const vigil::stopped&) {
      expect(stops, "a fiber is stopped that nobody has stopped");
      return false;
    }
  }

  void call(const bool& stops, bool may_last) {
    model_wait w;
    w.stops = &stops;
    switch (in_.below(13)) {
      case 0:
        return rest();
      case 1:
        return may_last ? recv(w, no_limit) : recv(w, tried);
      case 2:
        return may_last ? send(w, no_limit) : send(w, tried);
      case 3:
        return in_.flag() ? recv(w, tried) : send(w, tried);
      case 4:
        return in_.flag() ? recv(w, timed) : send(w, timed);
      case 5:
        return !may_last ? rest() : in_.flag() ? recv(w, limited) : send(w, limited);
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
      case 11:
        return stop(runners_[in_.below(runners_.size())]);
      default:
        if (is_alone_) wait_for_ends();
        return call_wrongly();
    }
  }

  enum limit_kind : std::uint8_t { no_limit, tried, timed, limited };

  slot& some_slot() { return channels_[in_.below(channels_.size())]; }

  // A nil channel as well, if the call ends without it.
  slot some_slot(limit_kind kind) {
    const std::size_t i = in_.below(channels_.size() + 1);
    if (i != channels_.size()) return channels_[i];
    return kind == tried || kind == timed ? slot() : channels_[0];
  }

  model_context& some_context() { return *contexts_[in_.below(contexts_.size())]; }

  struct patience {
    nanos length;
    bool is_until;  // given as an instant

    [[nodiscard]] vigil::clock::time_point end() const { return at(now() + length); }
  };

  patience some_patience() {
    const std::uint8_t byte = in_.byte();
    return {(nanos{byte % 16U} - 2) * unit, byte / 16U % 2 != 0};
  }

  void rest() {
    const nanos length = nanos{in_.byte() % 8U} * unit;
    length == 0 ? vigil::this_fiber::yield() : vigil::sleep_for(nanoseconds(length));
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
      model_.end(w, got);
      throw;
    } catch (const vigil::cancelled&) {
      got.how = how::cancelled;
    }
    model_.end(w, got);
  }

  // Notes the limit in the model. Returns the patience.
  patience limit(model_wait& w, limit_kind kind) {
    if (kind == limited) w.limit = some_context().ctx;
    if (kind == tried) w.wishes.push_back({.what = wish::otherwise});
    if (kind != timed) return {};
    const patience p = some_patience();
    if (now() + p.length < w.deadline) {
      w.deadline = now() + p.length;
      w.timeout = w.wishes.size();
    }
    w.wishes.push_back({.what = wish::timeout});
    return p;
  }

  static model_result result_of(const std::optional<value>& v) {
    if (!v) return {how::closed, 0, 0};
    return {how::took, 0, id_of(*v)};
  }

  void recv(model_wait& w, limit_kind kind) { recv(w, kind, some_slot(kind)); }

  // `s`: a copy, since the channel may be renewed meanwhile.
  void recv(model_wait& w, limit_kind kind, const slot s) {
    w.wishes.push_back({.what = wish::recv, .channel = s.model});
    const patience p = limit(w, kind);
    wait(w, [&]() -> model_result {
      if (kind == no_limit) return result_of(s.channel.recv());
      if (kind == limited) return result_of(s.channel.recv(w.limit));
      auto got = kind == tried ? s.channel.try_recv()
                 : p.is_until  ? s.channel.recv_until(p.end())
                               : s.channel.recv_for(nanoseconds(p.length));
      if (got) return {how::took, 0, id_of(*got)};
      return got.is_closed() ? model_result{how::closed, 0, 0} : model_result{how::took, 1, 0};
    });
  }

  void send(model_wait& w, limit_kind kind) { send(w, kind, some_slot(kind)); }

  void send(model_wait& w, limit_kind kind, const slot s) {
    value v = value_of<value>(++ids_);
    w.wishes.push_back({.what = wish::send, .channel = s.model, .value = ids_});
    const patience p = limit(w, kind);
    bool is_sent = false;
    wait(w, [&]() -> model_result {
      if (kind == no_limit) s.channel.send(std::move(v));
      if (kind == limited) s.channel.send(std::move(v), w.limit);
      is_sent = kind == no_limit || kind == limited;
      if (is_sent) return {how::took, 0, 0};
      const vigil::send_result sent = kind == tried ? s.channel.try_send(std::move(v))
                                      : p.is_until
                                          ? s.channel.send_until(std::move(v), p.end())
                                          : s.channel.send_for(std::move(v), nanoseconds(p.length));
      is_sent = static_cast<bool>(sent);
      if (sent.is_closed()) return {how::threw_closed, 0, 0};
      return {how::took, is_sent ? 0U : 1U, 0};
    });
    if constexpr (std::is_same_v<value, owned>)
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
        const model_context& c = some_context();
        w.wishes.push_back({.what = wish::done, .ctx = c.ctx});
        cases.add(vigil::on_done(c.ctx));
        ends = ends || c.can_end();
        continue;
      }
      const std::size_t which = in_.below(channels_.size() + 1);
      const slot s = which == channels_.size() ? slot() : channels_[which];
      ends = ends || s.model != nullptr;
      kept.push_back({s.channel, value()});
      const bool sends_already = std::any_of(w.wishes.begin(), w.wishes.end(), [&](auto& other) {
        return other.what == wish::send && other.channel == s.model;
      });
      if (kind == 0 || sends_already) {
        w.wishes.push_back({.what = wish::recv, .channel = s.model});
        cases.add(vigil::on_recv(s.channel, keep));
      } else {
        value& v = kept.back().to_send;
        v = value_of<value>(++ids_);
        w.wishes.push_back({.what = wish::send, .channel = s.model, .value = ids_});
        cases.add(vigil::on_send(s.channel, std::ref(v)));
      }
    }
    const std::size_t rest = in_.below(4);
    if (rest == 1) {
      w.wishes.push_back({.what = wish::otherwise});
      cases.add(vigil::otherwise());
    } else if (rest != 0 || !ends || !may_last) {
      for (std::size_t n = rest == 3 ? 2 : 1; n > 0; --n) {
        const patience p = limit(w, timed);
        if (p.is_until) {
          cases.add(vigil::on_deadline(p.end()));
        } else {
          cases.add(vigil::on_timeout(nanoseconds(p.length)));
        }
      }
    }
    w.is_ordered = in_.flag();
    wait(w, [&]() -> model_result {
      const std::size_t i = w.is_ordered ? vigil::select_ordered(cases) : vigil::select(cases);
      const wish what = w.wishes[i].what;
      if (what == wish::done || (what == wish::recv && !received)) return {how::closed, i, 0};
      return {how::took, i, what == wish::recv ? id_of(*received) : 0};
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
    const std::uint8_t byte = in_.byte();
    s.model->capacity = byte % 4;
    // One with a name remembers its users.
    s.channel = byte / 4 % 4 == 3
                    ? vigil::make_channel<value>(s.model->capacity, vigil::named("fuzz"))
                    : vigil::make_channel<value>(s.model->capacity);
    if (byte >= 0xe0 && !is_alone_ && crowd_.empty()) crowd(s, byte >= 0xf0);
  }

  // Makes more waits in one channel than its close ends under one hold of its lock.
  void crowd(const slot& s, bool sends) {
    static constexpr bool never = false;
    for (int n = 0; n < 80; ++n) {
      crowd_.push_back(vigil::spawn([this, s, sends] {
        model_wait w;
        w.stops = &never;
        sends ? send(w, no_limit, s) : recv(w, no_limit, s);
      }));
    }
  }

  void cancel(model_context& c) {
    model_.sync();
    all_contexts_.cancel(c, in_.flag());
    model_.sync();
  }

  void renew(model_context*& c) {
    const model_context* const parent =
        in_.flag() ? contexts_[in_.below(contexts_.size())] : nullptr;
    const std::uint8_t drawn = in_.byte();
    if (c != nullptr) cancel(*c);
    c = &all_contexts_.make(in_, parent, drawn);
  }

  input& in_;
  const bool is_alone_;
  channel_model model_;
  std::deque<model_channel> models_;
  model_contexts all_contexts_;
  std::array<slot, 3> channels_;
  std::array<model_context*, 3> contexts_ = {};
  std::array<runner, 4> runners_;
  std::vector<vigil::fiber<>> crowd_;
  value_id ids_ = 0;
};

template <class value>
void run_program(input& in, const vigil::testing::virtual_options& o) {
  program<value> p(in, o.runtime.turn_budget != 0);
  vigil::testing::run_virtual(o, [&p] { p.main(); });
  p.check_gone();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  foreign_contexts::get();
  input in(data, size);
  vigil::testing::virtual_options o;
  const std::uint8_t first = in.byte();
  o.seed = 1 + std::uint64_t{first};
  // Otherwise a call that need not wait lets no other fiber go first.
  o.runtime.turn_budget = first % 8 == 7 ? 1 : 0;
  switch (first / 8 % 8) {
    case 5:
      run_program<std::uint32_t>(in, o);
      break;
    case 6:
      run_program<std::uint64_t>(in, o);
      break;
    case 7:
      run_program<wide>(in, o);
      break;
    default:
      run_program<owned>(in, o);
      break;
  }
  return 0;
}
