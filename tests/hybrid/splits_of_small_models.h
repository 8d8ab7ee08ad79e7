#pragma once
// Models of up to six operators, and what all of their splits cost: worked out anew from loops, not by the table that
// searches read.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/mesh/collective_times.h"
#include "sim/mesh/layout.h"
#include "sim/model/problem.h"
#include "sim/ops/op_loop.h"
#include "tests/generate/random.h"

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
  Choices any(Random&) const;
  /// By axis: the dimension of the forward op's loop.
  const std::vector<std::optional<std::uint8_t>>& cuts(std::size_t o, std::uint32_t way) const;

  /// As the bulk-synchronous model has it: work, sums of gradients and, for every reader, relayouts; all one after the
  /// other.
  double cost(const Choices&) const;
  /// What an iteration takes at least. Op after op its launch and work, and of every value that is made or given the
  /// relayouts to its first reader and to its first one in the backward. The latter counts neither for partial sums
  /// that the forward has summed nor where the forward may have exchanged the shares so already. Beside them, one after
  /// the other, the sums of gradients, each not before its gradient is there.
  double bound(const Choices&) const;

  SplitPlan plan(const Choices&) const;

  /// Visits all choices whose cost, or bound, is below the limit, which may fall while it runs. How many were visited.
  std::size_t visit(bool by_bound, const double& limit, const std::function<void(const Choices&)>&) const;

 private:
  struct Way {
    std::vector<std::optional<std::string>> names;  ///< by axis: of the dimension that is cut
    std::vector<std::optional<std::uint8_t>> cuts;
    double work = 0, sums = 0;
    std::vector<double> work_of, sums_of;  ///< of each of the operator's ops; the work with its launch
  };
  struct Operator {
    std::vector<OpId> ops;  ///< forward first
    std::vector<Way> ways;
  };
  /// A value from one operator to another, or to itself, by their ways.
  struct Use {
    std::size_t one = 0, other = 0;  ///< operators, one <= other
    OpId reader;
    bool is_counted = false;      ///< in the bound
    std::vector<double> seconds;  ///< of the relayout, [way of one][way of other], row by row
    std::vector<double> least;    ///< the same, of what the bound counts
  };

  Layout layout(OpId, std::size_t operand, bool is_output, const Way&) const;
  double bytes(TensorId, const Layout&) const;
  double relayout(TensorId, const Layout& from, const Layout& to);
  void add_ways(Operator&);
  void add_uses();
  double launched(std::size_t o, const Way&) const;  ///< its work and the launches of its ops
  std::size_t place(const Use&, const Choices&) const;
  double added(const Choices&, std::size_t o, bool by_bound) const;

  const Problem& problem_;
  Mesh mesh_;
  CollectiveTimes times_;
  std::vector<OpLoop> loops_;  ///< by op
  std::vector<Operator> operators_;
  std::vector<Use> uses_;
  std::vector<std::vector<std::size_t>> counted_;              ///< by reader: of `uses_`
  std::vector<std::pair<std::size_t, std::size_t>> place_of_;  ///< by op: operator, and which of its ops
};

}  // namespace plimsoll
