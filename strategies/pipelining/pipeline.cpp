#include "strategies/pipelining/pipeline.h"

#include <algorithm>
#include <map>
#include <memory>

#include "sim/core/expects.h"
#include "strategies/pipelining/cuts/planner_cuts.h"
#include "strategies/pipelining/cuts/sapp_cut.h"

namespace plimsoll {

bool same_turns(const Partition& a, const Partition& b) {
  const auto same_part = [](const Part& x, const Part& y) { return x.device == y.device && x.ops == y.ops; };
  const auto same_turn = [](const Turn& x, const Turn& y) {
    return x.part == y.part && x.micro_batch == y.micro_batch && x.piece == y.piece;
  };
  return std::ranges::equal(a.parts, b.parts, same_part) &&
         std::ranges::equal(a.order, b.order,
                            [&](const auto& x, const auto& y) { return std::ranges::equal(x, y, same_turn); });
}

std::optional<PipelineOrder> asked_order(const LimitedOptions& options, const PartCosts& costs,
                                         std::uint32_t micro_batches, const OrderHeuristic& heuristic) {
  if (options.published) return heuristic(costs);
  return shortest_for_any_network(costs, micro_batches, heuristic);
}

bool is_backward_split(const LineOptions& options) {
  return options.splits_backward;
}

Partition cut_for(const Problem& problem, const LineOptions& options, std::string_view strategy,
                  std::span<const std::uint32_t> rank_of, bool weights_apart, const std::optional<Bytes>& budget) {
  const PipelineOrder placed{{rank_of.begin(), rank_of.end()}, {}, weights_apart, {}};
  return partition_of(problem, asked_cut(problem, options, strategy, placed, budget), strategy, placed);
}

std::vector<PartitionOutcome> for_budgets(const LineOptions& options, std::span<const std::optional<Bytes>> budgets,
                                          const std::function<Partition(const std::optional<Bytes>&)>& one) {
  const std::string_view cut = options.cut;
  const bool is_one = cut != sapp_cut && !is_planner_cut(cut);
  std::map<std::optional<Bytes>, std::shared_ptr<const Partition>> made;
  std::vector<PartitionOutcome> outcomes;
  for (const std::optional<Bytes>& budget : budgets) {
    std::shared_ptr<const Partition>& found = made[is_one ? std::nullopt : budget];
    if (found == nullptr) {
      auto fresh = std::make_shared<const Partition>(one(budget));
      const auto same = std::ranges::find_if(
          made, [&](const auto& other) { return other.second != nullptr && same_turns(*other.second, *fresh); });
      found = same != made.end() ? same->second : fresh;
    }
    outcomes.emplace_back(found);
  }
  return outcomes;
}

std::vector<PartitionOutcome> each_changed(std::vector<PartitionOutcome> outcomes,
                                           const std::function<void(Partition&)>& change) {
  using Shared = std::shared_ptr<const Partition>;
  std::map<Shared, Shared> changed;
  for (PartitionOutcome& outcome : outcomes) {
    Shared* made = std::get_if<Shared>(&outcome);
    if (made == nullptr) continue;
    Shared& after = changed[*made];
    if (after == nullptr) {
      Partition partition = **made;
      change(partition);
      after = std::make_shared<const Partition>(std::move(partition));
    }
    *made = after;
  }
  return outcomes;
}

std::vector<PartitionOutcome> pipeline(const Problem& problem, const LineOptions& options, std::string_view strategy,
                                       const PipelineOrder& order, std::span<const std::optional<Bytes>> budgets,
                                       Updates updates) {
  EXPECTS(order.turns.size() <= problem.platform.devices.size());
  return for_budgets(options, budgets, [&](const std::optional<Bytes>& budget) {
    Partition made = partition_of(problem, asked_cut(problem, options, strategy, order, budget), strategy, order);
    made.updates = updates;
    return made;
  });
}

std::vector<PartitionOutcome> in_buckets(std::vector<PartitionOutcome> outcomes, const LineOptions& options) {
  if (!options.bucket) return outcomes;
  return each_changed(std::move(outcomes), [size = *options.bucket](Partition& partition) { partition.bucket = size; });
}

std::vector<PartitionOutcome> with_sends(std::vector<PartitionOutcome> outcomes, const LineOptions& options) {
  if (!options.sends_block) return outcomes;
  return each_changed(std::move(outcomes), [](Partition& partition) { partition.sends_block = true; });
}

}  // namespace plimsoll
