// The code of docs/guide/contexts.md: each function is one passage there.
//
// Run:    build/release/examples/guide_contexts
// Prints: what each passage does.
#include <vigil/stop_token.hpp>
#include <vigil/testing.hpp>
#include <vigil/vigil.hpp>

#include <cstdio>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <vector>

using namespace std::chrono_literals;

// The selects are laid out by hand: each case begins a line.
// clang-format off

namespace {

//! [hello]
std::optional<std::string> ask(const vigil::channel<std::string>& answers, vigil::context ctx) {
  auto [limited, cancel] = vigil::with_timeout(ctx, 100ms);
  return answers.recv(limited);  // throws `cancelled` after 100 ms, or when ctx is done
}

void hello() {
  auto answers = vigil::make_channel<std::string>();
  try {
    ask(answers, vigil::background());
  } catch (const vigil::cancelled& e) {
    if (e.code() == std::errc::timed_out) std::puts("nobody answers");
  }
}
//! [hello]

void capture() {
  //! [capture]
  auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  auto sleeper = vigil::spawn([ctx = ctx] { vigil::sleep_for(1h, ctx); });
  cancel();
  //! [capture]
  try {
    sleeper.join();
  } catch (const vigil::cancelled&) {
    std::puts("it has woken");
  }
}

void tree() {
  //! [tree]
  auto server = vigil::with_cancel(vigil::background());
  auto connection = vigil::with_cancel(server.ctx);
  auto request = vigil::with_timeout(connection.ctx, 1s);
  connection.cancel(std::runtime_error("hung up"));
  // `request` is done, with that cause; `server` is not.
  //! [tree]
  std::printf("%d %d\n", request.ctx.is_done(), server.ctx.is_done());
}

void cause() {
  auto it = vigil::with_cancel(vigil::background());
  it.cancel(std::runtime_error("the disk is full"));
  const vigil::context ctx = it.ctx;
  //! [cause]
  try {
    vigil::sleep_for(1h, ctx);
  } catch (const vigil::cancelled& e) {
    // e.code() is the kind of end, the cause is the value given to cancel
    try {
      if (e.cause() != nullptr) std::rethrow_exception(e.cause());
    } catch (const std::exception& why) {
      std::puts(why.what());
    }
  }
  //! [cause]
}

void in_a_select() {
  auto lines = vigil::make_channel<std::string>();
  auto limited = vigil::with_timeout(vigil::background(), 1s);
  const vigil::context ctx = limited.ctx;
  //! [select]
  for (bool done = false; !done;) {
    vigil::select(
        vigil::on_recv(lines, [](std::optional<std::string> line) { std::puts(line->c_str()); }),
        vigil::on_done(ctx, [&] { done = true; }));
  }
  //! [select]
}

void goes_on_after_it() {
  auto lines = vigil::make_channel<std::string>(2);
  const auto [ctx, cancel] = vigil::with_cancel(vigil::background());
  lines.send("what was begun is finished");
  lines.close();
  cancel();
  //! [done_once]
  vigil::receiver<void> stop = ctx.done();
  for (bool more = true; more;) {
    vigil::select_ordered(
        vigil::on_recv(stop, [&] { std::puts("finishing"); stop = {}; }),
        vigil::on_recv(lines, [&](std::optional<std::string> line) { more = line.has_value(); }));
  }
  //! [done_once]
}

//! [value]
const vigil::context_key<std::string> user;  // with static storage

void greet(const vigil::context& ctx) {
  const std::string* name = ctx.value(user);
  std::printf("hello, %s\n", name != nullptr ? name->c_str() : "stranger");
}

void greetings() {
  greet(vigil::background());
  greet(vigil::with_value(vigil::background(), user, "ada"));
}
//! [value]

void when_done() {
  auto limited = vigil::with_timeout(vigil::background(), 1s);
  const vigil::context ctx = limited.ctx;
  //! [after_func]
  auto cleanup = vigil::after_func(ctx, [] { std::puts("too late: cleaning up"); });
  vigil::sleep_for(2s);                     // the work
  if (cleanup.stop()) std::puts("in time");  // it will not run
  //! [after_func]
}

void tokens() {
  //! [tokens]
  std::stop_source source;
  auto it = vigil::with_stop_token(vigil::background(), source.get_token());
  std::stop_token token = vigil::stop_token_of(it.ctx);  // for a library that takes one
  source.request_stop();
  //! [tokens]
  std::printf("%d %d\n", it.ctx.is_done(), token.stop_requested());
}

int work(int n, const vigil::context& ctx) {
  vigil::sleep_for(n * 1ms, ctx);
  if (n == 3) throw std::runtime_error("three");
  return n * n;
}

void groups() {
  //! [group]
  vigil::group g;  // or g(ctx): its context is made from ctx
  for (int n = 1; n <= 5; ++n)
    g.go([n](const vigil::context& ctx) { work(n, ctx); });
  try {
    g.wait();
  } catch (const std::runtime_error& e) {
    std::printf("stopped by %s\n", e.what());  // 4 and 5 were cancelled
  }
  //! [group]
}

void results() {
  //! [results]
  vigil::group_of<int> squares({.limit = 2});  // at most two at a time
  for (int n : {9, 8, 7})
    squares.go([n](const vigil::context& ctx) { return work(n, ctx); });
  for (int square : squares.wait())
    std::printf("%d\n", square);
  //! [results]
}

}  // namespace

int main() {
  return vigil::testing::run_virtual([] {
    hello();
    capture();
    tree();
    cause();
    in_a_select();
    goes_on_after_it();
    greetings();
    when_done();
    tokens();
    groups();
    results();
  });
}
