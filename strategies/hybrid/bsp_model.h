#pragma once
// The cost of splits in the bulk-synchronous model: of each operator the work of a rank, and what ranks exchange, each
// collective a superstep of g seconds a byte and l seconds beside. No profiling: shapes, rates and links are enough.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "sim/mesh/collective_times.h"
#include "sim/model/problem.h"
#include "sim/ops/op_loop.h"
#include "sim/ops/operators.h"
#include "strategies/hybrid/split_table.h"

namespace plimsoll {

/// How long a rank computes.
enum class WorkModel : std::uint8_t {
  symbolic,   ///< the longer of computing and moving: flops / peak, bytes / bandwidth; or its share of the trace's time
  simulated,  ///< as the simulator takes it: a launch more for each op
};

/// By operator and axis: the dimension that is cut.
using SplitCuts = std::vector<std::vector<std::optional<std::uint8_t>>>;

/// The operators of a problem's graph, prepared once. Linear in the graph.
class BspModel {
 public:
  /// Or in one sentence why there is none: an op of an operator has no loop.
  static std::variant<BspModel, std::string> of(const Problem&, WorkModel);

  std::size_t operators() const { return operators_.size(); }
  std::string_view name(std::size_t op) const { return problem_->graph[operators_[op].op.forward].name; }

  /// The table for the axes of the mesh from `first` to before `last`, where operators have been cut along those before
  /// `first`: by operator and axis. The first choice is to cut nothing.
  SplitTable table(const Mesh&, std::size_t first, std::size_t last, const SplitCuts& before, CollectiveTimes&) const;

  /// The table for all axes of the mesh, with these choices of each operator as far as its dimensions can be cut so.
  SplitTable table(const Mesh&, const std::vector<std::vector<std::vector<std::optional<std::uint8_t>>>>& choices,
                   CollectiveTimes&) const;

  /// Adds what a rank keeps to a table for these axes: parameters, states and what the backward reads when the forward
  /// is over; parameters, states and gradients when the backward is. Copies in other layouts and workspaces are not
  /// counted, so that no plan that stores all needs less.
  void add_memory(SplitTable&, const Mesh&, std::size_t first, const SplitCuts& before) const;

  /// Choices for a search with all axes in view: of each operator its own cuts, those of the operators beside it (by
  /// the names of dimensions), and one dimension along the first `outer` axes with one along the others.
  std::vector<std::vector<std::vector<std::optional<std::uint8_t>>>> choices_around(
      const std::vector<std::vector<std::optional<std::uint8_t>>>& cuts, std::size_t outer) const;

  /// For each name of a dimension: operators that have it are cut along it by the first `outer` axes, where they can;
  /// by the others they are cut as is cheapest beside those before them. Then those where all axes cut it. The cheapest
  /// few of them, and the first choices.
  std::vector<SplitChoices> uniform_starts(const SplitTable&, std::size_t outer, double weight) const;

  /// Of all ops, from the operators' cuts.
  SplitPlan plan(Mesh, const std::vector<std::vector<std::optional<std::uint8_t>>>& cuts) const;

 private:
  using Cuts = std::vector<std::optional<std::uint8_t>>;

  /// One op of an operator, with its loop's dimensions in those of the operator.
  struct Member {
    OpId op;
    OpLoop loop;
    std::vector<std::uint8_t> of_operator;  ///< by dimension of the loop; no_dim: the operator does not cut it
    std::vector<std::uint8_t> of_loop;      ///< by dimension of the operator; no_dim: the op lacks it
  };
  struct OperatorDims {
    Operator op;
    std::vector<LoopDim> dims;
    std::vector<std::uint32_t> members;  ///< in a row
    std::uint32_t like = 0;              ///< the first operator that is alike
  };
  /// A value from the member that makes it, or is the first to read it, to another that reads it. Of the gradient of a
  /// parameter: from one that adds to it to another, which must do it alike.
  struct Use {
    enum class Kind : std::uint8_t { made, given, summed };
    Kind kind = Kind::made;
    std::uint32_t from = 0, to = 0;                  ///< members
    std::uint32_t from_operand = 0, to_operand = 0;  ///< among outputs or inputs, as the kind says
    Bytes bytes;                                     ///< of the whole value
  };
  /// All that goes between two operators, from < to, or within one.
  struct Between {
    std::uint32_t from = 0, to = 0;
    std::vector<std::uint32_t> uses;
    std::uint32_t like = 0;  ///< the first of those that are alike, but for the operators
  };
  class Table;

  /// A value as the member that makes it, or reads it first, lays it out.
  struct Source {
    std::uint32_t member = UINT32_MAX, operand = 0;
    bool is_made = false;
  };

  void find_uses(const std::vector<std::uint32_t>& member_of);
  void find_alike();

  static constexpr std::uint8_t no_dim = UINT8_MAX;

  /// Of the axes before `first` and of those from there on.
  std::int64_t ranks_that_share(const Source&, const Mesh&, std::size_t first, const Cuts& before,
                                const Cuts& now) const;

  Cuts cuts_of(const Member&, const Cuts& of_operator) const;

  const Problem* problem_ = nullptr;
  WorkModel work_ = WorkModel::symbolic;
  std::vector<OperatorDims> operators_;
  std::vector<Member> members_;
  std::vector<std::uint32_t> operator_of_;  ///< by member
  std::vector<Source> sources_;             ///< by tensor
  std::vector<Use> uses_;
  std::vector<Between> between_;
};

}  // namespace plimsoll
