#include "strategies/pipelining/pipeline.h"

#include <fmt/format.h>

#include <algorithm>

#include "sim/core/expects.h"
#include "sim/io/input_error.h"
#include "strategies/common/chain_pass.h"
#include "strategies/pipelining/cuts.h"
#include "strategies/pipelining/planner_cuts.h"

namespace plimsoll {

namespace {

/// Stages [first, last) of the problem's chain.
Part part_of(const Problem& problem, std::size_t first, std::size_t last) {
  const ChainGraph& index = *problem.index;
  Part part;
  const auto add = [&part](OpId op) {
    if (op != no_op) part.ops.push_back(op);
  };
  for (std::size_t i = first; i < last; ++i) add(index.forward[i]);
  for (std::size_t i = last; i-- > first;) {
    add(index.backward[i]);
    if (!index.weight.empty()) add(index.weight[i]);
  }
  part.cut_before_backward = true;
  return part;
}

}  // namespace

bool is_backward_split(const Options& options) {
  return options.text("backward") == "split";
}

std::uint32_t ranks_of(const Problem& problem, const Options& options, std::string_view strategy,
                       std::uint32_t parts_a_rank) {
  const std::size_t devices = problem.platform.devices.size(), stages = problem.chain->stages.size();
  if (stages < parts_a_rank) {
    throw InputError(fmt::format("{}: {} parts a device, and '{}' has {} stages", strategy, parts_a_rank,
                                 problem.graph.name, stages));
  }
  if (options.text("stages") == "auto") return static_cast<std::uint32_t>(std::min(devices, stages / parts_a_rank));
  const auto asked = static_cast<std::uint32_t>(options.integer("stages"));
  if (asked > devices) {
    throw InputError(fmt::format("{}: stages={}, and platform '{}' has {} device{}", strategy, asked,
                                 problem.platform.name, devices, devices == 1 ? "" : "s"));
  }
  if (std::size_t{asked} * parts_a_rank > stages) {
    throw InputError(fmt::format("{}: {} parts of at least one stage each, and '{}' has {} stages", strategy,
                                 std::size_t{asked} * parts_a_rank, problem.graph.name, stages));
  }
  return asked;
}

Partition cut_for(const Problem& problem, const Options& options, std::string_view strategy,
                  std::span<const std::uint32_t> rank_of, bool weights_apart, std::span<const std::uint32_t> stage_of) {
  EXPECTS(problem.chain && problem.index && (stage_of.empty() || stage_of.size() == rank_of.size()));
  const std::vector<Stage>& stages = problem.chain->stages;
  const CutRule rule = options.text("cut") == "uniform" ? CutRule::uniform : CutRule::balanced;
  const std::size_t parts = stage_of.empty() ? rank_of.size() : std::ranges::max(stage_of) + 1;
  const std::string_view cut = options.text("cut");
  if (is_planner_cut(cut) && !stage_of.empty()) {
    throw InputError(fmt::format("{}: cut={} is for pipelines with one part a device, in their order", strategy, cut));
  }
  std::vector<std::size_t> cuts =
      is_planner_cut(cut) ? planner_cut(problem, cut, strategy, rank_of) : cut_stages(*problem.chain, parts, rule);
  cuts.push_back(stages.size());
  Partition made;
  made.order.resize(problem.platform.devices.size());
  for (std::size_t p = 0; p < rank_of.size(); ++p) {
    const std::size_t g = stage_of.empty() ? p : stage_of[p];
    const auto begin = stages.begin() + static_cast<std::ptrdiff_t>(cuts[g]);
    const auto end = stages.begin() + static_cast<std::ptrdiff_t>(cuts[g + 1]);
    if (std::none_of(begin, end, [](const Stage& stage) { return stage.has_backward; })) {
      throw InputError(
          fmt::format("{}: stages '{}' to '{}' are a part of the pipeline, and none of them has a backward", strategy,
                      begin->name, std::prev(end)->name));
    }
    Part& part = made.parts.emplace_back(part_of(problem, cuts[g], cuts[g + 1]));
    part.device = DeviceId{rank_of[p]};
    part.cut_before_weights = weights_apart;
  }
  return made;
}

PartCosts part_costs(const Problem& problem, const Partition& partition) {
  PartCosts costs;
  RouteFinder routes(problem.platform);
  for (std::size_t g = 0; g < partition.parts.size(); ++g) {
    const Part& part = partition.parts[g];
    Seconds f, b, w;
    for (const OpId op : part.ops) {
      const Phase phase = problem.graph[op].phase;
      (phase == Phase::forward           ? f
       : phase == Phase::backward_weight ? w
                                         : b) += duration_on(problem, op, part.device, Saving::keep);
    }
    costs.f.push_back(f.value);
    costs.b.push_back(b.value);
    costs.w.push_back(w.value);
    const PartTask task{problem, partition, id_at<PartId>(g)};
    const TapeCost kept = tape_cost(problem, part, plain_tape(task));
    costs.kept.push_back(kept.kept.count);
    costs.kept_for_weights.push_back(kept.kept_for_weights.count);
    if (g == 0) continue;
    const MemoryId here = problem.platform[part.device].memory,
                   before = problem.platform[partition.parts[g - 1].device].memory;
    double sent = 0, returned = 0;
    if (here != before) {
      if (const std::optional<Route> route = routes.between(before, here)) {
        const std::size_t first = problem.graph[part.ops.front()].stage;
        sent = (route->latency + boundary_bytes(*problem.chain, first) / route->bandwidth).value;
        returned = (route->latency + problem.chain->stages[first].input_gradient / route->bandwidth).value;
      }
    }
    costs.sent.push_back(sent);
    costs.returned.push_back(returned);
  }
  return costs;
}

std::vector<PartitionOutcome> pipeline(const Problem& problem, const Options& options, std::string_view strategy,
                                       const PipelineOrder& order, std::span<const std::optional<Bytes>> budgets,
                                       std::string note, Updates updates) {
  EXPECTS(order.turns.size() <= problem.platform.devices.size());
  const auto made = std::make_shared<Partition>(
      cut_for(problem, options, strategy, order.rank_of, order.weights_apart, order.stage_of));
  std::ranges::copy(order.turns, made->order.begin());
  made->note = std::move(note);
  made->updates = updates;
  return std::vector<PartitionOutcome>(budgets.size(), std::shared_ptr<const Partition>(made));
}

PipelineOrder order_of(const Partition& partition) {
  PipelineOrder order{{}, partition.order, partition.parts.front().cut_before_weights};
  while (!order.turns.empty() && order.turns.back().empty()) order.turns.pop_back();  // devices that are not used
  for (const Part& part : partition.parts) order.rank_of.push_back(part.device.index);
  return order;
}

}  // namespace plimsoll
