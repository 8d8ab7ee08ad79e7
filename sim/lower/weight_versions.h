#pragma once
// What lowering knows of the versions of parameters where updates come within an iteration: which one a part's
// micro-batch reads, which updates are due, and which versions nobody reads any more.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "sim/lower/live_copies.h"

namespace plimsoll {

class WeightVersions {
 public:
  WeightVersions(const Problem& problem, const Partition& partition, LiveCopies& copies)
      : problem_(problem), partition_(partition), copies_(copies), updates_(partition.updates) {}

  /// Whether updates come within the iteration.
  bool come_within() const { return !updates_.are_synchronous(); }

  /// Finds the updates of each part. Throws CannotLower where a parameter is not one part's alone, or a tape moves
  /// parameters, gradients or states.
  void find_updates(std::span<const Tape>);
  const std::vector<OpId>& updates_of(PartId part) const { return parts_[part.index].updates; }

  /// The key of what the op reads, from that of a value without versions: a parameter that has versions, in the one
  /// that the micro-batch reads: of stashed ones the newest at the first call. An update in place makes the newest
  /// version the next one.
  CopyKey key(const Op&, TensorId, PartId, std::uint32_t micro_batch, CopyKey);
  /// Whether an update must leave the parameter's newest version, which is still read, and make another beside it.
  bool leaves(TensorId t, PartId part) const { return has(t) && is_read(part); }
  static CopyKey next(CopyKey version) {
    ++version.micro_batch;
    return version;
  }

  /// The part has done all that it does for the micro-batch; the version that nobody reads any more dies.
  void end(PartId, std::uint32_t micro_batch);
  /// Whether the part's next update has its gradients.
  bool is_due(PartId) const;
  std::uint32_t newest(PartId part) const { return parts_[part.index].newest; }
  /// The part's next update has been issued: its gradients die.
  void updated(PartId);

  /// Updates that come before a micro-batch's own and that it does not read, at most.
  std::uint32_t staleness() const { return staleness_; }

 private:
  struct OfPart {
    std::vector<OpId> updates;
    std::vector<TensorId> parameters, gradients;     ///< that the updates change and read
    std::vector<std::optional<std::uint32_t>> read;  ///< version by micro-batch
    std::vector<std::uint32_t> readers;              ///< by version: micro-batches that have not ended
    std::vector<std::uint32_t> ended;                ///< by update: micro-batches
    std::uint32_t newest = 0;
  };

  bool has(TensorId t) const { return come_within() && is_updated_[problem_.graph[t].storage.index]; }
  bool is_read(PartId part) const { return parts_[part.index].readers[newest(part)] > 0; }
  DeviceId device_of(PartId part) const { return partition_.parts[part.index].device; }
  void find_owners();
  void read(OfPart&, std::uint32_t micro_batch, std::uint32_t version);
  void refuse_moves(const Tape&) const;

  const Problem& problem_;
  const Partition& partition_;
  LiveCopies& copies_;
  Updates updates_;
  std::vector<bool> is_updated_;        // by storage of a parameter
  std::map<StorageId, PartId> owners_;  // of parameters and gradients
  std::vector<OfPart> parts_;
  std::uint32_t staleness_ = 0;
};

}  // namespace plimsoll
