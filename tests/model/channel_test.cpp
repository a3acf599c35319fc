// A channel: each value goes from one hand to one other, or stays where it is; each wait
// ends once, by whatever it ends (CH1 to CH4 of channel_core.hpp).
#include "core/chan/channel_core.hpp"
#include "instants.hpp"
#include "parcel.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/vigil.hpp>

#include <atomic>
#include <cstddef>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::channel_status;

using programs::brief;
using programs::let_the_other_rest;
using programs::let_time_pass;
using programs::parcel;
using programs::run_with_outside_work;
using programs::send;
using programs::workers;

namespace {

using line = vigil::channel<parcel>;

// Requires that nobody waits any more and no value is left.
void require_idle(const line& ch, bool closed) {
  int ended = 0;
  parcel probe(0, ended);
  const channel_status nothing = closed ? channel_status::closed : channel_status::not_ready;
  if (closed || ch.capacity() == 0) {
    model::require(ch.try_send(std::move(probe)).status() == nothing, "no receiver is left behind");
    model::require(probe.is_here(), "what was not sent stays in the hand");
  }
  model::require(ch.try_recv().status() == nothing, "no sender is left behind");
}

// One thread sends, this one receives, each with a handle of its own: the last one frees
// the channel.
auto one_value(std::size_t capacity) {
  return [capacity] {
    int ended = 0;
    auto ch = vigil::make_channel<parcel>(capacity);
    std::thread giver([&ended, to = vigil::sender<parcel>(ch)] {
      parcel p(1, ended);
      model::require(send(to, p) == channel_status::ok, "it is sent");
      model::require(!p.is_here(), "what was sent has left the hand");
    });
    {
      const std::optional<parcel> got = ch.recv();
      model::require(got.has_value() && got->id() == 1, "it arrives");
    }
    ch = {};
    giver.join();
    model::require(ended == 1, "there was one");
  };
}

// Senders and receivers on threads of their own; this thread closes. A sender or receiver
// whose deadline is soon may give up.
struct closing {
  std::size_t capacity = 0;
  int senders = 1;
  int receivers = 0;
  std::optional<std::chrono::nanoseconds> patience = std::nullopt;
  bool filled = false;  // a value is already in the buffer

  // The outcome: each sender's hand, each receiver's.
  std::string said(const channel_status* sent_as, const std::optional<int>* got) const {
    std::string text;
    for (int i = 0; i < senders; ++i) {
      text += sent_as[i] == channel_status::ok ? "sent " : "kept ";
    }
    for (int i = 0; i < receivers; ++i)
      text += got[i] ? "got " : "none ";
    return text;
  }

  void operator()() const {
    int ended = 0;
    int sent = filled ? 1 : 0;
    std::optional<int> first;
    int received = 0;
    {
      const auto ch = vigil::make_channel<parcel>(capacity);
      if (filled) model::require(static_cast<bool>(ch.try_send(parcel(1, ended))), "it has room");
      channel_status sent_as[2] = {};
      std::optional<int> got[2];
      std::thread threads[3];
      int n = 0;
      parcel hands[2] = {parcel(2, ended), parcel(3, ended)};
      for (int i = 0; i < senders; ++i) {
        threads[n++] = std::thread([this, &ch, &p = hands[i], &how = sent_as[i]] {
          how = patience ? ch.send_for(std::move(p), *patience).status() : send(ch, p);
        });
      }
      for (int i = 0; i < receivers; ++i) {
        threads[n++] = std::thread([this, &ch, &g = got[i]] {
          if (patience) {
            if (auto r = ch.recv_for(*patience)) g = r->id();
          } else {
            if (auto r = ch.recv()) g = r->id();
          }
        });
      }
      ch.close();
      for (int i = 0; i < n; ++i)
        threads[i].join();
      model::note_outcome(said(sent_as, got));
      for (int i = 0; i < senders; ++i) {
        const bool left = sent_as[i] == channel_status::ok;
        model::require(left != hands[i].is_here(), "it is sent or in the sender's hand");
        model::require(left || patience || sent_as[i] == channel_status::closed,
                       "a close ends the wait");
        if (left) ++sent;
      }
      for (int i = 0; i < receivers; ++i) {
        if (!got[i]) continue;
        ++received;
        if (!first || *got[i] < *first) first = got[i];
      }
      // A buffered value outlives the close, but nobody waits.
      while (auto rest = ch.try_recv()) {
        ++received;
        if (!first) first = rest->id();
      }
      require_idle(ch, true);
    }
    model::require(received == sent, "each value arrives once");
    model::require(!filled || first == 1, "the buffer's first comes first");
    model::require(ended == (filled ? 3 : 2), "none is left over, none ends twice");
  }
};

}  // namespace

