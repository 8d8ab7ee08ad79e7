#pragma once
// What planners for chains see of a Chain: sizes and times per stage, and what is resident all the time.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "sim/core/chain.h"
#include "sim/core/optimizer.h"
#include "sim/core/schedule.h"
#include "sim/core/units.h"

namespace plimsoll {

/// Stages 0..n-1; the loss is an ordinary last stage with an output of 0 bytes. The last output has no gradient.
struct ChainModel {
  std::vector<Bytes> x;                   ///< n + 1: what stage i reads; x[0] is the network's input
  std::vector<Bytes> saved;               ///< what a forward leaves for its backward: output and inner tensors
  std::vector<Bytes> input_gradient;      ///< gradient of x[i], made by backward i
  std::vector<Bytes> forward_workspace;   ///< of a forward that saves
  std::vector<Bytes> nograd_workspace;    ///< of a forward that keeps nothing for its backward
  std::vector<Bytes> backward_workspace;  ///< of the backward, in the state the gradients are in when it runs
  std::vector<Bytes>
      new_gradients;  ///< parameter gradients that appear at backward i, those of later stages being there
  std::vector<Seconds> forward, nograd, backward;
  std::vector<bool> recomputable;  ///< whether forward i may run more than once
  std::vector<bool> keeps_input;   ///< whether backward i reads x[i]; always for i = 0, whose input stays till then
  std::vector<bool> keeps_output;  ///< whether backward i reads x[i + 1]
  Bytes resident;                  ///< parameters, optimizer states, existing gradients: live throughout

  std::size_t stages() const { return saved.size(); }

  /// The gradient that backward i reads.
  Bytes output_gradient(std::size_t i) const { return i + 1 < stages() ? input_gradient[i + 1] : Bytes{0}; }
};

/// What is live besides activations. With fresh gradients and several micro-batches the gradients appear in the first
/// micro-batch and exist in the others; the model then takes them as resident and the larger backward workspace, which
/// is never too little for either.
struct TrainingState {
  Gradients gradients = Gradients::fresh;
  Optimizers optimizers = {};
  States states = States::by_dtype;
  bool keeps_averages = false;  ///< where parameters do not say what their states are
  std::uint32_t micro_batches = 1;
  Bytes also_resident = {};  ///< whatever else lives on the device throughout
};

ChainModel chain_model(const Chain&, const TrainingState& = {});

/// Prefix sums over the stages' new parameter gradients: bytes that exist once the backwards of stages > l have run.
std::vector<Bytes> gradients_made_after(const ChainModel&);

}  // namespace plimsoll
