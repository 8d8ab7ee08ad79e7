#pragma once
// Checkmate's integer program. Stage t ends with the first run of op t; R says which ops run in a stage, S which values
// are there when it begins, FREE after which op a value dies, U how much memory is in use.
// Source: Jain et al., "Checkmate: Breaking the Memory Wall with Optimal Tensor Rematerialization", MLSys 2020, section
// 4 and the released code. Differences: S and FREE are per value, not per op; a forward that saves nothing is a choice
// of its own (K: runs and saves); parameter gradients, workspaces, overwritten storages and the network's input are
// counted as tape_cost counts them (a view beside its base is counted twice); no noise on the costs. Where ops have
// alternatives (op_model.h), a run chooses one, as in MONeT (monet.cpp).

#include <optional>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/models/op_sequence.h"
#include "strategies/solve/milp.h"

namespace plimsoll {

/// What it costs to move values to the host and back, for POET's program (strategies/offloading/poet/poet.cpp).
struct Paging {
  Seconds latency_out, latency_in;  ///< of every copy
  double seconds_per_byte_out = 0, seconds_per_byte_in = 0;
  std::optional<double> seconds_of_energy_per_byte = {};  ///< energy is least: of a byte moved, over the device's power
  std::optional<Seconds> deadline = {};                   ///< of an iteration
};

/// A value that comes back from the host in a stage, and is read later.
struct PagedIn {
  std::uint32_t value = 0;
  std::size_t stage = 0;
};

/// kappa: FREE by the paper's pair of inequalities, equations (7); tight: by one inequality for each hazard.
enum class Formulation : std::uint8_t { tight, kappa };

/// Larger programs are not built: the solver's memory would not do.
inline constexpr std::size_t most_nonzeros = 2'000'000;

class CheckmateModel {
 public:
  /// With paging a stage takes as long as its runs, its copies out or its copies in, whichever is longest, and values
  /// that come back count from the stage's begin.
  CheckmateModel(const OpModel&, Bytes budget, Formulation, std::optional<Paging> = std::nullopt);

  /// False: the program is larger than most_nonzeros, and there is none.
  bool is_complete() const { return complete_; }
  const LinearProgram& program() const { return program_; }
  Seconds seconds(double objective) const { return Seconds{objective * time_unit_}; }

  /// The right-hand sides of another budget: (row, upper).
  std::vector<std::pair<std::size_t, double>> limits(Bytes budget) const;

  /// The plan that a solution with whole numbers means.
  OpSequence plan(const std::vector<double>& solution) const;

  /// What a solution with whole numbers brings back; what leaves follows from it.
  std::vector<PagedIn> paged_in(const std::vector<double>& solution) const;

  /// S of a solution, by stage and value.
  std::vector<std::vector<double>> kept(const std::vector<double>& solution) const;

  /// A solution that means the plan, for a start; nothing where first runs are not in the part's order.
  std::optional<std::vector<double>> solution(const OpSequence&) const;

 private:
  using Variables = std::vector<std::vector<std::optional<std::size_t>>>;  // by stage, then by op or value

  bool is_too_large() const;
  void build(Bytes budget, Formulation);
  void add_variables();
  void add_alternatives(std::size_t stage, std::size_t op);
  void add_paging_variables();
  void add_paging(std::size_t t);
  void add_durations();
  // The rows of stage t, of value v.
  void add_dependencies(std::size_t t);
  void add_overwriting(std::size_t t);
  void add_memory(std::size_t t, Bytes budget, Formulation formulation);
  void add_free(std::size_t t, std::uint32_t v, std::vector<LinearProgram::Terms>& freed, Formulation formulation);
  void add_hazards(std::size_t t, std::uint32_t v, std::size_t op, std::size_t free, Formulation formulation);

  LinearProgram::Terms made(std::size_t stage, std::uint32_t value) const;
  LinearProgram::Terms available(std::size_t stage, std::uint32_t value) const;
  std::optional<std::size_t> overwriter(std::uint32_t value) const;
  bool replaces_input(std::size_t op, std::uint32_t value) const;
  double scaled(Bytes bytes) const { return static_cast<double>(bytes.count) / byte_unit_; }

  const OpModel& model_;
  LinearProgram program_;
  using Choices = std::vector<std::vector<std::vector<std::size_t>>>;  // by stage and op: one an alternative
  Variables runs_, saves_, keeps_;                                     // R and K by stage and op; S by stage and value
  Choices alternatives_;                                               // of a run that saves
  std::optional<Paging> paging_;
  Variables on_host_, out_, in_;  // by stage and value: there when the stage begins, copied in the stage
  std::vector<std::pair<std::size_t, Bytes>> limited_;  // rows that the budget limits, and what is beside values then
  double byte_unit_ = 1, time_unit_ = 1;
  bool complete_ = false;
};

}  // namespace plimsoll
