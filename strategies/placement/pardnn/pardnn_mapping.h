#pragma once
// ParDNN's second stage: which processor gets which path.

#include <variant>
#include <vector>

#include "strategies/placement/pardnn/pardnn_slices.h"
#include "strategies/placement/units.h"

namespace plimsoll {

/// A graph with its slices, and where each node is.
struct PardnnMapping {
  Units units;
  Slices slices;
  std::vector<std::uint32_t> on;  ///< by node: processor; groups are not together yet
};

enum class LongestPath : std::uint8_t {
  whole,
  split,  ///< if it has most of the bytes: with_split_path()
};

/// Slices for each processor of the units' field, of what all of it can run, and where they go: locality first, then
/// by loads. What the field cannot run is where Assignment puts it. Levels have mean times and transfers, loads the
/// times on their processor.
PardnnMapping pardnn_mapping(const OpDag&, const Machine&, Units, LongestPath = LongestPath::whole);

}  // namespace plimsoll
