// The requests of a test's program to the explorer, beside its own work: explorer.hpp.
#include "explorer/engine.hpp"

#include <string>
#include <utility>

namespace model {

void require(bool holds, const char* what) {
  if (holds || engine_of_program() == nullptr) return;
  engine& e = *the_engine;
  const inside_engine guard(e);
  e.trace(__builtin_return_address(0), "requirement does not hold: %s", what);
  e.fail(std::string("requirement does not hold: ") + what);
}

window::window() {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.open_window();
}

namespace {

bool others_rest(void* me) {
  engine& e = engine::get();
  for (unsigned t = 0; t < max_threads; ++t) {
    const thread& other = e.of(t);
    const bool ends_a_window =
        other.state == thread_state::waiting && other.condition == others_rest;
    if (&other != me && !ends_a_window && e.can_run(t)) return false;
  }
  return true;
}

void let_others_rest(engine& e) {
  thread& self = e.of(e.current());
  self.condition = others_rest;
  self.condition_argument = &self;
  self.state = thread_state::waiting;
  self.next = {};
  e.block();
}

}  // namespace

// The other threads finish inside the window what they have begun there: the window's
// thread goes on when none of them can.
window::~window() {
  engine& e = engine::get();
  const inside_engine guard(e);
  let_others_rest(e);
  e.close_window();
}

void wait_until(bool (*condition)(void*), void* argument) {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.reach({});
  thread& self = e.of(e.current());
  self.condition = condition;
  self.condition_argument = argument;
  self.state = thread_state::waiting;
  e.block();
  // The successful look is repeated as the thread's own: it acquires as the program's
  // loads do.
  e.observing = true;
  e.inside = false;
  condition(argument);
  e.inside = true;
  e.observing = false;
}

void enough() {
  engine& e = engine::get();
  const inside_engine guard(e);
  let_others_rest(e);
  e.end_run();
}

std::int64_t now() {
  return engine::get().clock;
}

void advance(std::int64_t nanoseconds) {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.reach({clock_location, true});
  e.clock += nanoseconds;
}

void note_outcome(const std::string& text) {
  engine& e = engine::get();
  const inside_engine guard(e);
  e.outcomes.insert(std::string(text.c_str()));
}

std::set<std::string> take_outcomes() {
  return std::exchange(engine::get().outcomes, {});
}

}  // namespace model
