#include "sim/core/problem.h"

#include <algorithm>
#include <utility>

#include "sim/core/expects.h"

namespace plimsoll {
namespace {

bool has_update(const Graph& graph) {
  return std::ranges::any_of(graph.ops, [](const Op& op) { return op.phase == Phase::update; });
}

/// So that every op takes the same time on both.
bool have_same_rates(const Device& a, const Device& b) {
  return a.model == b.model && a.takes_trace_times == b.takes_trace_times && a.peak == b.peak &&
         a.memory_bandwidth == b.memory_bandwidth && a.launch_overhead == b.launch_overhead;
}

}  // namespace

std::variant<Problem, std::string> make_problem(std::variant<Chain, Graph> model, Platform platform,
                                                const ProblemOptions& options) {
  EXPECTS(!platform.devices.empty() && options.micro_batches > 0);
  Problem problem;
  problem.micro_batches = options.micro_batches;
  problem.budget = options.budget;
  problem.optimizer = options.optimizer;
  problem.gradients = options.gradients;
  problem.platform = std::move(platform);
  const Device& device = problem.platform.devices.front();

  if (Chain* chain = std::get_if<Chain>(&model)) {
    Chain whole = with_loss(std::move(*chain));
    if (options.backward == Backward::split) {
      for (const Stage& stage : whole.stages) {
        if (!stage.has_backward_weight)
          return "stage '" + stage.name + "' gives no backward_weight_s to split backward by";
      }
    }
    problem.index = chain_graph(whole, options.optimizer, options.backward);
    problem.graph = std::move(problem.index->graph);
    problem.index->graph = {};
    ScaledChain scaled = scaled_to(std::move(whole), device);
    if (!scaled.refused.empty()) return std::move(scaled.refused);
    problem.chain = std::move(scaled.chain);
  } else {
    problem.graph = std::move(std::get<Graph>(model));
    if (options.optimizer != Optimizer::none && !has_update(problem.graph)) {
      return "an optimizer needs update ops in a graph trace, and this one has none";
    }
  }
  const Device* before = nullptr;
  for (const Device& each : problem.platform.devices) {
    if (before != nullptr && have_same_rates(*before, each)) continue;
    before = &each;
    if (std::optional<std::string> why = no_times(problem.graph, each)) return std::move(*why);
    problem.times_rescaled |= !times_hold(problem.graph.source, each);
  }
  return problem;
}

std::optional<Bytes> budget_of(const Problem& problem, DeviceId device) {
  if (problem.budget) return problem.budget;
  return problem.platform[problem.platform[device].memory].capacity;
}

Seconds duration_on(const Problem& problem, OpId op, DeviceId device, Saving saving, std::uint32_t implementation) {
  const std::optional<Seconds> known =
      duration(problem.graph[op], problem.graph.source, problem.platform[device], saving, implementation);
  EXPECTS(known);
  return *known;
}

std::optional<Seconds> update_seconds_on_host(const Problem& problem, OpId op, MemoryId host) {
  const std::optional<BytesPerSecond> traffic = update_traffic(problem.platform[host]);
  if (!traffic) return std::nullopt;
  Bytes parameters;
  for (const TensorId t : problem.graph[op].mutates) {
    if (problem.graph[t].kind == TensorKind::parameter) parameters += problem.graph[t].bytes;
  }
  const bool is_known = problem.optimizer != Optimizer::none;
  const double moves = is_known ? static_cast<double>(optimizer_moves(problem.optimizer)) : adam_moves;
  return Seconds{static_cast<double>(parameters.count) * moves / traffic->value};
}

}  // namespace plimsoll
