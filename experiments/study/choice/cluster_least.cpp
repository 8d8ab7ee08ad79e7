// Where nothing fits: what the plan that needs the least has in memory.

#include <algorithm>
#include <utility>

#include "experiments/study/choice/cluster_question.h"
#include "experiments/study/memory_by_kind.h"
#include "experiments/study/model.h"
#include "sim/measure/memory_profile.h"

namespace plimsoll {

std::optional<LeastOfCluster> least_of_cluster(ClusterProblems& problems, const ClusterAnswer& found) {
  const auto row = std::ranges::find_if(found.rows, [&](const ClusterRow& each) {
    return each.outcome && each.outcome->smallest && each.outcome->smallest == found.least;
  });
  if (!found.is_least_simulated || row == found.rows.end()) return std::nullopt;
  problems.limit_to(*found.least);
  const Question asked = problems.of(row->point, row->as());
  const BudgetedProblem made = budgeted_problem_of(asked, load_model(asked.trace), problems.platform());
  const Answer answer = std::move(plimsoll::answer(asked, made.problem, std::span(&made.budget, 1)).front());
  if (!answer.schedule) return std::nullopt;
  const std::vector<DeviceMetrics>& devices = answer.metrics->devices;
  const auto fullest = std::ranges::max_element(devices, {}, &DeviceMetrics::peak_live) - devices.begin();
  const AtPeak peak = at_peak(*answer.schedule, *answer.timeline, made.problem.platform,
                              made.problem.platform.devices[static_cast<std::size_t>(fullest)].memory);
  LeastOfCluster least{.row = *row, .workspaces = peak.workspace};
  for (const BufferId b : peak.buffers) {
    const Buffer& buffer = (*answer.schedule)[b];
    const std::size_t kind = memory_kind(made.problem.graph, buffer);
    (kind == static_cast<std::size_t>(TensorKind::parameter)            ? least.parameters
     : kind == static_cast<std::size_t>(TensorKind::parameter_gradient) ? least.gradients
     : kind == static_cast<std::size_t>(TensorKind::optimizer_state)    ? least.states
                                                                        : least.activations) += buffer.bytes;
  }
  return least;
}

}  // namespace plimsoll
