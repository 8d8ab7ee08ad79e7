#pragma once
// The graph that the ranks of a mesh run, and what its ops do otherwise than the network's because others have the
// rest: the same for every backend.

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "sim/model/problem.h"
#include "validate/networks/network.h"
#include "validate/networks/rank_layouts.h"
#include "validate/replay_plan.h"

namespace plimsoll {

/// Why ranks cannot run an op, in one sentence.
struct CannotRun {
  std::string what;
};

/// Numbers that a rank updates: of what it has of a parameter, or of the range that it keeps up to date.
struct RankUpdate {
  Graph numbers;
  Op op;                              ///< on these
  std::vector<std::int64_t> skipped;  ///< by input: bytes of the rank's tensor that come before them
};

class RankOps {
 public:
  RankOps(const Network& whole, const Problem&, std::vector<RankLayout>);

  /// Heads of an attention are those that the rank has.
  const Network& network() const { return network_; }
  const Mesh& mesh() const { return mesh_; }
  const std::vector<RankLayout>& layouts() const { return layouts_; }

  // What an op's output is may lie otherwise than the rank's tensor, where parts make it: `made`.
  /// Of a sum over ranks the first one alone adds the bias.
  bool leaves_bias_out(const Op&, const RankLayout& made, std::uint32_t rank) const;
  /// Of the gradient of the mean over a rank's rows: that over all rows is so much of it.
  float share_of_mean(const RankLayout& made) const;
  /// Of a tensor of (rows, classes): which of all rows the rank has.
  std::vector<std::int32_t> rows_of(RankLayout rows, std::uint32_t rank) const;
  /// Places of an attention's queries and of its keys in the whole sequence.
  std::vector<std::int32_t> positions(TensorId, std::uint32_t rank) const;
  /// Whose keys and values a rank computes with: those of a block come from so many places before it.
  std::uint32_t maker_of_block(const Op&, std::uint32_t rank) const;
  /// Nothing where there are more ranks than numbers.
  std::optional<RankUpdate> update_of(const Op&, std::uint32_t rank) const;
  /// Throws CannotRun: statistics of channels that are shared out.
  void judge_statistics(const Op&) const;

 private:
  Mesh mesh_;
  std::vector<RankLayout> layouts_;
  Network network_;
};

/// Labels of these rows; `of_all`: of the whole batch, null: a row's number modulo the classes.
std::vector<std::int32_t> labels_of(const std::vector<std::int32_t>& rows, const std::int32_t* of_all,
                                    std::int32_t classes);

/// Of a problem with a mesh, whose graph is one rank's of the network's. Or why ranks of no backend can run it.
std::variant<RankOps, ReplayFailure> rank_ops(const Network& whole, const Problem&);

}  // namespace plimsoll
