// The transform `train_biases`: parameters of one dimension (biases, scales and shifts of norms) are trained, all
// others are frozen. Source: Ben Zaken, Goldberg, Ravfogel, "BitFit: Simple Parameter-efficient Fine-tuning for
// Transformer-based Masked Language-models", ACL 2022.

#include <algorithm>
#include <string>
#include <variant>
#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/transforms/smaller_problem.h"

namespace plimsoll {
namespace {

std::variant<Problem, std::string> train_biases(const Problem& problem, const Options&) {
  std::vector<bool> trained;
  for (const Tensor& tensor : problem.graph.tensors) {
    trained.push_back(tensor.kind == TensorKind::parameter && tensor.shape.size() == 1);
  }
  if (std::ranges::count(trained, true) == 0) return "no parameter of '" + problem.graph.name + "' has one dimension";
  return with_frozen(problem, trained);
}

}  // namespace

extern constinit const StrategyInfo train_biases_strategy{
    .name = "train_biases",
    .family = Family::transform,
    .summary = "trains parameters of one dimension and freezes all others",
    .source = "Ben Zaken et al., 'BitFit', ACL 2022",
    .needs_shapes = true,
    .kind = TransformStrategy{.transform = train_biases},
};

}  // namespace plimsoll
