#include "strategies/rematerialization/rotor/rotor_conditions.h"

#include <algorithm>

namespace plimsoll {

RotorConditions::RotorConditions(const ChainModel& model)
    : saved_{model.saved}, x_{model.x}, recomputable_{model.recomputable} {
  const std::vector<Bytes> gradients = gradients_made_after(model);
  for (std::size_t i = 0; i < model.stages(); ++i) {
    held_.push_back(model.output_gradient(i) + gradients[i]);
    forward_.push_back(model.saved[i] + model.forward_workspace[i]);
    nograd_.push_back(model.x[i + 1] + model.nograd_workspace[i]);
    checkpoint_dies_.push_back(i > 0 && !model.keeps_input[i]);
    input_dies_.push_back(checkpoint_dies_[i] && !model.keeps_output[i - 1]);
    const Bytes dead_output = model.keeps_output[i] ? Bytes{0} : model.x[i + 1];
    backward_.push_back(held_[i] + model.saved[i] - dead_output + model.input_gradient[i] + model.new_gradients[i] +
                        model.backward_workspace[i]);
  }
}

std::optional<Bytes> RotorConditions::null(std::size_t i, std::size_t j, std::size_t l) const {
  Bytes run;
  for (std::size_t k = i; k < j; ++k) {
    if (!recomputable_[k]) return std::nullopt;
    run = std::max(run, null_step(i, k));
  }
  return held_[l] + run;
}

}  // namespace plimsoll
