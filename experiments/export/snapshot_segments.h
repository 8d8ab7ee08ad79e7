#pragma once
// Which memory an allocator holds while a snapshot's history goes on, forward or back.

#include <map>
#include <optional>

#include "experiments/export/memory_snapshot.h"

namespace plimsoll {

/// Memory taken from the device: a segment, or a mapped range of an expandable one.
struct HeldRange {
  std::int64_t begin = 0, end = 0;  ///< addresses
  std::int64_t stream = 0;          ///< PyTorch's handle
  SnapshotPool pool{};
  bool small = false, expandable = false;

  Bytes size() const { return {end - begin}; }
  /// Whether both are of the same expandable segment.
  bool is_of_one_segment_with(const HeldRange&) const;
};

/// All that is held. Mapped ranges of one expandable segment that touch are one.
class HeldMemory {
 public:
  /// Whether nothing of it was held.
  bool add(HeldRange);

  /// Takes a range out of what is held, whole segments only or any part of an expandable one. Whether it was there.
  bool take(std::int64_t address, Bytes size);

  /// The range that holds this address.
  std::optional<HeldRange> around(std::int64_t address) const;

  /// A range that was mapped once: as what lies nearest to it on its stream, since segments lie far apart.
  HeldRange like_its_neighbour(std::int64_t address, Bytes size, std::int64_t stream) const;

  const std::map<std::int64_t, HeldRange>& ranges() const { return ranges_; }

 private:
  std::map<std::int64_t, HeldRange> ranges_;  ///< by address
};

}  // namespace plimsoll
