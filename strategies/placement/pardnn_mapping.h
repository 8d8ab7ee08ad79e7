#pragma once
// ParDNN's second stage: which processor gets which path.

#include <variant>
#include <vector>

#include "strategies/placement/pardnn_slices.h"
#include "strategies/placement/units.h"

namespace plimsoll {

/// A graph with its slices, and where each node is.
struct PardnnMapping {
  Units units;
  Slices slices;
  std::vector<std::uint32_t> on;  ///< by node: processor; groups are not together yet
};

/// Slices for each processor of the units' field, of what all of it can run, and where they go: locality first, then
/// by loads. What the field cannot run is where Assignment puts it. Levels have mean times and transfers, loads the
/// times on their processor.
PardnnMapping pardnn_mapping(const OpDag&, const Machine&, Units);

/// Each group of nodes goes where its nodes have been for the longest time and with which they would exchange the most.
void collocate(const OpDag&, const Machine&, const Units&, std::vector<std::uint32_t>& on);

}  // namespace plimsoll
