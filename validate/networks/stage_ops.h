#pragma once
// The ops of one stage of a network, and which of their tensors leave the step that runs them.

#include <optional>
#include <vector>

#include "validate/networks/network.h"

namespace plimsoll {

struct StageOps {
  std::vector<OpId> forward, backward;
  std::vector<OpId> input_part, weight_part;  ///< of the backward: gradients of weights, and all else
  std::vector<TensorId> saved;                ///< made by forward, read by backward, not of boundaries nor attended
  std::vector<TensorId> saved_for_weights;    ///< of these, what the weight part reads
  std::vector<TensorId> saved_otherwise;      ///< and the others
  std::vector<TensorId> made_for_weights;     ///< made by the input part, read by the weight part, the same
};

StageOps ops_of(const Network&, std::size_t stage);

/// The gradient of boundary i: what the backward of stage i makes and that of the stage before reads.
std::optional<TensorId> boundary_gradient(const Network&, std::size_t i);

/// Whether one of the ops reads the tensor.
bool reads(const Network&, const std::vector<OpId>&, TensorId);

}  // namespace plimsoll
