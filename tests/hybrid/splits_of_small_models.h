#pragma once
// Models of up to six operators, and what all of their splits cost: worked out anew from loops, not by the table that
// searches read.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/core/collective_times.h"
#include "sim/core/layout.h"
#include "sim/core/op_loop.h"
#include "sim/core/problem.h"

namespace plimsoll {

/// So many operators with their backwards, the last one a loss: products or convolutions, elementwise ops and sums of
/// two values, so that there are branches; on the first so many devices of one node.
Problem small_model(std::uint64_t seed, std::uint32_t operators, std::uint32_t devices);

/// The operators of such a model, each with every way to cut it along the axes of a mesh.
class AllSplits {
 public:
  AllSplits(const Problem&, Mesh);

  /// By operator: which of its ways.
  using Choices = std::vector<std::uint32_t>;

  std::size_t operators() const { return operators_.size(); }
  std::size_t ways(std::size_t o) const { return operators_[o].ways.size(); }
  /// By axis: the dimension of the forward op's loop.
  const std::vector<std::optional<std::uint8_t>>& cuts(std::size_t o, std::uint32_t way) const;

  /// As the bulk-synchronous model has it: work, sums of gradients and, for every reader, relayouts; all one after the
  /// other.
  double cost(const Choices&) const;
  /// What an iteration takes at least: work, and of every value that is made or given the relayout to its first reader.
  double bound(const Choices&) const;

  SplitPlan plan(const Choices&) const;

  /// Visits all choices whose cost, or bound, is below the limit, which may fall while it runs. How many were visited.
  std::size_t visit(bool by_bound, const double& limit, const std::function<void(const Choices&)>&) const;

 private:
  struct Way {
    std::vector<std::optional<std::string>> names;  ///< by axis: of the dimension that is cut
    std::vector<std::optional<std::uint8_t>> cuts;
    double work = 0, sums = 0;
  };
  struct Operator {
    std::vector<OpId> ops;  ///< forward first
    std::vector<Way> ways;
  };
  /// A value from one operator to another, or to itself, by their ways.
  struct Use {
    std::size_t one = 0, other = 0;  ///< operators, one <= other
    bool is_first = false;           ///< reader of the value
    std::vector<double> seconds;     ///< [way of one][way of other], row by row
  };

  Layout layout(OpId, std::size_t operand, bool is_output, const Way&) const;
  double bytes(TensorId, const Layout&) const;
  double relayout(TensorId, const Layout& from, const Layout& to);
  void add_ways(Operator&);
  void add_uses();
  double price(const Choices&, std::size_t operators, bool by_bound) const;
  double added(const Choices&, std::size_t o, bool by_bound) const;

  const Problem& problem_;
  Mesh mesh_;
  CollectiveTimes times_;
  std::vector<OpLoop> loops_;  ///< by op
  std::vector<Operator> operators_;
  std::vector<Use> uses_;
};

}  // namespace plimsoll
