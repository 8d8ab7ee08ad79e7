#include "strategies/offloading/conv_layers.h"

#include <algorithm>

#include "strategies/rematerialization/min_cut.h"

namespace plimsoll {
namespace {

bool is_conv_kind(std::string_view kind) {
  constexpr std::string_view backward = "_backward";
  return is_compute_intensive(kind.ends_with(backward) ? kind.substr(0, kind.size() - backward.size()) : kind);
}

}  // namespace

std::vector<bool> conv_positions(const PartTask& task, const OffloadModel& model) {
  const Graph& graph = task.problem.graph;
  std::vector<bool> conv;
  if (!task.problem.chain) {
    for (const Action& action : model.computes) conv.push_back(is_conv_kind(graph[action.op].kind));
    return conv;
  }
  const std::vector<Stage>& stages = task.problem.chain->stages;
  const auto named = [](const Stage& stage) { return stage.name.find("conv") != std::string::npos; };
  const bool any_named = std::ranges::any_of(stages, named);
  for (const Action& action : model.computes) {
    const std::size_t stage = graph[action.op].stage;
    conv.push_back(any_named ? named(stages[stage]) : stage + 1 < stages.size());
  }
  return conv;
}

}  // namespace plimsoll
