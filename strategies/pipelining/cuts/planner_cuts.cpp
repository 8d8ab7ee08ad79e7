#include "strategies/pipelining/cuts/planner_cuts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/core/expects.h"
#include "sim/core/places.h"
#include "strategies/models/chain_pass.h"
#include "strategies/pipelining/planners/alpa.h"
#include "strategies/pipelining/planners/ideals.h"
#include "strategies/pipelining/planners/piper.h"

namespace plimsoll {
namespace {

/// A problem's chain as planners see it: what the first device takes for each stage, and what it hands on.
struct PlannedChain {
  std::vector<double> seconds, parameters, output;
  Dag dag;
  std::uint32_t devices = 1, micro_batches = 1;
  double bytes_per_second = 0;
  bool copies = false, all_devices = true;
  RangeFits fits;
};

PlannedChain planned_chain(const Problem& problem, const CutQuestion& question) {
  const Chain& chain = *problem.chain;
  PlannedChain made{.seconds = {},
                    .parameters = {},
                    .output = {},
                    .dag = {},
                    .devices = question.devices,
                    .micro_batches = problem.micro_batches,
                    .copies = question.copies,
                    .fits = question.fits};
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
    made.output.push_back(static_cast<double>(boundary_bytes(chain, i + 1).count));
    if (i > 0) made.dag.edges.emplace_back(i - 1, i);
  }
  made.output.back() = 0;
  RouteFinder routes(problem.platform);
  const MemoryId first = problem.platform.devices[0].memory;
  made.bytes_per_second = unlimited_bandwidth.value;
  if (question.devices > 1 && problem.platform.devices[1].memory != first) {
    if (const std::optional<Route> route = routes.between(first, problem.platform.devices[1].memory)) {
      made.bytes_per_second = route->bandwidth.value;
    }
  }
  return made;
}

void add(StageCut& cut, std::size_t first, std::uint32_t copies = 1) {
  cut.first.push_back(first);
  cut.copies.push_back(copies);
}

PipedreamProblem pipedream_problem(const PlannedChain& chain) {
  PipedreamProblem problem{.dag = chain.dag,
                           .seconds = chain.seconds,
                           .parameter_bytes = chain.parameters,
                           .activation_bytes = std::vector<double>(chain.seconds.size()),
                           .output_bytes = chain.output,
                           .levels = {{chain.devices, chain.bytes_per_second}}};
  problem.fits = chain.fits;
  problem.straight = !chain.copies;
  problem.compression = 1;
  return problem;
}

StageCut pipedream_cut(const PlannedChain& chain) {
  StageCut cut;
  if (const PipedreamOutcome outcome = plan_pipedream(pipedream_problem(chain)); outcome.plan) {
    for (const PipedreamStage& stage : outcome.plan->stages) add(cut, stage.nodes.front(), stage.replicas);
  }
  return cut;
}

StageCut ideals_cut(const PlannedChain& chain) {
  IdealsProblem problem{.nodes = {}, .edges = chain.dag.edges, .devices = chain.devices};
  problem.fits = chain.fits;
  problem.all_devices = chain.all_devices;
  for (std::size_t i = 0; i < chain.seconds.size(); ++i) {
    problem.nodes.push_back({.device = chain.seconds[i], .sent = 2 * chain.output[i] / chain.bytes_per_second});
  }
  StageCut cut;
  if (const IdealsOutcome outcome = plan_ideals(problem); outcome.plan) {
    for (const IdealsPlan::Set& set : outcome.plan->sets) add(cut, set.nodes.front());
  }
  return cut;
}

StageCut piper_cut(const PlannedChain& chain) {
  PiperProblem problem{.nodes = {},
                       .dag = chain.dag,
                       .edge_bytes = {},
                       .devices = chain.devices,
                       .micro_batches = chain.micro_batches,
                       .bytes_per_second = chain.bytes_per_second,
                       .fits = chain.fits,
                       .replicas = chain.copies,
                       .all_devices = chain.all_devices};
  for (std::size_t i = 0; i < chain.seconds.size(); ++i) {
    problem.nodes.emplace_back().push_back({.seconds = chain.seconds[i], .parameter_bytes = chain.parameters[i]});
  }
  problem.edge_bytes.assign(chain.output.begin(), std::prev(chain.output.end()));
  StageCut cut;
  if (const PiperOutcome outcome = plan_piper(problem); outcome.plan) {
    for (const PiperStage& stage : outcome.plan->stages) add(cut, stage.nodes.front(), stage.replicas);
  }
  return cut;
}

StageCut alpa_cut(const PlannedChain& chain) {
  const auto layers = static_cast<std::uint32_t>(chain.seconds.size());
  AlpaProblem problem{.layers = layers,
                      .devices = chain.devices,
                      .micro_batches = chain.micro_batches,
                      .stages = {},
                      .fits = chain.fits};
  for (std::uint32_t i = 0; i < layers; ++i) {
    double seconds = 0, parameters = 0;
    for (std::uint32_t j = i; j < layers; ++j) {
      seconds += chain.seconds[j];
      parameters += chain.parameters[j];
      const std::uint32_t most = chain.copies ? std::min(chain.devices, chain.micro_batches) : 1;
      for (std::uint32_t n = 1; n <= most; ++n) {
        const double exchange = 4.0 * (n - 1) * parameters / (chain.micro_batches * chain.bytes_per_second);
        problem.stages.push_back({.first = i, .last = j + 1, .devices = n, .seconds = (seconds + exchange) / n});
      }
    }
  }
  StageCut cut;
  if (const std::optional<AlpaPlan> plan = plan_alpa(problem)) {
    for (const std::uint32_t stage : plan->stages) add(cut, problem.stages[stage].first, problem.stages[stage].devices);
  }
  return cut;
}

MadpipeProblem madpipe_problem(const PlannedChain& chain) {
  MadpipeProblem problem{.layers = {}, .devices = chain.devices, .bytes_per_second = chain.bytes_per_second};
  problem.fits = chain.fits;
  problem.all_devices = chain.all_devices;
  for (std::size_t i = 0; i < chain.seconds.size(); ++i) {
    problem.layers.push_back({.seconds = chain.seconds[i], .output_bytes = chain.output[i]});
  }
  return problem;
}

StageCut madpipe_cut(const PlannedChain& chain) {
  const MadpipeProblem problem = madpipe_problem(chain);
  StageCut cut;
  if (const std::optional<MadpipePlan> plan = plan_madpipe(problem)) {
    for (const MadpipePlan::Stage& stage : plan->stages) add(cut, stage.first);
  }
  return cut;
}

using Planner = StageCut (*)(const PlannedChain&);
constexpr std::array<std::string_view, 5> names{"pipedream", "ideals", "piper", "alpa", "madpipe"};
constexpr std::array<Planner, 5> planners{pipedream_cut, ideals_cut, piper_cut, alpa_cut, madpipe_cut};

}  // namespace

