#pragma once
// What no schedule without copies can beat because of several instants together, and plans from them: an integer
// program. Between two instants an op runs or does not, at an instant a value is there or is not.
// It is Checkmate's program (Jain et al., MLSys 2020) with few stages, without an order of first runs.

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/bound/linear_program.h"
#include "sim/bound/snapshot_model.h"

namespace plimsoll {

/// Ops of which each needs the one before, whose weights, which are above 0, have the largest sum; but for those that
/// save only on some runs.
std::vector<OpId> heaviest_path(const SnapshotModel&, std::span<const double> weights);

class InstantsProgram {
 public:
  /// The model must outlive it. Each of `ops` needs the one before.
  InstantsProgram(const SnapshotModel&, std::span<const OpId> ops);

  /// Of what fits the budget and runs no more again than `known`, which may be infinite; nothing where no schedule
  /// fits.
  std::optional<LinearProgram> within(Bytes budget, Seconds known) const;
  /// What runs again, where the program's sum of costs is that.
  Seconds extra(double cost) const;
  /// The runs of a solution, ops of the model; they may need more memory than the budget.
  std::vector<std::uint32_t> order_of(const std::vector<double>& values) const;

  std::size_t nonzeros() const { return program_.nonzeros; }
  std::size_t variables() const { return program_.variables.size(); }

 private:
  using Variables = std::vector<std::vector<std::optional<std::size_t>>>;  // by interval, then by op or value

  bool has_values(std::uint32_t op) const;
  void add_variables();
  void add_runs();
  void add_reads();
  void add_memory();
  std::optional<std::size_t> made(std::size_t interval, std::uint32_t value) const;

  const SnapshotModel& model_;
  std::vector<Instant> instants_;
  LinearProgram program_;
  Variables runs_;   // in interval j, from instant j on; interval 0 comes before the first instant
  Variables loads_;  // likewise, of the network's inputs
  Variables there_;  // at the begin of interval j
  std::vector<std::pair<std::size_t, Bytes>> limited_;  // rows that the budget limits, and what is beside values then
  double byte_unit_ = 1, time_unit_ = 1;
  double once_ = 0;  // seconds: of all that runs, once each
};

}  // namespace plimsoll
