// Piper on a table of layers, and the equal stages beside which its authors put it.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "experiments/tables/stage_planners.h"
#include "sim/io/input_error.h"
#include "sim/io/quantity.h"
#include "strategies/pipelining/planners/piper.h"

namespace plimsoll {
namespace {

struct PiperTable {
  PiperProblem problem;
  std::vector<std::vector<std::string>> names;  ///< of each layer's options
};

PiperTable piper_table(const LayerTable& table, const StageOptions& options, std::string_view planner) {
  constexpr std::uint32_t most_devices = 16'384;
  PiperTable made{.problem = {.devices = devices_of(options, planner, most_devices),
                              .micro_batches = options.micro_batches,
                              .bytes_per_second = bandwidth_of(options, table).value,
                              .replicas = !options.straight},
                  .names = std::vector<std::vector<std::string>>(table.layers.size())};
  PiperProblem& problem = made.problem;
  if (options.memory) problem.memory_bytes = static_cast<double>(options.memory->count);
  problem.dag.nodes = static_cast<std::uint32_t>(table.layers.size());
  for (const LayerEdge& edge : table.edges) {
    problem.dag.edges.emplace_back(edge.from, edge.to);
    problem.edge_bytes.push_back(static_cast<double>(edge.bytes.count));
  }
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    const Layer& layer = table.layers[l];
    const auto complain = [&](std::string_view what) {
      throw InputError(fmt::format("{}: layer '{}' of '{}' {}", planner, layer.name, table.name, what));
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
      made.names[l].push_back(option.name);
    }
    if (ways.empty()) complain("has no way to run that --only and --tensor allow");
  }
  return made;
}

StagePlan stage_plan(const PiperPlan& planned, const PiperTable& table) {
  StagePlan plan{.time = {planned.seconds}, .facts = {}, .note = "a micro-batch in the steady state", .stages = {}};
  for (const PiperStage& stage : planned.stages) {
    PlannedStage& made = plan.stages.emplace_back(PlannedStage{.layers = stage.nodes,
                                                               .replicas = stage.replicas,
                                                               .devices = stage.devices,
                                                               .in_flight = stage.in_flight,
                                                               .time = Seconds{stage.seconds},
                                                               .memory = {std::llround(stage.bytes)}});
    for (std::size_t k = 0; k < stage.nodes.size(); ++k) {
      made.ways.push_back(table.names[stage.nodes[k]][stage.options[k]]);
    }
  }
  return plan;
}

}  // namespace

std::variant<StagePlan, std::string> piper_stages(const LayerTable& table, const StageOptions& options) {
  const PiperTable asked = piper_table(table, options, "piper");
  const PiperOutcome outcome = plan_piper(asked.problem);
  if (!outcome.plan) return outcome.reason;
  StagePlan plan = stage_plan(*outcome.plan, asked);
  plan.facts.emplace_back("in_one_row", outcome.plan->in_one_row);
  if (outcome.plan->in_one_row) plan.note += "; only stages of one order of the layers were tried";
  return plan;
}

std::variant<StagePlan, std::string> equal_stages(const LayerTable& table, const StageOptions& options) {
  const PiperTable asked = piper_table(table, options, "equal");
  EqualStagesProblem problem{.model = asked.problem, .ways = {}, .counted = {}};
  std::map<std::string, std::uint32_t> ways;
  std::vector<std::string_view> layers;
  for (std::size_t l = 0; l < table.layers.size(); ++l) {
    layers.push_back(table.layers[l].name);
    problem.counted.push_back(!options.counted || table.layers[l].name == *options.counted);
    std::vector<std::uint32_t>& numbers = problem.ways.emplace_back();
    for (const std::string& name : asked.names[l]) {
      numbers.push_back(ways.emplace(name, static_cast<std::uint32_t>(ways.size())).first->second);
    }
  }
  if (std::ranges::find(problem.counted, true) == problem.counted.end()) {
    throw InputError(fmt::format("--counted: expected a layer of '{}', found '{}'{}", table.name, *options.counted,
                                 suggestion(*options.counted, layers)));
  }
  if (const std::optional<std::uint32_t> between = between_counted(problem)) {
    throw InputError(fmt::format("--counted: layer '{}' of '{}' is between layers called '{}' and not called so",
                                 layers[*between], table.name, *options.counted));
  }
  const PiperOutcome outcome = plan_equal_stages(problem);
  if (!outcome.plan) return outcome.reason;
  return stage_plan(*outcome.plan, asked);
}

}  // namespace plimsoll