TEST_CASE("channel: a value is handed over once, and the last handle frees the channel") {
  prove("channel: send against recv", one_value(0), also::unbounded);
  prove("channel: send against recv, room for one", one_value(1), also::unbounded);
}

TEST_CASE("channel: values of one sender arrive in order, then the close") {
  prove("channel: send, send, close against recv, room for one", [] {
    int ended = 0;
    const auto ch = vigil::make_channel<parcel>(1);
    std::thread giver([&] {
      for (int id = 1; id <= 2; ++id) {
        parcel p(id, ended);
        model::require(send(ch, p) == channel_status::ok, "it is sent");
      }
      ch.close();
    });
    int last = 0;
    while (const auto got = ch.recv()) {
      model::require(got->id() == last + 1, "in the order in which they were sent");
      last = got->id();
    }
    giver.join();
    model::require(last == 2 && ended == 2, "each once");
  });
}

TEST_CASE("channel: a receive makes room for a waiting sender, which goes on at once") {
  prove(
      "channel: send against recv, full",
      [] {
        int ended = 0;
        const auto ch = vigil::make_channel<parcel>(1);
        model::require(static_cast<bool>(ch.try_send(parcel(1, ended))), "there is room");
        std::thread giver([&] {
          parcel p(2, ended);
          model::require(send(ch, p) == channel_status::ok, "it is sent");
        });
        const auto first = ch.recv();
        giver.join();
        const auto second = ch.recv();
        model::require(first->id() == 1 && second->id() == 2, "in the order they were sent in");
      },
      also::unbounded);
}

TEST_CASE("channel: a close ends each wait, and a value is received or still in the hand") {
  prove("channel: send against close", closing{}, also::unbounded);
  prove("channel: recv against close", closing{.senders = 0, .receivers = 1}, also::unbounded);
  model::take_outcomes();
  prove("channel: send, recv, close", closing{.receivers = 1});
  expect_outcomes({"sent got ", "kept none "});
  prove("channel: two sends, recv, close", closing{.senders = 2, .receivers = 1});
  expect_outcomes({"sent kept got ", "kept sent got ", "kept kept none "});
  prove("channel: send, two recvs, close", closing{.receivers = 2});
  expect_outcomes({"sent got none ", "sent none got ", "kept none none "});
}

TEST_CASE("channel: a receiver that saw the close receives nothing from waiting senders") {
  const auto two_senders = [](std::size_t capacity) {
    return [capacity] {
      int ended[3] = {};
      {
        const auto ch = vigil::make_channel<parcel>(capacity);
        if (capacity != 0) ch.send(parcel(3, ended[0]));
        const auto sends = [&](int id) {
          parcel p(id, ended[id]);
          if (send(ch, p) == channel_status::ok) return;
          const auto next = ch.try_recv();
          model::require(!next || next->id() == 3, "what waits to be sent is not received");
        };
        std::thread one([&] { sends(1); });
        std::thread other([&] { sends(2); });
        ch.close();
        one.join();
        other.join();
      }
    };
  };
  prove("channel: two sends, close, try_recv", two_senders(0));
  prove("channel: two sends, close, try_recv, full", two_senders(1));
}

TEST_CASE("channel: the same with room for one, empty and full") {
  prove("channel: send against close, room for one", closing{.capacity = 1}, also::unbounded);
  prove("channel: send, recv, close, room for one", closing{.capacity = 1, .receivers = 1});
  prove("channel: send against close, full", closing{.capacity = 1, .filled = true});
  prove("channel: send, recv, close, full", closing{.capacity = 1, .receivers = 1, .filled = true});
}

TEST_CASE("channel: the same with deadlines that come at any brief") {
  prove("channel: send_for, close", closing{.patience = brief});
  prove("channel: recv_for, close", closing{.senders = 0, .receivers = 1, .patience = brief});
  prove("channel: send_for, recv_for, close", closing{.receivers = 1, .patience = brief});
  prove("channel: send_for, recv_for, close, full",
        closing{.capacity = 1, .receivers = 1, .patience = brief, .filled = true});
}

