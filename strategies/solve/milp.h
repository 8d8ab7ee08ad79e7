#pragma once
// Linear programs with or without whole-number variables, solved by COIN-OR's CBC and CLP.

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sim/bound/linear_program.h"
#include "sim/core/units.h"

namespace plimsoll {

/// Wall time, all of the solver's phases included, which ends in a process of its own (limited_process.h).
struct MilpLimits {
  double seconds = 60;
  int nodes = 1'000'000;
  Bytes memory = Bytes{1'000'000'000};  ///< that the solver may take
};

struct MilpResult {
  enum class End { optimal, infeasible, out_of_time, out_of_nodes, out_of_memory };
  End end = End::out_of_time;
  std::vector<double> values;  ///< of the best solution found; empty if none
  double objective = 0, bound = -unbounded;
};

/// What ended it, where a limit did, with the name of the option that sets it; else empty.
std::string why_stopped(MilpResult::End, const MilpLimits&);

/// `start` may be empty: a solution to begin with (values of whole variables suffice).
MilpResult solve_milp(const LinearProgram&, std::span<const double> start, const MilpLimits&);

class Simplex;

/// The program without whole numbers, for several right-hand sides in a row: each begins where the last one ended.
class Relaxation {
 public:
  /// The solver looks at the clock between its iterations.
  Relaxation(const LinearProgram&, double seconds);
  ~Relaxation();
  Relaxation(const Relaxation&) = delete;
  Relaxation& operator=(const Relaxation&) = delete;

  void set_upper(std::size_t row, double upper);
  /// Values of the variables at the optimum, or nothing: infeasible, or out of time.
  std::optional<std::vector<double>> solve();

 private:
  std::unique_ptr<Simplex> simplex_;
};

}  // namespace plimsoll
