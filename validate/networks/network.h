#pragma once
// A network that can really run: a graph of primitive ops, one kernel each, that lie in stages in a row.

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/core/graph.h"

namespace plimsoll {

/// The graph's ops read and make tensors in the order that their kind states (validate/networks.md, "Kinds of ops").
/// Each has one output beside parameter gradients, so that every value can be dropped and recomputed on its own; fused
/// attention has two. What attention on one slice of a sequence keeps for later slices: what it reads of this one, and
/// room for as many gradients, to which their backwards add.
struct Attended {
  TensorId value, room;
  std::uint32_t stage = 0;
  std::uint32_t before = 0;  ///< so many slices before the network's own; 0: its own, which it makes
};

struct Network {
  Graph graph;                            ///< `stage` of an op counts from 0
  std::vector<std::string> stage_names;   ///< the last is the loss
  std::vector<TensorId> boundaries;       ///< x_0, the input, to the input of the loss: what stage i reads
  std::shared_ptr<const Network> before;  ///< whose last boundary is this one's input, stored; null: none
  std::vector<Attended> attended;         ///< of a network on one slice
  std::vector<std::shared_ptr<const Network>> slices =
      {};  ///< the same on each slice of a sequence, if it is to run so
};

/// The running statistics of batch norms: parameters without a gradient that no op is said to read; they are on the
/// device throughout, and the first forward of every micro-batch moves them.
inline constexpr const char* statistics_attribute = "statistics";

/// Of ops on a slice of a sequence: where it begins in the whole, and how long that is; of attention, how many slices
/// there are.
inline constexpr const char *first_position_attribute = "first_position", *sequence_attribute = "sequence",
                            *slices_attribute = "slices";

/// Of a linear layer: its weight is stored (outputs, inputs), as a table of words is.
inline constexpr const char* transposed_attribute = "transposed";
/// Of what mixes rows of experts: the coefficient of a loss for unequal numbers of tokens.
inline constexpr const char* balance_attribute = "balance";

}  // namespace plimsoll