std::span<const std::string_view> cut_planners() {
  return names;
}

bool is_planner_cut(std::string_view cut) {
  return std::ranges::find(names, cut) != names.end();
}

std::optional<std::string> too_long_for(const Problem& problem, std::string_view planner) {
  constexpr std::size_t most_stages = 300;
  if (problem.chain->stages.size() <= most_stages) return std::nullopt;
  return fmt::format("cut={} is for chains of up to {} stages, and '{}' has {}", planner, most_stages,
                     problem.graph.name, problem.chain->stages.size());
}

PipedreamProblem pipedream_problem(const Problem& problem, std::uint32_t devices) {
  return pipedream_problem(planned_chain(problem, {.planner = "pipedream", .devices = devices, .copies = true}));
}

MadpipeProblem madpipe_problem(const Problem& problem, std::uint32_t devices) {
  return madpipe_problem(planned_chain(problem, {.planner = "madpipe", .devices = devices}));
}

std::variant<StageCut, std::string> planner_cut(const Problem& problem, const CutQuestion& question) {
  if (std::optional<std::string> why = too_long_for(problem, question.planner)) return *std::move(why);
  PlannedChain chain = planned_chain(problem, question);
  const Planner planner =
      planners[static_cast<std::size_t>(std::ranges::find(names, question.planner) - names.begin())];
  StageCut cut = planner(chain);
  if (chain.fits && cut.first.empty()) {
    chain.fits = {};
    cut = planner(chain);
  }
  if (cut.first.empty()) {  // layers that the planner keeps together are fewer
    chain.all_devices = false;
    cut = planner(chain);
  }
  EXPECTS(!cut.first.empty());
  if (cut.devices() < question.devices) {
    return fmt::format("cut={} uses {} of {} devices; ask for stages={}", question.planner, cut.devices(),
                       question.devices, cut.devices());
  }
  return cut;
}

}  // namespace plimsoll
