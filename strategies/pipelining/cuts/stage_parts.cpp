#include "strategies/pipelining/cuts/stage_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "sim/core/expects.h"
#include "sim/engine/event/event_engine.h"
#include "sim/io/input_error.h"
#include "sim/lower/lowering.h"
#include "strategies/models/chain_pass.h"

namespace plimsoll {
namespace {

/// Stages [first, last) of the problem's chain.
Part part_of(const Problem& problem, std::size_t first, std::size_t last, DeviceId device, bool weights_apart) {
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
  part.device = device;
  part.cut_before_backward = true;
  part.cut_before_weights = weights_apart;
  return part;
}

}  // namespace

bool is_trained(const Problem& problem, std::size_t first, std::size_t last) {
  // Of a backward in two parts the first, which gets what the part after sends: behind a stored prefix there may be
  // weight gradients alone.
  const std::vector<OpId>& backward = problem.index->backward;
  return std::any_of(backward.begin() + static_cast<std::ptrdiff_t>(first),
                     backward.begin() + static_cast<std::ptrdiff_t>(last), [](OpId op) { return op != no_op; });
}

RangePart::RangePart(const Problem& problem, std::size_t first, std::size_t last, DeviceId device, bool weights_apart) {
  const auto add = [&](std::size_t from, std::size_t to) {
    if (from < to) partition.parts.push_back(part_of(problem, from, to, device, weights_apart));
  };
  add(0, first);
  id = id_at<PartId>(partition.parts.size());
  add(first, last);
  add(last, problem.chain->stages.size());
}

Partition partition_of(const Problem& problem, const StageCut& cut, std::string_view strategy,
                       const PipelineOrder& placed) {
  EXPECTS(problem.chain && problem.index);
  EXPECTS(placed.stage_of.empty() || placed.stage_of.size() == placed.rank_of.size());
  const std::vector<Stage>& stages = problem.chain->stages;
  Partition made;
  made.each_updates_shared = !problem.first_updates_shared;
  made.order.resize(problem.platform.devices.size());
  std::ranges::copy(placed.turns, made.order.begin());
  for (std::size_t p = 0; p < placed.rank_of.size(); ++p) {
    const std::size_t g = placed.stage_of.empty() ? p : placed.stage_of[p];
    const std::size_t first = cut.first[g], last = g + 1 < cut.first.size() ? cut.first[g + 1] : stages.size();
    if (!is_trained(problem, first, last)) {
      throw InputError(
          fmt::format("{}: stages '{}' to '{}' are a part of the pipeline, and none of them has a backward", strategy,
                      stages[first].name, stages[last - 1].name));
    }
    made.parts.push_back(part_of(problem, first, last, DeviceId{placed.rank_of[p]}, placed.weights_apart));
  }
  return made;
}

Partition with_turns(Partition cut, const PipelineOrder& order, std::string note) {
  std::ranges::copy(order.turns, cut.order.begin());
  cut.note = std::move(note);
  return cut;
}

PipelineOrder order_of(const Partition& partition) {
  PipelineOrder order{{}, partition.order, partition.parts.front().cut_before_weights};
  while (!order.turns.empty() && order.turns.back().empty()) order.turns.pop_back();  // devices that are not used
  for (const Part& part : partition.parts) order.rank_of.push_back(part.device.index);
  return order;
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

Timeline plain_timeline(const Problem& problem, const Partition& partition) {
  std::vector<Tape> tapes;
  for (std::size_t p = 0; p < partition.parts.size(); ++p) {
    tapes.push_back(plain_tape({problem, partition, id_at<PartId>(p)}));
  }
  const auto schedule = lower(problem, partition, tapes);
  if (const std::string* why = std::get_if<std::string>(&schedule)) throw InputError(*why);
  return simulate_event(std::get<Schedule>(schedule), problem.platform);
}

Bytes plain_peak(const Problem& problem, const Partition& partition) {
  const Timeline timeline = plain_timeline(problem, partition);
  Bytes peak;
  for (const Device& device : problem.platform.devices) {
    peak = std::max(peak, timeline.peaks[device.memory.index].bytes);
  }
  return peak;
}

}  // namespace plimsoll
