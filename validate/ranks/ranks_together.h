#pragma once
// What each rank of a mesh begins with, and what all of them end with: shares of the whole, and the whole of them.

#include <map>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "validate/networks/network.h"
#include "validate/networks/rank_layouts.h"
#include "validate/replay_plan.h"
#include "validate/replayed.h"

namespace plimsoll {

/// What one rank reads before its first step.
struct RankStart {
  Batch batch;
  std::map<std::string, std::vector<std::byte>> values;  ///< parameters and states, by name
};

class RanksTogether {
 public:
  using Outcome = std::variant<Replayed, ReplayFailure>;

  /// `rank`: the graph that ranks run, whose tensors lie so in the network's.
  RanksTogether(Network whole, const Graph& rank, std::vector<RankLayout>, Mesh);

  std::uint32_t ranks() const { return mesh_.ranks(); }

  /// Its share of the inputs and of what the options give; labels are those of all rows, of which kernels take their
  /// own.
  RankStart start_of(std::uint32_t rank, std::uint32_t micro_batches, const ReplayOptions&) const;

  /// Dates and peaks of the first rank, parameters and states put together from all: ranks that have the same must have
  /// the same bits.
  Outcome put_together(std::span<const Outcome> by_rank) const;

 private:
  std::vector<RankPiece> pieces(TensorId, std::uint32_t rank) const;
  std::pair<std::uint32_t, std::uint32_t> replica_of(std::uint32_t rank) const;
  Score score_of_all(std::span<const Outcome>) const;
  bool is_gradient(const std::string& name) const;

  Network whole_;
  std::vector<Bytes> bytes_;  // by tensor of a rank's graph
  std::vector<RankLayout> layouts_;
  Mesh mesh_;
};

/// Why no backend's ranks run schedules whose gradients are approximations; nothing for others.
std::optional<ReplayFailure> refused_on_ranks(const Problem&, const Schedule&);

/// A run that failed says this where it is a consequence of another rank's failure.
inline constexpr std::string_view other_rank_failed = "another rank has failed";

}  // namespace plimsoll
