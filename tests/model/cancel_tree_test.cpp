// The cancel tree: a cancel misses no node, even one that is linked, destroyed or ended
// at that moment, and when it returns all are done (CN1 to CN4 of cancel_tree.hpp).
#include "core/sched/wait/cancel_tree.hpp"

#include "core/sched/call/caller.hpp"
#include "parcel.hpp"
#include "programs.hpp"
#include "prove.hpp"

#include <vigil/context.hpp>
#include <vigil/stop_token.hpp>
#include <vigil/vigil.hpp>

#include <atomic>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include <doctest/doctest.h>

using namespace std::chrono_literals;

using vigil::background;
using vigil::cancellable;
using vigil::context;
using vigil::with_cancel;
using vigil::detail::outcome;

using programs::parcel;
using programs::run_with_outside_work;
using programs::workers;

namespace {

// Receives under ctx; 0 if the wait was cancelled.
int recv(const vigil::channel<parcel>& from, const context& ctx) {
  try {
    return from.recv(ctx)->id();
  } catch (const vigil::cancelled&) {
    return 0;
  }
}

void require_nobody_waits(const context& ctx) {
  model::require(vigil::detail::cancel_node_of(ctx)->waiters() == 0, "no waiter is left under it");
}

// One thread receives under a context, one sends if a receiver is there, this one cancels
// the context or its parent.
auto value_against_cancel(bool the_parent) {
  return [the_parent] {
    int ended = 0;
    auto parent = with_cancel(background());
    auto it = with_cancel(parent.ctx);
    const auto ch = vigil::make_channel<parcel>();
    int got = 0;
    parcel p(7, ended);
    std::thread receiver([&] { got = recv(ch, it.ctx); });
    std::thread sender([&] { static_cast<void>(ch.try_send(std::move(p))); });
    (the_parent ? parent : it).cancel();
    model::require(it.ctx.is_done(), "it is done");
    receiver.join();
    sender.join();
    model::require(p.is_here() == (got == 0), "received or in the hand");
    require_nobody_waits(it.ctx);
    model::note_outcome(got == 0 ? "cancelled" : "value");
  };
}

// A wait with a deadline under a context, and a thread that would end it by a value.
void three_ends() {
  auto it = with_cancel(background());
  std::atomic<vigil::detail::waiter*> found{nullptr};
  std::atomic<vigil::detail::ticket> which{0};
  std::atomic<bool> giver_gone{false};
  outcome how = outcome::open;
  std::thread thread([&] {
    vigil::detail::caller self(vigil::detail::within(1us, it.ctx));
    const auto t = self.open();
    which.store(t);
    found.store(&self.own_waiter());
    how = self.wait(t, vigil::detail::wait_reason::test);
    model::wait_until([&] { return giver_gone.load(); });  // the giver looks at this stack
  });
  std::thread giver([&] {
    if (auto* const w = found.load()) {
      if (w->claim(which.load(), outcome::value)) w->deliver();
    }
    giver_gone.store(true);
  });
  it.cancel();
  giver.join();
  thread.join();
  require_nobody_waits(it.ctx);
  model::note_outcome(how == outcome::value       ? "value"
                      : how == outcome::cancelled ? "cancelled"
                                                  : "timeout");
}

// A context is made below another one that is being cancelled, and a wait begins under
// it.
void link_against_cancel() {
  auto parent = with_cancel(background());
  std::thread maker([&] {
    auto child = with_cancel(parent.ctx);
    model::require(recv(vigil::make_channel<parcel>(), child.ctx) == 0, "it is cancelled");
    model::require(child.ctx.is_done(), "it is done");
  });
  parent.cancel();
  maker.join();
  model::require(vigil::detail::cancel_node_of(parent.ctx)->children() == 0, "no child is left");
}

// top - middle - below. A cancel that has returned finds everything below it done.
void two_cancels() {
  auto top = with_cancel(background());
  auto middle = with_cancel(top.ctx);
  auto below = with_cancel(middle.ctx);
  std::thread other([&] {
    top.cancel();
    model::require(middle.ctx.is_done() && below.ctx.is_done(), "all below the top is done");
  });
  middle.cancel();
  model::require(below.ctx.is_done(), "all below the middle is done");
  other.join();
  model::require(vigil::detail::cancel_node_of(top.ctx)->children() == 0, "no child is left");
}

// The last handle of a child goes while its parent, or the child, is cancelled.
void death_against_cancel(bool also_cancelled) {
  auto parent = with_cancel(background());
  std::optional<cancellable> child(with_cancel(parent.ctx));
  std::optional<context> grandchild(with_cancel(child->ctx).ctx);
  std::thread other([&] {
    if (also_cancelled) child->cancel();
    child.reset();
  });
  std::thread third([&] { grandchild.reset(); });
  parent.cancel();
  other.join();
  third.join();
  model::require(vigil::detail::cancel_node_of(parent.ctx)->children() == 0, "no child is left");
}

// A child whose last handle belongs to the waiter under it.
void death_as_the_wait_ends() {
  auto parent = with_cancel(background());
  std::thread waits([child = with_cancel(parent.ctx).ctx]() mutable {
    model::require(recv(vigil::make_channel<parcel>(), child) == 0, "it is cancelled");
    child = {};
  });
  parent.cancel();
  waits.join();
  model::require(vigil::detail::cancel_node_of(parent.ctx)->children() == 0, "no child is left");
}

// Two threads wait for done; the last of three handles may belong to a receiver.
void done_channel() {
  std::optional<cancellable> it(with_cancel(background()));
  std::thread one([done = it->ctx.done()] { model::require(!done.recv(), "closed"); });
  std::thread other([ctx = it->ctx] { vigil::select_ordered(vigil::on_done(ctx)); });
  it->cancel();
  model::require(it->ctx.done().try_recv().is_closed(), "closed when the cancel has returned");
  it.reset();
  one.join();
  other.join();
}

// The first stop token of a context is requested while it, or its parent, is cancelled.
void token_against_cancel(bool the_parent) {
  auto parent = with_cancel(background());
  auto it = with_cancel(parent.ctx);
  std::stop_token token;
  std::thread asks([&] { token = vigil::stop_token_of(it.ctx); });
  (the_parent ? parent : it).cancel();
  asks.join();
  model::require(token.stop_requested(), "the token is asked to stop");
}

}  // namespace

