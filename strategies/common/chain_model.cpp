#include "strategies/common/chain_model.h"

#include <algorithm>

#include "sim/core/expects.h"

namespace plimsoll {

namespace {

// Backwards run from the last stage to the first; a shared parameter's gradient appears at the first of them.
struct NewGradients {
  std::vector<Bytes> bytes;
  std::vector<bool> accumulates;  // has parameters, and all their gradients are there already
};

NewGradients new_gradients(const Chain& chain) {
  NewGradients result{std::vector<Bytes>(chain.stages.size()), std::vector<bool>(chain.stages.size())};
  std::vector<bool> made(chain.parameters.size());
  for (std::size_t i = chain.stages.size(); i-- > 0;) {
    const Stage& stage = chain.stages[i];
    Bytes fresh, all, shared;
    for (const std::uint32_t p : stage.parameters) {
      EXPECTS(p < chain.parameters.size());
      all += chain.parameters[p].bytes;
      (made[p] ? shared : fresh) += chain.parameters[p].bytes;
      made[p] = true;
    }
    result.accumulates[i] = !stage.parameters.empty() && fresh == Bytes{0} && all > Bytes{0};
    // A stated gradient stands for all parameters of the stage; those that later stages share exist already.
    if (stage.parameter_gradient) fresh = std::max(Bytes{0}, *stage.parameter_gradient - shared);
    result.bytes[i] = result.accumulates[i] ? Bytes{0} : fresh;
  }
  return result;
}

}  // namespace

Bytes optimizer_state(Optimizer optimizer, Bytes parameters) {
  switch (optimizer) {
    case Optimizer::none:
    case Optimizer::sgd:
      return Bytes{0};
    case Optimizer::momentum:
      return parameters;
    case Optimizer::adam:
      return 2 * parameters;
  }
  EXPECTS(false);
}

ChainModel chain_model(const Chain& chain, const TrainingState& state) {
  EXPECTS(!chain.stages.empty());
  const NewGradients fresh = new_gradients(chain);
  const bool existing = state.gradients == Gradients::existing;
  const bool mixed = !existing && state.micro_batches > 1;

  ChainModel model;
  model.resident =
      parameter_bytes(chain) + optimizer_state(state.optimizer, parameter_bytes(chain)) + state.also_resident;
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
    const bool accumulates = existing || fresh.accumulates[i];
    const Bytes workspace = accumulates ? stage.backward_accumulate_workspace : stage.backward_workspace;
    model.backward_workspace.push_back(mixed ? std::max(workspace, stage.backward_accumulate_workspace) : workspace);
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
