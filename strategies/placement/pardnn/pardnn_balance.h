#pragma once
// ParDNN's memory heuristic II: long paths are split before they are mapped, and parameters are balanced afterwards.

#include <vector>

#include "strategies/placement/pardnn/pardnn_mapping.h"
#include "strategies/placement/units.h"

namespace plimsoll {

/// As many primaries as asked for. If the first has more bytes than twice the mean of the others, they get consecutive
/// pieces of it, up to where all have as many; each cut is where least is sent along the path, within a tenth of a
/// share. Bytes are values made, and residents with the first unit that uses them. A unit stays in the piece of its
/// first node; a backward node of no unit that is there goes with the node before it. `transfer` is by edge in the
/// order of OpDag::out.
Slices with_split_path(const OpDag&, const Units&, std::span<const Nanoseconds> transfer, std::size_t primaries,
                       Slices);

/// By processor of the machine: its share of all residents plus its share of all values made. They sum to 2.
std::vector<double> memory_ratios(const OpDag&, std::size_t processors, std::span<const std::uint32_t> on);

/// Units that use residents, the largest first, leave the processor of the field with the largest ratio for that with
/// the smallest, each if the larger of the two ratios falls, until all are equal or none is left.
std::vector<std::uint32_t> with_balanced_residents(const OpDag&, const Units&, std::vector<std::uint32_t> on);

}  // namespace plimsoll
