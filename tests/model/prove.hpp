// prove(): a program shows no fault in any interleaving within the bounds.
//
// The suite runs with at most 2 preemptions and 1 stale read; VIGIL_LONG=1 with 3 and 2,
// and without any bound where the states are fewer than ten million.
//
// Where the build has a planted fault (faults/), VIGIL_EXPECT_FAULT=1 turns the test
// round: some program must show a fault, and its schedule must lead to it again.
#pragma once

#include "explorer/explorer.hpp"

#include <functional>
#include <set>
#include <string>

enum class also {
  nothing,
  unbounded,  // small enough to be run whole in the suite
};

// `name` appears in the table that VIGIL_MODEL_TABLE=FILE collects.
void prove(const char* name, const std::function<void()>& program, also more = also::nothing);

// In the long form only: too large for the suite.
void prove_at_length(const char* name, const std::function<void()>& program);

// The programs proved since the last call have noted (model::note_outcome) these outcomes
// and no other, so the proofs leave none of them out. Does nothing where a fault is
// expected, or not all proofs run.
void expect_outcomes(const std::set<std::string>& all);
