#include "strategies/pipelining/planner_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/core/places.h"
#include "sim/io/input_error.h"
#include "strategies/common/chain_pass.h"
#include "strategies/pipelining/planners/alpa.h"
#include "strategies/pipelining/planners/ideals.h"
#include "strategies/pipelining/planners/madpipe.h"
#include "strategies/pipelining/planners/pipedream.h"
#include "strategies/pipelining/planners/piper.h"

namespace plimsoll {
namespace {

/// A problem's chain as planners see it: what the first device takes for each stage, and what it keeps.
struct PlannedChain {
  std::vector<double> seconds, parameters, kept, output;
  Dag dag;
  std::uint32_t devices = 1, micro_batches = 1;
  double bytes_per_second = 0;
  std::optional<double> memory;
};

PlannedChain planned_chain(const Problem& problem, std::uint32_t devices) {
  const Chain& chain = *problem.chain;
  PlannedChain made{.devices = devices, .micro_batches = problem.micro_batches};
  made.dag.nodes = static_cast<std::uint32_t>(chain.stages.size());
  for (std::uint32_t i = 0; i < made.dag.nodes; ++i) {
    Seconds time;
    const auto add = [&](OpId op) {
      if (op != no_op) time += duration_on(problem, op, DeviceId{0}, Saving::keep);
    };
    add(problem.index->forward[i]);
    add(problem.index->backward[i]);
    if (!problem.index->weight.empty()) add(problem.index->weight[i]);
    Bytes parameters{0};
    for (const std::uint32_t p : chain.stages[i].parameters) parameters += chain.parameters[p].bytes;
    made.seconds.push_back(time.value);
    made.parameters.push_back(static_cast<double>(parameters.count));
    made.kept.push_back(static_cast<double>(chain.stages[i].saved.count));
    made.output.push_back(static_cast<double>(boundary_bytes(chain, i + 1).count));
    if (i > 0) made.dag.edges.emplace_back(i - 1, i);
  }
  made.output.back() = 0;
  RouteFinder routes(problem.platform);
  const MemoryId first = problem.platform.devices[0].memory;
  made.bytes_per_second = unlimited_bandwidth.value;
  if (devices > 1 && problem.platform.devices[1].memory != first) {
    if (const std::optional<Route> route = routes.between(first, problem.platform.devices[1].memory)) {
      made.bytes_per_second = route->bandwidth.value;
    }
  }
  if (const std::optional<Bytes> capacity = problem.platform[first].capacity) {
    made.memory = static_cast<double>(capacity->count);
  }
  return made;
}

std::vector<std::size_t> pipedream_cut(const PlannedChain& chain) {
  PipedreamProblem problem{.dag = chain.dag,
                           .seconds = chain.seconds,
                           .parameter_bytes = chain.parameters,
                           .activation_bytes = chain.kept,
                           .output_bytes = chain.output,
                           .levels = {{chain.devices, chain.bytes_per_second}}};
  problem.straight = true;
  problem.compression = 1;
  std::vector<std::size_t> first;
  if (const PipedreamOutcome outcome = plan_pipedream(problem); outcome.plan) {
    for (const PipedreamStage& stage : outcome.plan->stages) first.push_back(stage.nodes.front());
  }
  return first;
}

std::vector<std::size_t> ideals_cut(const PlannedChain& chain) {
  IdealsProblem problem{.devices = chain.devices};
  problem.edges = chain.dag.edges;
  for (std::size_t i = 0; i < chain.seconds.size(); ++i) {
    problem.nodes.push_back({.device = chain.seconds[i], .sent = 2 * chain.output[i] / chain.bytes_per_second});
  }
  std::vector<std::size_t> first;
  if (const IdealsOutcome outcome = plan_ideals(problem); outcome.plan) {
    for (const IdealsPlan::Set& set : outcome.plan->sets) first.push_back(set.nodes.front());
  }
  return first;
}

std::vector<std::size_t> piper_cut(const PlannedChain& chain) {
  PiperProblem problem{.dag = chain.dag,
                       .devices = chain.devices,
                       .micro_batches = chain.micro_batches,
                       .bytes_per_second = chain.bytes_per_second,
                       .replicas = false};
  for (std::size_t i = 0; i < chain.seconds.size(); ++i)
    problem.nodes.emplace_back().push_back({.seconds = chain.seconds[i]});
  problem.edge_bytes.assign(chain.output.begin(), std::prev(chain.output.end()));
  std::vector<std::size_t> first;
  if (const PiperOutcome outcome = plan_piper(problem); outcome.plan) {
    for (const PiperStage& stage : outcome.plan->stages) first.push_back(stage.nodes.front());
  }
  return first;
}

std::vector<std::size_t> alpa_cut(const PlannedChain& chain) {
  const auto layers = static_cast<std::uint32_t>(chain.seconds.size());
  AlpaProblem problem{.layers = layers, .devices = chain.devices, .micro_batches = chain.micro_batches, .stages = {}};
  for (std::uint32_t i = 0; i < layers; ++i) {
    double seconds = 0;
    for (std::uint32_t j = i; j < layers; ++j) {
      seconds += chain.seconds[j];
      problem.stages.push_back({.first = i, .last = j + 1, .devices = 1, .seconds = seconds});
    }
  }
  std::vector<std::size_t> first;
  if (const std::optional<AlpaPlan> plan = plan_alpa(problem)) {
    for (const std::uint32_t stage : plan->stages) first.push_back(problem.stages[stage].first);
  }
  return first;
}

std::vector<std::size_t> madpipe_cut(const PlannedChain& chain) {
  MadpipeProblem problem{.layers = {}, .devices = chain.devices, .bytes_per_second = chain.bytes_per_second};
  problem.memory_bytes = chain.memory;
  for (std::size_t i = 0; i < chain.seconds.size(); ++i) {
    problem.layers.push_back({chain.seconds[i], 2 * chain.parameters[i], chain.kept[i], chain.output[i]});
  }
  std::vector<std::size_t> first;
  if (const std::optional<MadpipePlan> plan = plan_madpipe(problem)) {
    for (const MadpipePlan::Stage& stage : plan->stages) first.push_back(stage.first);
  }
  return first;
}

struct PlannerCut {
  std::string_view name;
  std::vector<std::size_t> (*cut)(const PlannedChain&);
};
constexpr std::array planner_cuts{PlannerCut{"pipedream", pipedream_cut}, PlannerCut{"ideals", ideals_cut},
                                  PlannerCut{"piper", piper_cut}, PlannerCut{"alpa", alpa_cut},
                                  PlannerCut{"madpipe", madpipe_cut}};

}  // namespace

bool is_planner_cut(std::string_view cut) {
  return std::ranges::find(planner_cuts, cut, &PlannerCut::name) != planner_cuts.end();
}

std::vector<std::size_t> planner_cut(const Problem& problem, std::string_view planner, std::string_view strategy,
                                     std::span<const std::uint32_t> rank_of) {
  for (std::size_t g = 0; g < rank_of.size(); ++g) {
    if (rank_of[g] == g) continue;
    throw InputError(
        fmt::format("{}: cut={} is for pipelines with one part a device, in their order", strategy, planner));
  }
  constexpr std::size_t most_stages = 300;
  if (problem.chain->stages.size() > most_stages) {
    throw InputError(fmt::format("{}: cut={} is for chains of up to {} stages, and '{}' has {}", strategy, planner,
                                 most_stages, problem.graph.name, problem.chain->stages.size()));
  }
  const PlannedChain chain = planned_chain(problem, static_cast<std::uint32_t>(rank_of.size()));
  const auto& found = *std::ranges::find(planner_cuts, planner, &PlannerCut::name);
  std::vector<std::size_t> first = found.cut(chain);
  if (first.empty()) {
    throw InputError(fmt::format("{}: cut={} finds no stages within the memory of a device", strategy, planner));
  }
  if (first.size() < rank_of.size()) {
    throw InputError(fmt::format("{}: cut={} uses {} of {} devices; ask for stages={}", strategy, planner, first.size(),
                                 rank_of.size(), first.size()));
  }
  return first;
}

}  // namespace plimsoll
