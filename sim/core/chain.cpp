#include "sim/core/chain.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {

Bytes boundary_bytes(const Chain& chain, std::size_t i) {
  EXPECTS(i <= chain.stages.size());
  return i == 0 ? chain.input : chain.stages[i - 1].output;
}

bool knows_tensors(const Chain& chain) {
  return !chain.boundaries.empty() &&
         std::ranges::all_of(chain.stages, [](const Stage& stage) { return stage.tensors.has_value(); });
}

bool lists_saved(const Chain& chain) {
  return std::ranges::any_of(chain.stages,
                             [](const Stage& stage) { return !stage.inner.empty() || !stage.boundary_uses.empty(); });
}

const std::string& dtype_of(const Chain& chain, const Parameter& parameter) {
  return parameter.dtype.empty() ? chain.source.dtype : parameter.dtype;
}

StageKernels part_of_backward(const Stage& stage, bool of_weight) {
  const StageKernels& all = stage.backward_made_of;
  if (std::ranges::none_of(all, &StageKernel::of_weight)) {
    const double weight = stage.backward > Seconds{0} ? stage.backward_weight / stage.backward : 0.0;
    return times(of_weight ? weight : 1 - weight, all);
  }
  std::vector<StageKernel> part(all.begin(), all.end());
  for (StageKernel& each : part) each.count *= each.of_weight == of_weight ? 1 : 0;
  return StageKernels(std::move(part));
}

Seconds all_alone(const Chain& chain) {
  Seconds sum;
  for (const Stage& stage : chain.stages) sum += stage.forward + stage.backward;
  return sum;
}

Bytes parameter_bytes(const Chain& chain) {
  Bytes sum;
  for (const Parameter& parameter : chain.parameters) sum += parameter.bytes;
  return sum;
}

}  // namespace plimsoll
