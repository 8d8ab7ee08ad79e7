#include "strategies/models/chain_model.h"

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/model/shared_parameters.h"

namespace plimsoll {

namespace {

// Backwards run from the last stage to the first; a shared parameter's gradient appears at the first of them. A stated
// gradient that is not as large as the stage's trained parameters is a tensor of its own (as in core's chain_graph).
struct NewGradients {
  std::vector<Bytes> bytes;
  std::vector<bool> any;         // whether the stage makes or adds to a gradient at all
  std::vector<bool> accumulate;  // all of its gradients are there already
  Bytes states;                  // of the optimizer, for parameters that have a gradient
};

NewGradients new_gradients(const Chain& chain, const TrainingState& training) {
  const auto states = [&](std::uint32_t p) {
    const Parameter& parameter = chain.parameters[p];
    if (parameter.states) return *parameter.states;
    const std::string& dtype = dtype_of(chain, parameter);
    const Bytes average = average_bytes(training.states, parameter.bytes, dtype);
    return state_bytes(training.optimizers.of(parameter.name), training.states, parameter.bytes, dtype) +
           (training.keeps_averages ? average : Bytes{});
  };
  const std::size_t n = chain.stages.size();
  NewGradients result{std::vector<Bytes>(n), std::vector<bool>(n), std::vector<bool>(n), {}};
  std::vector<bool> made(chain.parameters.size());
  for (std::size_t i = n; i-- > 0;) {
    const Stage& stage = chain.stages[i];
    bool trains = false;
    for (const std::uint32_t p : stage.parameters) {
      EXPECTS(p < chain.parameters.size());
      trains |= chain.parameters[p].trained;
    }
    if (own_gradient(chain, stage)) {
      result.bytes[i] = *stage.parameter_gradient;
      result.any[i] = *stage.parameter_gradient > Bytes{0};
      if (!result.any[i]) continue;
      for (const std::uint32_t p : stage.parameters) {
        if (chain.parameters[p].trained) result.states += states(p);
      }
      continue;
    }
    result.any[i] = trains;
    result.accumulate[i] = result.any[i];
    for (const std::uint32_t p : stage.parameters) {
      if (made[p] || !chain.parameters[p].trained) continue;
      made[p] = true;
      result.accumulate[i] = false;
      result.bytes[i] += chain.parameters[p].bytes;
      result.states += states(p);
    }
  }
  return result;
}

}  // namespace

ChainModel chain_model(const Chain& chain, const TrainingState& state) {
  EXPECTS(!chain.stages.empty());
  const NewGradients fresh = new_gradients(chain, state);
  const bool existing = state.gradients == Gradients::existing;
  const bool mixed = !existing && state.micro_batches > 1;

  ChainModel model;
  model.resident = parameter_bytes(chain) + fresh.states + state.also_resident;
  model.x.push_back(chain.input);
  for (std::size_t i = 0; i < chain.stages.size(); ++i) {
    const Stage& stage = chain.stages[i];
    EXPECTS(stage.saved >= stage.output);
    model.x.push_back(stage.output);
    model.saved.push_back(stage.saved);
    model.input_gradient.push_back(stage.input_gradient);
    model.forward_workspace.push_back(stage.forward_workspace);
    model.nograd_workspace.push_back(stage.forward_nograd_workspace);
    model.forward.push_back(stage.forward);
    model.nograd.push_back(stage.forward_nograd);
    model.backward.push_back(stage.backward);
    model.recomputable.push_back(stage.recomputable);
    model.keeps_input.push_back(stage.keeps_input || i == 0);
    model.keeps_output.push_back(stage.keeps_output);
    const bool accumulates = fresh.any[i] && (existing || fresh.accumulate[i]);
    const Bytes workspace = accumulates ? stage.backward_accumulate_workspace : stage.backward_workspace;
    const bool both = mixed && fresh.any[i];
    model.backward_workspace.push_back(both ? std::max(workspace, stage.backward_accumulate_workspace) : workspace);
    if (existing || mixed) model.resident += fresh.bytes[i];
    model.new_gradients.push_back(existing || mixed ? Bytes{0} : fresh.bytes[i]);
  }
  return model;
}

std::vector<Bytes> gradients_made_after(const ChainModel& model) {
  std::vector<Bytes> sum(model.stages());
  for (std::size_t i = model.stages() - 1; i-- > 0;) sum[i] = sum[i + 1] + model.new_gradients[i + 1];
  return sum;
}

}  // namespace plimsoll
