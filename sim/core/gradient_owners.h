#pragma once
// Parameters that several parts train: who owns each gradient, how the partial gradients of parts on other devices are
// summed there, and how the updated parameter comes back to them.

#include <cstdint>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "sim/core/live_copies.h"

namespace plimsoll {

class GradientOwners {
 public:
  GradientOwners(const Problem& problem, const Partition& partition, LiveCopies& copies)
      : problem_(problem), graph_(problem.graph), partition_(partition), copies_(copies) {}

  /// The first part of a replica that makes a gradient owns it; parts on other devices make partial gradients.
  void add_maker(TensorId gradient, const Part&);

  /// The owners of the gradient that the update reads, one a replica.
  std::vector<const Part*> of(const Op& update) const;

  /// After all micro-batches: each part sends its partial gradient to the owner, which adds it to its own.
  void sum();

  /// Copies of an updated parameter on other devices of the replica take its new value.
  void hand_out(const Op& update, const Part& owner);

 private:
  void sum_at_owner(TensorId gradient, const Part&);
  void refuse_unless_there(TensorId gradient, const CopyKey&, const Part&) const;
  void add_up(const CopyKey& from, const CopyKey& sum, const Part& owner);

  const Problem& problem_;
  const Graph& graph_;
  const Partition& partition_;
  LiveCopies& copies_;
  std::unordered_map<std::uint32_t, std::vector<const Part*>> owner_;  // of a parameter gradient, one a replica
  std::map<std::uint32_t, std::vector<const Part*>> partial_;          // other parts that make a part of it
  std::unordered_set<CopyKey, CopyKeyHash> handed_out_;                // copies of parameters with their new value
};

}  // namespace plimsoll
