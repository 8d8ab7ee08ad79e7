#include "tests/training/training.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <memory>

#include "strategies/compose/spec.h"
#include "tests/generate/problems.h"
#include "validate/cpu/cpu_backend.h"
#include "validate/network_model.h"
#include "validate/networks/kernel_arguments.h"
#include "validate/networks/networks.h"

namespace plimsoll {

Training training_of(const std::string& reference, Platform platform, const ProblemOptions& options) {
  std::optional<Optimizers> updates;
  if (options.optimizer != Optimizer::none) updates = Optimizers{options.optimizer, options.parameter_groups};
  return {problem_of(network_model(reference), std::move(platform), options),
          with_kernels(named_network(reference, updates).network)};
}

Platform one_gpu() {
  constexpr BytesPerSecond fast{20e9};
  return gpus({.to_host = fast, .adam = fast, .to_disk = fast});
}

void take_one_scratch(CpuNetwork& made, Bytes enough) {
  Graph& graph = made.network.graph;
  for (std::size_t o = 0; o < graph.ops.size(); ++o) {
    REQUIRE(made.kernels[o].scratch <= enough);
    made.kernels[o].scratch = enough;
    state_workspace(graph, graph.ops[o], enough);
  }
  for (std::size_t i = 0; i < made.slices.size(); ++i) {
    take_one_scratch(made.slices[i], enough);
    made.network.slices[i] = std::make_shared<const Network>(made.slices[i].network);
  }
}

PlanOutcome planned(const Problem& problem, const std::string& spec, std::optional<Bytes> budget) {
  const std::vector<Pass> passes = parse_spec(spec, "test");
  return plan(transformed(problem, passes), passes, budget);
}

std::variant<Chain, Graph> network_model(const std::string& reference) {
  NamedNetwork named = named_network(reference);
  return model_of(with_kernels(std::move(named.network)).network, named.view);
}

std::variant<Replayed, ReplayFailure> run_of(const Training& training, const Schedule& schedule,
                                             const ReplayOptions& options) {
  BlockPool pool;
  RunnableCpuNetwork network(training.network, pool);
  return replay(training.problem, schedule, network, options);
}

Replayed replayed(const Training& training, const Schedule& schedule) {
  std::variant<Replayed, ReplayFailure> outcome = run_of(training, schedule, {.poisons = true, .keeps_values = true});
  if (const auto* failure = std::get_if<ReplayFailure>(&outcome)) FAIL(failure->what);
  return std::move(std::get<Replayed>(outcome));
}

std::vector<std::string> differing(const Replayed& run, const Replayed& plain) {
  std::vector<std::string> names;
  for (const auto& [name, value] : run.values) {
    const auto other = plain.values.find(name);
    if (other == plain.values.end() || other->second != value) names.push_back(name);
  }
  return names;
}

double relative_difference(const Replayed& run, const Replayed& plain, const std::string& name) {
  const std::vector<std::byte>&a = run.values.at(name), &b = plain.values.at(name);
  REQUIRE(a.size() == b.size());
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i + sizeof(float) <= a.size(); i += sizeof(float)) {
    float x = 0, y = 0;
    std::memcpy(&x, &a[i], sizeof x);
    std::memcpy(&y, &b[i], sizeof y);
    REQUIRE(std::isfinite(x));
    largest = std::max(largest, std::abs(double{y}));
    difference = std::max(difference, std::abs(double{x} - double{y}));
  }
  return difference == 0 ? 0 : difference / largest;
}

std::map<std::string, std::vector<std::pair<OpId, std::uint32_t>>> contributions(const Problem& problem,
                                                                                 const Schedule& schedule) {
  std::map<std::string, std::vector<std::pair<OpId, std::uint32_t>>> order;
  for (const Step& step : schedule.steps) {
    if (step.op == no_op) continue;
    for (const TensorId t : problem.graph[step.op].outputs) {
      const Tensor& tensor = problem.graph[t];
      if (tensor.kind == TensorKind::parameter_gradient) order[tensor.name].emplace_back(step.op, step.micro_batch);
    }
  }
  return order;
}

}  // namespace plimsoll
