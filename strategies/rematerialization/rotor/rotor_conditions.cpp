#include "strategies/rematerialization/rotor/rotor_conditions.h"

#include "sim/core/expects.h"

namespace plimsoll {

RotorConditions::RotorConditions(const ChainModel& model)
    : saved_{model.saved}, x_{model.x}, recomputable_{model.recomputable} {
  EXPECTS(model.keeps_input.front());  // x_0 is there to the end
  const std::vector<Bytes> gradients = gradients_made_after(model);
  for (std::size_t i = 0; i < model.stages(); ++i) {
    held_.push_back(model.output_gradient(i) + gradients[i]);
    forward_.push_back(model.saved[i] + model.forward_workspace[i]);
    nograd_.push_back(model.x[i + 1] + model.nograd_workspace[i]);
    checkpoint_dies_.push_back(!model.keeps_input[i]);
    input_dies_.push_back(checkpoint_dies_[i] && !model.keeps_output[i - 1]);
    const Bytes dead_output = model.keeps_output[i] ? Bytes{0} : model.x[i + 1];
    backward_.push_back(held_[i] + model.saved[i] - dead_output + model.input_gradient[i] + model.new_gradients[i] +
                        model.backward_workspace[i]);
  }
}

}  // namespace plimsoll
