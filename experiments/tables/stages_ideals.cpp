// The dynamic program over ideals on a table of layers.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "experiments/tables/stage_planners.h"
#include "sim/io/input_error.h"
#include "strategies/pipelining/planners/ideals.h"

namespace plimsoll {
namespace {

bool has_backward(const Layer& layer) {
  return std::ranges::any_of(layer.options, [](const LayerOption& option) { return option.backward > Seconds{0}; });
}

}  // namespace

std::variant<StagePlan, std::string> ideals_stages(const LayerTable& table, const StageOptions& options) {
  constexpr std::uint32_t most_devices = 64, most_hosts = 4;
  if (options.hosts > most_hosts) {
    throw InputError(fmt::format("--hosts: 'ideals' takes up to {}, found {}", most_hosts, options.hosts));
  }
  IdealsProblem problem{.devices = devices_of(options, "ideals", most_devices), .hosts = options.hosts};
  if (options.memory) problem.device_bytes = static_cast<double>(options.memory->count);
  const bool timed = std::ranges::any_of(table.edges, [](const LayerEdge& edge) { return edge.time > Seconds{0}; });
  const bool both_passes = std::ranges::none_of(table.layers, &Layer::backward);
  for (const Layer& layer : table.layers) {
    IdealsProblem::Node& node = problem.nodes.emplace_back();
    node.backward = layer.backward;
    node.together = layer.together;
    if (layer.host) node.host = layer.host->value;
    const auto one = std::ranges::find(layer.options, 1U, &LayerOption::devices);
    if (one == layer.options.end()) continue;
    node.device = (one->forward + one->backward).value;
    node.bytes = static_cast<double>((one->kept + one->fixed).count);
  }
  for (const LayerEdge& edge : table.edges) {
    problem.edges.emplace_back(edge.from, edge.to);
    // A layer with both passes sends its output, and is sent the gradient of it.
    const bool twice = both_passes && has_backward(table.layers[edge.from]);
    double time = edge.time.value;
    if (!timed && edge.bytes > Bytes{0}) {
      time = (twice ? 2 : 1) * (edge.bytes / bandwidth_of(options, table)).value;
    }
    problem.nodes[edge.from].sent = std::max(problem.nodes[edge.from].sent, time);
  }
  const IdealsOutcome outcome = plan_ideals(problem);
  if (!outcome.plan) return outcome.reason;
  StagePlan plan{
      .time = {outcome.plan->seconds},
      .facts = {{"ideals", outcome.plan->ideals}, {"pairs", outcome.plan->pairs}},
      .note = fmt::format("of the fullest device or host, a micro-batch; least of all {} sets that may come first",
                          outcome.plan->ideals),
      .stages = {}};
  for (const IdealsPlan::Set& set : outcome.plan->sets) {
    plan.stages.push_back(
        {.layers = set.nodes, .host = set.host, .time = Seconds{set.seconds}, .memory = {std::llround(set.bytes)}});
  }
  return plan;
}

}  // namespace plimsoll
