#pragma once
// Parameters that several parts train: how the partial gradients on their devices are summed, who updates the
// parameter, and how the updated parameter comes to the others.
//  - Copies of a part each update their own parameters: the gradients of all are all-reduced when the last contribution
//    to them has been issued, beside the backward that is left; one by one, or those of a bucket together.
//  - So do different parts that share a parameter, if the partition says so. Else the first one owns it: the others
//  send
//    it their partial gradients after all micro-batches, and get the new parameter.

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <unordered_set>
#include <vector>

#include "sim/lower/live_copies.h"

namespace plimsoll {

class GradientOwners {
 public:
  GradientOwners(const Problem& problem, const Partition& partition, LiveCopies& copies)
      : problem_(problem), graph_(problem.graph), partition_(partition), copies_(copies) {}

  /// The op, one of the part's, makes the gradient for so many micro-batches.
  void add_maker(TensorId gradient, OpId, const Part&, std::size_t micro_batches);

  /// Makers are all there.
  void begin();

  /// Who updates the parameter of the gradient that the update reads: each on another device.
  std::vector<const Part*> of(const Op& update) const;

  /// A contribution to the gradient has been issued.
  void contributed(TensorId gradient);

  /// After all micro-batches: what has not been all-reduced is summed at its owner.
  void sum();

  /// Copies of an updated parameter on devices that do not update it take its new value.
  void hand_out(const Op& update, const Part& owner);

 private:
  /// Of one gradient.
  struct Makers {
    std::vector<const Part*> parts;  ///< one a device
    std::set<OpId> ops;
    bool copied = false;          ///< an op is in several of the parts, or each of them updates the parameter
    std::size_t outstanding = 0;  ///< contributions
  };

  /// Gradients with the same copies, of which those that are complete wait for more.
  struct Bucket {
    std::vector<TensorId> gradients;
    Bytes bytes;
    std::size_t incomplete = 0;  ///< gradients that will still come
  };

  static bool has_copies(const Makers& makers) { return makers.copied && makers.parts.size() > 1; }
  void sum_copies(Bucket&, const std::vector<const Part*>& parts);
  void sum_at_owner(TensorId gradient, const Part&);
  void refuse_unless_there(TensorId gradient, const Part&) const;
  void add_up(const CopyKey& from, const CopyKey& sum, const Part& owner);

  const Problem& problem_;
  const Graph& graph_;
  const Partition& partition_;
  LiveCopies& copies_;
  std::map<TensorId, Makers> makers_;
  std::vector<Makers*> makers_of_;                       // by tensor, once all are there
  std::map<TensorId, const Op*> updating_;               // by parameter or state
  std::map<std::vector<const Part*>, Bucket> buckets_;   // by the parts that are copies
  std::unordered_set<CopyKey, CopyKeyHash> handed_out_;  // copies of parameters with their new value
};

}  // namespace plimsoll
