#pragma once
// Two-phase rounding of Checkmate's relaxation: first what is kept (S) becomes 0 or 1, then as little as possible runs.
// Source: Jain et al., "Checkmate", MLSys 2020, section 5 (algorithm 2) and the released code.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "strategies/api/deadline.h"
#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/rematerialization/programs/checkmate_model.h"
#include "strategies/solve/milp.h"

namespace plimsoll {

/// By stage and value: there when the stage begins.
using Kept = std::vector<std::vector<bool>>;

/// The fewest runs that keep this; nothing where something that runs once would have to run again.
std::optional<OpSequence> least_runs(const OpModel&, Kept);

/// Whether every op finds what it reads and none that runs once is repeated.
bool is_runnable(const OpModel&, const OpSequence&);

// Answers budgets by Checkmate's integer program (checkmate_model.h), beginning with the best plan that is known.

struct CheckmateEffort {
  Formulation formulation = Formulation::tight;
  MilpLimits limits;                                               ///< seconds: for all that is done for one budget
  std::size_t most_ops = std::numeric_limits<std::size_t>::max();  ///< beyond, only what is known is answered
};

class CheckmateSolver {
 public:
  /// `known`: plans to begin with, one at least.
  CheckmateSolver(const PartTask&, OpModel, CheckmateEffort, PlanPool known);

  /// The fastest plan within the limit, with its proven gap.
  TapeOutcome solve(std::optional<Bytes> limit);

  /// Budgets at which the answer changes, where the program is solved within each in time; else a guess, too.
  std::vector<Bytes> candidates();

 private:
  /// What the program says for one budget.
  struct Answer {
    std::optional<OpSequence> sequence;
    double bound = 0;         ///< seconds of one micro-batch
    bool infeasible = false;  ///< proven
    std::string stopped;      ///< by which limit, if by one
    bool refused = false;     ///< there is no program
  };

  double repeats() const { return static_cast<double>(task_.problem.micro_batches); }
  PlannedTape with_gap(PlannedTape, double bound) const;
  Answer ask(Bytes budget, double seconds) const;
  void find_smallest(const Deadline&);
  Bytes least_possible(const Deadline&) const;

  const PartTask& task_;
  OpModel model_;
  CheckmateEffort effort_;
  PlanPool known_;
  Seconds work_;        // of one micro-batch
  double updates_ = 0;  // seconds
  std::optional<PlannedTape> least_;
  std::string least_stopped_;  ///< which limit ended the search for it; empty: it is proven
};

}  // namespace plimsoll
