#pragma once
// The forward in segments, each of which is kept, or runs again right before its backward from what lies between
// segments: how long they are and what of each is kept, by dynamic programming over the memory that is saved by then.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "strategies/models/op_model.h"
#include "strategies/offloading/snapshot/snapshot_cuts.h"

namespace plimsoll {

/// For rows of layers and of time steps, whose inputs do not all fit. What a segment takes is measured on the plan in
/// which it alone runs again. That of several is the sum where they share nothing.
class SegmentPlans {
 public:
  /// `instant`: an op of the model, at which all that is kept is there. What runs again of a segment is that of one of
  /// the bends. The model and the bends must outlive it.
  SegmentPlans(const OpModel&, std::uint32_t instant, std::span<const SnapshotBend> bends);

  /// The fastest choice that fits by these sums; nothing where none does. `from_kept`: values between two segments may
  /// run again, too, from what the first keeps; sums are then less exact.
  std::optional<Again> within(Bytes budget, bool from_kept) const;

 private:
  /// Units from `first` on, up to `end`, at which the next segment begins.
  struct Segment {
    std::size_t first = 0, end = 0;
    std::vector<std::uint32_t> again;  // ops
    bool from_kept = false;
    double seconds = 0;
    std::int64_t saved = 0;  // bytes, from the end of its forward to the begin of its backward
    std::int64_t needs = 0;  // most that is there during both, if nothing else runs again
  };
  /// Most memory that is there at each op's first run, and at what runs again right before it.
  struct Profile {
    std::vector<std::int64_t> bytes;  // by op
    double seconds = 0;               // of what runs again
  };

  void find_units();
  void find_backward_units();
  bool is_short(std::uint32_t value) const;
  std::optional<std::uint32_t> last_read(std::uint32_t value) const;
  std::vector<std::uint32_t> run_again(const Again&, std::size_t first, std::size_t end, bool from_kept) const;
  std::optional<Profile> profile_of(std::span<const std::uint32_t> again) const;
  void measure(std::size_t first, std::size_t end, std::vector<std::uint32_t> again, bool from_kept);

  const OpModel& model_;
  std::uint32_t instant_;
  std::vector<std::uint32_t> begins_;  // of units: ops; one more at the end
  std::vector<std::size_t> unit_of_;   // by op: which one's forward or backward it is
  std::vector<double> again_seconds_;  // by op of the graph
  Profile plain_;
  std::vector<std::vector<Segment>> segments_;  // by first unit
};

}  // namespace plimsoll
