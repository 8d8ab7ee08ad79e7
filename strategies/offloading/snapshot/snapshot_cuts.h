#pragma once
// What an instant of the iteration keeps in memory, and what runs again for that: all best trades of bytes for time, by
// minimum cuts (/docs/strategies/rematerialization/snapshot.md).

#include <cstdint>
#include <vector>

#include "strategies/models/op_model.h"

namespace plimsoll {

/// By op: whether it runs again after the instant.
using Again = std::vector<bool>;

struct SnapshotBend {
  Again again;
  Bytes kept;  ///< of values that are read after the instant and not made again, beside what the instant's op uses
  double seconds = 0;  ///< of what runs again
};

/// All of an instant's op, and what no schedule without copies can beat because of them.
class SnapshotFront {
 public:
  SnapshotFront(const PartTask&, const OpModel&, std::uint32_t instant);

  /// From the fewest bytes kept, and most seconds, to all.
  const std::vector<SnapshotBend>& bends() const { return bends_; }
  /// Infinite: no schedule fits.
  Seconds bound(Bytes budget) const;
  /// The least of one micro-batch: what all its ops take once, and what their second runs add; infinite: none fits.
  Seconds once() const { return Seconds{work_}; }
  Seconds again(Bytes budget) const { return Seconds{extra(budget - bytes_.front())}; }
  /// What the instant's op must have in memory; that and the least that must be kept beside it.
  Bytes at_instant() const { return bytes_.front(); }
  Bytes least() const { return bytes_.front() + points_.front().kept; }

 private:
  struct Point {
    Bytes kept;
    double seconds = 0;
  };
  double extra(Bytes room) const;

  std::vector<SnapshotBend> bends_;
  std::vector<Point> points_;  // as bounds see them
  std::vector<Bytes> bytes_;   // beside what is kept: in the first micro-batch, and in a later one if there is one
  std::uint32_t repeats_;
  double updates_ = 0, work_ = 0;  // seconds; of a micro-batch
};

/// The bytes that an instant keeps, recounted op by op.
class KeptBytes {
 public:
  KeptBytes(const OpModel&, std::uint32_t instant);

  void set(std::uint32_t op, bool again);
  void set_all(const Again&);
  const Again& again() const { return again_; }
  Bytes kept() const { return kept_; }
  double seconds() const { return seconds_; }

 private:
  void recount(std::uint32_t value);

  const OpModel* model_;
  std::uint32_t instant_;
  Again again_;
  std::vector<bool> counted_, free_;                 // by value: it is kept; by storage: the op of the instant uses it
  std::vector<std::uint32_t> readers_, in_storage_;  // by value: that run after the instant; by storage: kept values
  Bytes kept_;
  double seconds_ = 0;
};

/// Of an op that runs again: the least of its ways.
double seconds_again(const ModelOp&);

}  // namespace plimsoll
