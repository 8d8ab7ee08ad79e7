#pragma once
// Experts of mixtures that ranks share out: each rank has some of them, whole, for the tokens of all ranks.

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "sim/core/graph.h"
#include "sim/core/mesh.h"

namespace plimsoll {

struct SharedExperts {
  Graph graph;
  std::vector<TensorId> gradients;  ///< of the experts' parameters: the ranks of the axis do not sum them
};

/// The graph of one rank, where each rank of the axis has its own micro-batches.
///  - Parameters of experts are those of a forward op whose loop has experts `x` in them and in no other operand: the
///  op
///    picks one for each row of its input (`b s k w, x w f -> b s k f`). A rank has 1/ranks of the experts, of their
///    gradients and of their states.
///  - Ops that read these, or make their gradients, and what lies between them within a stage and phase, work on the
///    rows of all ranks: as many as a rank's own, times `imbalance` on the rank with the most, which all wait for.
///    Where ops state the rows of each expert (attribute `expert_rows`: "9 4 2 1"), those of the rank with the most
///    over the mean multiply it, stage by stage: ranks have experts in a row.
///  - Values that go in there or come out are exchanged (all_to_all), once each. Durations are left open.
/// Or in one sentence why there is none: no experts, or a number of them that the ranks do not divide.
std::variant<SharedExperts, std::string> with_shared_experts(Graph, const Axis&, double imbalance);

}  // namespace plimsoll