TEST_CASE("cancel tree: a value or a cancel ends the wait") {
  prove("cancel tree: recv, try_send, cancel", value_against_cancel(false));
  prove("cancel tree: recv, try_send, the parent's cancel", value_against_cancel(true));
  expect_outcomes({"cancelled", "value"});
}

TEST_CASE("cancel tree: a value, a deadline or a cancel ends the wait") {
  prove("cancel tree: value, deadline, cancel", three_ends);
  expect_outcomes({"cancelled", "timeout", "value"});
}

TEST_CASE("cancel tree: a node linked below during a cancel is cancelled") {
  prove("cancel tree: a child is made, its parent cancelled", link_against_cancel, also::unbounded);
}

TEST_CASE("cancel tree: two cancels of overlapping parts both return when all nodes are done") {
  prove("cancel tree: cancel of a parent, cancel of its child", two_cancels, also::unbounded);
}

TEST_CASE("cancel tree: a child may die while its parent, and it, are cancelled") {
  prove("cancel tree: cancel of a parent, the child dies", [] { death_against_cancel(false); });
  prove("cancel tree: cancels of parent and child, the child dies",
        [] { death_against_cancel(true); });
  prove("cancel tree: cancel of a parent, the child dies as a wait ends", death_as_the_wait_ends);
}

TEST_CASE("cancel tree: a waiter for done hears of it, and may hold the last handle") {
  prove("cancel tree: two wait for done, cancel", done_channel);
}

TEST_CASE("cancel tree: a stop token that is made during a cancel is asked to stop") {
  prove("cancel tree: a stop token is made, cancel", [] { token_against_cancel(false); });
  prove("cancel tree: a stop token is made, the parent's cancel",
        [] { token_against_cancel(true); });
}

TEST_CASE("cancel tree: a fiber that begins to wait while another worker cancels") {
  prove("cancel tree: a fiber waits, the other worker cancels", [] {
    vigil::runtime rt(workers(2));
    rt.run([] {
      auto it = with_cancel(background());
      programs::let_the_other_rest();
      const model::window looked_at;
      vigil::go([ctx = it.ctx] {
        model::require(recv(vigil::make_channel<parcel>(), ctx) == 0, "it is cancelled");
      });
      it.cancel();
    });
  });
}
