#pragma once
// What a step of a schedule really runs: the kernels of its op, one after the other, and where each finds its tensors.
// For an op graph that is the op itself; for a chain, all ops of the stage, with the tensors between them in the
// workspace or in what the stage saves.

#include <optional>
#include <vector>

#include "sim/model/chain_graph.h"
#include "validate/networks/network.h"

namespace plimsoll {

/// In a buffer of the step that holds `tensor` of the scheduled graph, or in the step's workspace.
struct Place {
  std::optional<TensorId> tensor;  ///< unset: in the workspace
  Bytes offset;
  std::uint32_t before = 0;  ///< the buffer is that of so many slices of the sequence before the step's own
};

struct KernelCall {
  OpId op;  ///< of the network's graph
  std::vector<Place> inputs, outputs;
  Bytes scratch;  ///< where in the workspace the kernel's own begins
};

struct StepProgram {
  std::vector<KernelCall> calls;
  Bytes workspace;
};

/// In which way a step runs its op: keeping what is only saved, or not; making parameter gradients, or adding to them.
enum class Variant : std::uint8_t { keep, nothing, fresh_gradients, accumulate };

/// The program of an op of the network's own graph.
StepProgram op_program(const Network&, OpId, Variant);

/// The chain whose stages are the network's, every size that of what really runs: `workspace` and
/// `accumulate_workspace` of the network's ops must be set.
Chain chain_of(const Network&);

/// The program of a stage's forward (keep, nothing), its backward or one of the two parts of it: that of an op of the
/// chain's graph, on its tensors. Where the op's outputs are less than the network's stage could make, only what leads
/// to them is run. `backward`: how the graph has its backwards.
StepProgram stage_program(const Network&, const Graph& scheduled, const Op&, Variant, Backward);

}  // namespace plimsoll
