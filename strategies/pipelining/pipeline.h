#pragma once
// What pipelining strategies share: options, and the partition of a chain that follows from an order and a cut.

#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "strategies/api/strategy.h"
#include "strategies/pipelining/cuts/asked_cut.h"
#include "strategies/pipelining/cuts/line_options.h"
#include "strategies/pipelining/cuts/stage_parts.h"
#include "strategies/pipelining/orders/order_times.h"
#include "strategies/pipelining/orders/orders.h"

namespace plimsoll {

/// Of `orders_option`: what the heuristic makes of the costs, if it finds anything.
std::optional<PipelineOrder> asked_order(const LimitedOptions&, const PartCosts&, std::uint32_t micro_batches,
                                         const OrderHeuristic& heuristic);

/// Of `backward_option`.
bool is_backward_split(const LineOptions&);

/// The chain cut as the option `cut` says, part g on device rank_of[g]; `weights_apart` as of PipelineOrder.
Partition cut_for(const Problem&, const LineOptions&, std::string_view strategy, std::span<const std::uint32_t> rank_of,
                  bool weights_apart, const std::optional<Bytes>& budget = {});

/// Whether parts of the same ops on the same devices take the same turns.
bool same_turns(const Partition&, const Partition&);

/// What `one` makes for each budget, asked once where the cut does not depend on it; what is the same is shared.
std::vector<PartitionOutcome> for_budgets(const LineOptions&, std::span<const std::optional<Bytes>> budgets,
                                          const std::function<Partition(const std::optional<Bytes>&)>& one);

/// The same with each partition changed; what is shared is changed once.
std::vector<PartitionOutcome> each_changed(std::vector<PartitionOutcome>, const std::function<void(Partition&)>&);

/// The order on the platform's first devices, the chain cut as the option `cut` says; `updates` as of Partition. Throws
/// InputError where a part has nothing to train.
std::vector<PartitionOutcome> pipeline(const Problem&, const LineOptions&, std::string_view strategy,
                                       const PipelineOrder&, std::span<const std::optional<Bytes>> budgets,
                                       Updates updates = {});

/// The same partitions with buckets of the size of `buckets_option`: which gradients of copies are all-reduced
/// together.
std::vector<PartitionOutcome> in_buckets(std::vector<PartitionOutcome>, const LineOptions&);

/// The same partitions, with sends as `sends_option` says.
std::vector<PartitionOutcome> with_sends(std::vector<PartitionOutcome>, const LineOptions&);

}  // namespace plimsoll
