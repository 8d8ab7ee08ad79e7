#pragma once
// ParDNN's paths: a graph is cut into them, the heaviest first, and each gets a processor.

#include <optional>
#include <variant>
#include <vector>

#include "strategies/placement/op_dag.h"
#include "strategies/placement/units.h"

namespace plimsoll {

// ParDNN's first stage: a graph cut into paths, the heaviest first.

/// Paths, each a list of nodes in the order of their edges; every node that may be cut is in one.
struct Slices {
  std::vector<std::vector<std::uint32_t>> primary;    ///< heaviest first, one for each processor or fewer
  std::vector<std::vector<std::uint32_t>> secondary;  ///< in the order in which they are cut
};

/// So many primary paths from levels of what is left, the others from levels that are computed once with transfers
/// within primaries free. `time` is by node, `transfer` by edge in the order of OpDag::out. Nodes that `may_cut` does
/// not name are in no path; none goes over them.
Slices pardnn_slices(const OpDag&, std::span<const Nanoseconds> time, std::span<const Nanoseconds> transfer,
                     std::size_t primaries, const std::vector<bool>& may_cut);

/// Whether all its work is less than twice its longest path, with mean times and transfers.
bool is_thin(const OpDag&, const Machine&);

// What paths exchange with processors, as ParDNN weighs it: in mean transfers.

/// What a set of nodes exchanges with each processor; a value counts once for each that it goes to.
class Exchanged {
 public:
  /// `on` is by node: processor, or no_node; it may change between calls.
  Exchanged(const OpDag&, const Machine&, std::span<const std::uint32_t> on);

  /// By processor; behind them, with nodes that are nowhere yet. Until the next call.
  std::span<const Nanoseconds> by(std::span<const std::uint32_t> nodes);

 private:
  std::size_t slot(std::uint32_t v) const { return on_[v] == no_node ? with_.size() - 1 : on_[v]; }

  const OpDag& dag_;
  const Machine& machine_;
  const std::span<const std::uint32_t> on_;
  std::vector<Nanoseconds> with_, sent_;
  std::vector<bool> is_in_;
  std::vector<Nanoseconds> received_;  // by maker; less than 0: nothing
  std::vector<std::uint32_t> makers_;
};

// ParDNN's second stage: which processor gets which path.

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

// Where groups of nodes that share a processor go: after ParDNN has mapped paths, or before all else.

/// Each group of nodes goes where its nodes have been for the longest time and with which they would exchange the most.
void collocate(const OpDag&, const Machine&, const Units&, std::vector<std::uint32_t>& on);

/// By node: a processor of the field. Groups of several nodes are taken in the order of their first nodes, single nodes
/// are where the largest value is made that they read, or else read that they make. A group goes to the processor with
/// which it exchanges most of those whose share of all work of groups has room for half of it, or else to the one that
/// is filled least. Nothing where there is no group.
std::optional<std::vector<std::uint32_t>> near_groups(const OpDag&, const Machine&, const Units&);

}  // namespace plimsoll
