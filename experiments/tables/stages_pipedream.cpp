// PipeDream's optimizer on a table of layers.

#include <fmt/format.h>

#include <cmath>

#include "experiments/tables/stage_layers.h"
#include "experiments/tables/stage_planners.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/planners/pipedream.h"

namespace plimsoll {

std::variant<StagePlan, std::string> pipedream_stages(const LayerTable& table, const StageOptions& options) {
  PipedreamProblem problem;
  problem.dag.nodes = static_cast<std::uint32_t>(table.layers.size());
  for (const LayerEdge& edge : table.edges) problem.dag.edges.emplace_back(edge.from, edge.to);
  for (const LayerOption& option : plain_options(table, "pipedream")) {
    problem.seconds.push_back((option.forward + option.backward).value);
    problem.parameter_bytes.push_back(static_cast<double>(option.parameters.count));
    problem.activation_bytes.push_back(static_cast<double>(option.kept.count));
  }
  problem.output_bytes.assign(table.layers.size(), 0);
  for (const LayerEdge& edge : table.edges) {
    problem.output_bytes[edge.from] = std::max(problem.output_bytes[edge.from], static_cast<double>(edge.bytes.count));
  }
  for (const StageOptions::Level& level : options.levels) {
    constexpr std::uint32_t most_machines = 256;
    if (level.machines > most_machines) {
      throw InputError(fmt::format("--devices: 'pipedream' takes up to {} machines of a level, found {}", most_machines,
                                   level.machines));
    }
    problem.levels.push_back({level.machines, bandwidth_of(level, table).value});
  }
  if (options.memory) problem.memory_bytes = static_cast<double>(options.memory->count);
  problem.published = options.published;
  problem.straight = options.straight;
  problem.compression = options.compression;
  const PipedreamOutcome outcome = plan_pipedream(problem);
  if (!outcome.plan) return outcome.reason;
  StagePlan plan{
      .time = {outcome.plan->seconds},
      .facts = {{"one_device_s", outcome.plan->one_device},
                {"data_parallel_s", outcome.plan->data_parallel},
                {"states", outcome.plan->states}},
      .note = fmt::format(
          "a mini-batch in the steady state, {:.2f} times as fast as one device; data parallelism alone {:.2f} times",
          outcome.plan->one_device / outcome.plan->seconds, outcome.plan->one_device / outcome.plan->data_parallel),
      .stages = {}};
  for (const PipedreamStage& stage : outcome.plan->stages) {
    plan.stages.push_back({.layers = stage.nodes,
                           .replicas = stage.replicas,
                           .in_flight = stage.in_flight,
                           .memory = {std::llround(stage.bytes)}});
  }
  return plan;
}

}  // namespace plimsoll
