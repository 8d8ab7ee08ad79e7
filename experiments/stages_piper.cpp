// Piper on a table of layers.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/stage_planners.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/planners/piper.h"

namespace plimsoll {

std::variant<StagePlan, std::string> piper_stages(const LayerTable& table, const StageOptions& options) {
  constexpr std::uint32_t most_devices = 16'384;
  PiperProblem problem{.devices = devices_of_one_level(options, "piper", most_devices),
                       .micro_batches = options.micro_batches,
                       .bytes_per_second = bandwidth_of(options.levels.front(), table).value,
                       .replicas = !options.straight};
  if (options.memory) problem.memory_bytes = static_cast<double>(options.memory->count);
  problem.dag.nodes = static_cast<std::uint32_t>(table.layers.size());
  for (const LayerEdge& edge : table.edges) {
    problem.dag.edges.emplace_back(edge.from, edge.to);
    problem.edge_bytes.push_back(static_cast<double>(edge.bytes.count));
  }
  std::vector<std::vector<std::string>> names(table.layers.size());
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    const Layer& layer = table.layers[l];
    const auto complain = [&](std::string_view what) {
      throw InputError(fmt::format("piper: layer '{}' of '{}' {}", layer.name, table.name, what));
    };
    if (layer.backward) complain("belongs to the backward; this planner takes layers with both passes");
    std::map<std::uint32_t, Bytes> parameters;
    std::vector<PiperProblem::Option>& ways = problem.nodes.emplace_back();
    for (const LayerOption& option : layer.options) {
      if (options.only && option.name != *options.only) continue;
      if (options.most_devices && option.devices > *options.most_devices) continue;
      if (parameters.emplace(option.devices, option.parameters).first->second != option.parameters) {
        complain("has options on as many devices with unequal parameters");
      }
      PiperProblem::Option way{.devices = option.devices,
                               .seconds = (option.forward + option.backward).value,
                               .parameter_bytes = static_cast<double>(option.parameters.count),
                               .kept_bytes = static_cast<double>(option.kept.count),
                               .fixed_bytes = static_cast<double>(option.fixed.count)};
      for (const auto& [edge, bytes] : option.sent) way.sent.emplace_back(edge, static_cast<double>(bytes.count));
      ways.push_back(std::move(way));
      names[l].push_back(option.name);
    }
    if (ways.empty()) complain("has no way to run that --only and --tensor allow");
  }
  const PiperOutcome outcome = plan_piper(problem);
  if (!outcome.plan) return outcome.reason;
  StagePlan plan{.time = {outcome.plan->seconds},
                 .facts = {{"in_one_row", outcome.plan->in_one_row}},
                 .note = "a micro-batch in the steady state",
                 .stages = {}};
  if (outcome.plan->in_one_row) plan.note += "; only stages of one order of the layers were tried";
  for (const PiperStage& stage : outcome.plan->stages) {
    PlannedStage& made = plan.stages.emplace_back(PlannedStage{.layers = stage.nodes,
                                                               .replicas = stage.replicas,
                                                               .devices = stage.devices,
                                                               .in_flight = stage.in_flight,
                                                               .time = Seconds{stage.seconds},
                                                               .memory = {std::llround(stage.bytes)}});
    for (std::size_t k = 0; k < stage.nodes.size(); ++k) made.ways.push_back(names[stage.nodes[k]][stage.options[k]]);
  }
  return plan;
}

}  // namespace plimsoll
