#pragma once
// A point's bounds against what both engines make of it.

#include <catch2/catch.hpp>
#include <span>

#include "experiments/study/model.h"
#include "sim/core/tolerance.h"
#include "tests/experiments/cluster_asked.h"

namespace plimsoll {

inline void check_cluster_bounds(const ClusterRow& row, const ClusterOutcome& outcome) {
  CAPTURE(row.as().text, row.point.samples, outcome.reason);
  if (outcome.makespan) {
    CHECK(row.bound.value <= outcome.makespan->value * (1 + sum_tolerance));
    CHECK(row.memory.total() <= outcome.peak);
  } else if (outcome.smallest) {
    CHECK(row.memory.total() <= *outcome.smallest);
  }
}

/// The same of the whole answer to the point's question, which SimGrid simulates; the outcome is the event engine's.
inline void check_cluster_bounds_in_simgrid(const ClusterProblems& problems, const ClusterRow& row,
                                            const ClusterOutcome& outcome) {
  CAPTURE(row.as().text, row.point.samples);
  Question question = problems.of(row.point, row.as());
  question.engine = Engine::simgrid;
  const BudgetedProblem made = budgeted_problem_of(question, load_model(question.trace), problems.platform());
  const Answer found = answer(question, made.problem, std::span(&made.budget, 1)).front();
  REQUIRE(found.feasible() == outcome.makespan.has_value());
  if (!found.feasible()) return;
  CHECK(row.bound.value <= found.metrics->makespan.value * (1 + sum_tolerance));
  CHECK(row.memory.total() <= found.metrics->peak);
}

}  // namespace plimsoll
