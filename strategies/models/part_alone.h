#pragma once
// A part of a pipeline as a problem of its own, for strategies that plan whole models on one device, and their tapes
// as the part's.

#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "strategies/api/strategy.h"

namespace plimsoll {

/// The part of a chain on its device as a chain and as a graph, which nothing else uses. What it receives and sends are
/// stages of no time at its ends; the one at the end waits for the other micro-batches in flight. Up to two
/// micro-batches follow each other: the first has new gradients, the second adds to them. Parameters that other parts
/// use too have no updates here: they are updated where their gradients are summed.
struct PartAlone {
  Problem problem;
  Partition partition;                 ///< one part
  std::vector<OpId> op_of;             ///< by op here: of the whole problem; no_op for what stands for transfers
  std::vector<TensorId> tensor_of;     ///< by tensor here; no_tensor where there is none
  std::vector<OpId> here;              ///< by op of the whole problem; no_op for those of other parts
  std::vector<TensorId> tensor_here;   ///< by tensor of the whole problem; no_tensor for those of other parts
  OpId receives = no_op;               ///< what comes from the part before
  OpId sends = no_op, awaits = no_op;  ///< what goes to the part after, and its gradients
  OpId others = no_op;                 ///< between the two: the turns of other micro-batches
  OpId returns = no_op;                ///< gradients to the part before
  std::vector<std::optional<Action>> stands_for;  ///< by op here, of a part of a graph: the send or receive that it is
};

inline constexpr TensorId no_tensor{std::numeric_limits<std::uint32_t>::max()};

/// Whether the graph is that of a part alone.
bool is_part_alone(const Graph&);

/// Memory that is taken while the part waits, so that a planner that is to use less of the device keeps less then.
struct Others {
  Bytes bytes;
  bool to_the_end = false;  ///< also while their last turn runs, when values may come back
};
PartAlone part_alone(const PartTask&, const Others&);

/// The part's tape as one of the part alone.
Tape tape_alone(const PartAlone&, const Tape&);

/// A tape of the part alone as the part's, with sends and receives, and cut as the pipeline asks. What comes back to
/// the device before the backward does so in a piece `arrive`.
struct PartTape {
  Tape tape;
  Bytes on_the_way;  ///< what may be there while other turns run: still, after the forward, and again, before the
                     ///< backward
};
PartTape tape_in_pipeline(const PartTask&, const PartAlone&, const Tape&);

/// The ops of the part on its device as a graph that nothing else uses. Ops of no time that run once stand for what it
/// receives and sends, where its own order has them. Parameters that other parts use too have no updates here.
PartAlone graph_part_alone(const PartTask&);

/// A tape of the part alone as the part's, with sends and receives.
Tape tape_with_exchanges(const PartAlone&, const Tape&);

/// Why the tape cannot be the part's: it moves a parameter that another part uses too, or its gradient. Else nothing.
std::optional<std::string> moves_shared(const PartTask&, const Tape&);

}  // namespace plimsoll
