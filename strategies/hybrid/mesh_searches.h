#pragma once
// The cheapest choices of a table of splits as an integer program (Alpa's, for one stage): one choice an operator, one
// pair of choices an edge.

#include <string>

#include "strategies/hybrid/split_table.h"
#include "strategies/solve/milp.h"

namespace plimsoll {

struct ProgrammedSplit {
  SplitChoices choices;
  Seconds bound;        ///< no choices cost less
  std::string stopped;  ///< which limit ended the search; empty: the choices are optimal
  bool out_of_time = false;
};

/// `start`: choices to begin with, and what is returned where nothing better is found.
ProgrammedSplit solve_split_program(const SplitTable&, const SplitChoices& start, const MilpLimits&);

}  // namespace plimsoll
