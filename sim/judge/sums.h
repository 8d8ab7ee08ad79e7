#pragma once
// What has been summed into a gradient: which contributions, byte range by byte range. A contribution is a small whole
// number that the judge gives to one run of one op.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/units.h"

namespace plimsoll {

class Contributions {
 public:
  /// False where it is there already.
  bool add(std::size_t contribution);
  /// False where some are in both.
  bool add(const Contributions&);
  bool has(std::size_t contribution) const;
  std::size_t count() const { return count_; }

  friend bool operator==(const Contributions&, const Contributions&);

 private:
  std::vector<std::uint64_t> words_;  ///< bit i: contribution i is there
  std::size_t count_ = 0;
};

class RangedSums {
 public:
  RangedSums() = default;
  /// Nothing has been summed into this range yet.
  RangedSums(Bytes offset, Bytes length);

  /// Into the whole range; false where it is there already.
  bool add(std::size_t contribution);
  /// What others hold of the same bytes; false where a contribution is in both.
  bool add(const RangedSums&);
  RangedSums within(Bytes offset, Bytes length) const;
  /// Whether every byte has this many contributions.
  bool all_have(std::size_t count) const;

 private:
  struct Part {
    std::int64_t offset = 0, end = 0;
    Contributions held;
  };
  void join_equal_neighbours();

  std::vector<Part> parts_;  ///< in order, without gaps; one part also where the range is empty
};

}  // namespace plimsoll