TEST_CASE("channel: a deadline races with the peer: both have a value, or neither") {
  model::take_outcomes();
  prove("channel: recv_for against send_for", [] {
    int ended = 0;
    const auto ch = vigil::make_channel<parcel>();
    channel_status how{};
    std::thread giver([&] {
      parcel p(1, ended);
      how = ch.send_for(std::move(p), brief).status();
      model::require(p.is_here() == (how != channel_status::ok), "sent or in the hand");
    });
    const bool arrived = static_cast<bool>(ch.recv_for(brief));
    giver.join();
    model::note_outcome(arrived ? "value" : "timeout");
    model::require(arrived == (how == channel_status::ok), "both or neither");
    require_idle(ch, false);
    model::require(ended == 1, "there was one");
  });
  expect_outcomes({"value", "timeout"});
}

TEST_CASE("channel: a fiber that waits is found by a thread's send and by its close") {
  prove("channel: a fiber's recv, a thread's send", [] {
    run_with_outside_work(1, [] {
      int ended = 0;
      const auto ch = vigil::make_channel<parcel>();
      const model::window w;
      std::thread giver([&] {
        parcel p(1, ended);
        model::require(send(ch, p) == channel_status::ok, "it is sent");
      });
      model::require(ch.recv().has_value(), "it arrives");
      giver.join();
      model::require(ended == 1, "there was one");
      model::enough();
    });
  });
  prove("channel: a fiber's send, a thread's close", [] {
    run_with_outside_work(1, [] {
      int ended = 0;
      const auto ch = vigil::make_channel<parcel>();
      parcel p(1, ended);
      const model::window w;
      std::thread closer([&] { ch.close(); });
      model::require(send(ch, p) == channel_status::closed, "the close ends it");
      model::require(p.is_here(), "it is in the hand");
      closer.join();
      model::enough();
    });
  });
}

// The fiber's stack is gone once it has ended: a case left behind is a use of freed
// memory.
TEST_CASE("channel: a fiber whose deadline comes leaves no case behind") {
  model::take_outcomes();
  prove("channel: a fiber's recv_for, a try_send", [] {
    vigil::run(workers(2), [] {
      int ended = 0;
      const auto ch = vigil::make_channel<parcel>();
      std::atomic<int> arrived{-1};
      vigil::go([&arrived, ch] {
        const bool any = static_cast<bool>(ch.recv_for(brief));
        arrived.store(any ? 1 : 0);
      });
      vigil::sleep_for(brief / 2);
      let_the_other_rest();
      bool sent = false;
      {
        parcel p(1, ended);
        const model::window w;
        sent = static_cast<bool>(ch.try_send(std::move(p)));
        let_time_pass();
        model::wait_until([&] { return arrived.load() >= 0; });
      }
      model::require(arrived.load() == (sent ? 1 : 0), "both or neither");
      model::note_outcome(sent ? "value" : "timeout");
      model::require(ended == 1, "there was one");
      require_idle(ch, false);
      model::enough();
    });
  });
  expect_outcomes({"value", "timeout"});
}

TEST_CASE("channel: a stopped fiber has the value, or the sender has") {
  model::take_outcomes();
  prove("channel: a fiber's recv, a thread's try_send, request_stop", [] {
    run_with_outside_work(2, [] {
      int ended = 0;
      const auto ch = vigil::make_channel<parcel>();
      bool arrived = false;
      auto f = vigil::spawn([&arrived, ch] { arrived = ch.recv().has_value(); });
      vigil::sleep_for(brief);
      let_the_other_rest();
      bool sent = false;
      {
        const model::window w;
        std::thread giver([&] {
          parcel p(1, ended);
          sent = static_cast<bool>(ch.try_send(std::move(p)));
        });
        f.request_stop();
        try {
          f.join();
        } catch (const vigil::cancelled&) {
        }
        giver.join();
      }
      model::require(arrived == sent, "both or neither");
      model::note_outcome(sent ? "value" : "stopped");
      model::require(ended == 1, "there was one");
      require_idle(ch, false);
      model::enough();
    });
  });
  expect_outcomes({"value", "stopped"});
}
